"""Products that share a factor are taken as one, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bilax.numerics.matmuls import share_products

rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(40, 5)))
Z = jnp.asarray(rng.normal(size=(30, 5)))
T = jnp.asarray(rng.normal(size=(3, 40, 5)))
V, W = (jnp.asarray(rng.normal(size=(5, 3))) for _ in range(2))
A, B = (jnp.asarray(rng.normal(size=(3, 5))) for _ in range(2))
v, w = V[:, 0], W[:, 0]


def products(fn, *arguments):
    return str(jax.make_jaxpr(fn)(*arguments)).count("dot_general[")


def chain(v, w):
    first = X @ v
    return first, X @ (w + X.T @ first)


def crossed(v, w):
    """Merging X with X and Z with Z would make each pair wait for the other."""
    a, b = X @ v, Z @ w
    return X @ jnp.tanh(Z.T @ b), Z @ jnp.tanh(X.T @ a)


def network(weights, batch):
    first, second = weights
    return jnp.mean((jnp.tanh(batch @ first) @ second - 1) ** 2)


def network_hvp(first, second):
    loss = jax.grad(lambda weights: network(weights, X))
    return jax.jvp(loss, ((first, second),), ((first + 1, second - 1),))[1]


@pytest.mark.parametrize(
    ("fn", "arguments", "before", "after"),
    [
        (lambda a, b: (X @ a, X @ b), (V, W), 2, 1),
        (lambda a, b: (X @ a, X @ b), (v, w), 2, 1),
        (lambda a, b: (X @ a.T, X @ b.T), (A, B), 2, 1),
        (lambda a, b: (X @ a.T, X @ b), (A, W), 2, 1),
        (lambda a, b: (a @ X.T, jnp.exp(b @ X.T)), (A, B), 2, 2),  # two transposes: not the same factor
        (lambda a, b, t: (a @ t, b @ t), (A, B, X.T), 2, 1),
        (lambda a, b: (X @ a, Z @ b), (V, W), 2, 2),
        (lambda a, b: (X @ a, X @ b), (V, w), 2, 2),
        (lambda a, b, c: (X @ a, X @ b, X @ c), (v, w, v + w), 3, 1),
        (lambda a, b: (jnp.einsum("bij,jk->bik", T, a), jnp.einsum("bij,jk->bik", T, b)), (V, W), 2, 1),
        (lambda a, b: (jnp.einsum("bij,bj->bi", T, a), jnp.einsum("bij,bj->bi", T, b)), (A, B), 2, 1),
        (lambda c: (X @ c, Z @ c), (V,), 2, 2),  # the factor that they share is the smaller one
        (lambda a, b: X @ a + jnp.sum(X @ b) + jnp.sum(Z @ b), (V, W), 3, 2),
        (chain, (v, w), 3, 3),
        (lambda a, b: (X @ a, jax.jit(lambda b: X @ b)(b)), (V, W), 2, 1),
        (lambda a, b: X @ a, (V, W), 1, 1),
        (lambda a, b: 1.0, (V, W), 0, 0),
        (lambda a, b: a, (V, W), 0, 0),
    ],
)
def test_same_results_from_fewer_products(fn, arguments, before, after):
    assert products(fn, *arguments) == before
    assert products(share_products(fn), *arguments) == after
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), fn(*arguments), share_products(fn)(*arguments)
    )


def test_pairs_that_would_wait_for_each_other():
    assert products(crossed, v, w) == 6
    assert products(share_products(crossed), v, w) == 5
    for a, b in zip(crossed(v, w), share_products(crossed)(v, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_any_loss_profits():
    first, second = W, jnp.asarray(rng.normal(size=(3, 2)))
    assert products(share_products(network_hvp), first, second) < products(network_hvp, first, second)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10),
        network_hvp(first, second),
        share_products(network_hvp)(first, second),
    )


def test_it_is_an_ordinary_function():
    def fn(a, b):
        return jnp.sum(jnp.sin(X @ a) * (X @ b))

    one = share_products(fn)
    np.testing.assert_allclose(jax.jit(one)(v, w), fn(v, w))
    np.testing.assert_allclose(jax.grad(one)(v, w), jax.grad(fn)(v, w))
    np.testing.assert_allclose(jax.hessian(one)(v, w), jax.hessian(fn)(v, w), atol=1e-12)
    np.testing.assert_allclose(jax.vmap(one)(A, B), jax.vmap(fn)(A, B))
    np.testing.assert_allclose(jax.vmap(one, in_axes=(0, None))(A, w), jax.vmap(fn, in_axes=(0, None))(A, w))


def test_what_a_function_prints_is_kept(capfd):
    def fn(a, b):
        jax.debug.print("seen {}", a[0] * 0 + 1)
        return X @ a, X @ b

    jax.block_until_ready(share_products(fn)(v, w))
    jax.effects_barrier()
    assert "seen 1.0" in capfd.readouterr().out
