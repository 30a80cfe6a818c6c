"""Products that share a factor are taken as one, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bilax.numerics.matmuls import fast_products

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
    assert products(fast_products(fn), *arguments) == after
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), fn(*arguments), fast_products(fn)(*arguments)
    )


def test_pairs_that_would_wait_for_each_other():
    assert products(crossed, v, w) == 6
    assert products(fast_products(crossed), v, w) == 5
    for a, b in zip(crossed(v, w), fast_products(crossed)(v, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_any_loss_profits():
    first, second = W, jnp.asarray(rng.normal(size=(3, 2)))
    assert products(fast_products(network_hvp), first, second) < products(network_hvp, first, second)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10),
        network_hvp(first, second),
        fast_products(network_hvp)(first, second),
    )


def test_it_is_an_ordinary_function():
    def fn(a, b):
        return jnp.sum(jnp.sin(X @ a) * (X @ b))

    one = fast_products(fn)
    np.testing.assert_allclose(jax.jit(one)(v, w), fn(v, w))
    np.testing.assert_allclose(jax.grad(one)(v, w), jax.grad(fn)(v, w))
    np.testing.assert_allclose(jax.hessian(one)(v, w), jax.hessian(fn)(v, w), atol=1e-12)
    np.testing.assert_allclose(jax.vmap(one)(A, B), jax.vmap(fn)(A, B))
    np.testing.assert_allclose(jax.vmap(one, in_axes=(0, None))(A, w), jax.vmap(fn, in_axes=(0, None))(A, w))


def test_what_a_function_prints_is_kept(capfd):
    def fn(a, b):
        jax.debug.print("seen {}", a[0] * 0 + 1)
        return X @ a, X @ b

    jax.block_until_ready(fast_products(fn)(v, w))
    jax.effects_barrier()
    assert "seen 1.0" in capfd.readouterr().out


WIDE = jnp.asarray(rng.normal(size=(20, 16)))
FLAT = jnp.asarray(rng.normal(size=15))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "argument", "turned"),
    [
        (lambda W: X @ W, V, 1),
        (lambda W: X @ W.reshape(5, 3), FLAT, 1),  # weights that are one vector
        (lambda W: jax.vmap(lambda row: row @ W)(X), V, 1),  # a loss of one sample, mapped
        (lambda W: jax.grad(lambda W: jnp.sum(jnp.sin(WIDE @ W)))(W), WIDE[:16, :3], 2),  # forward and backward
        (lambda W: jax.jvp(jax.grad(lambda W: jnp.sum(jnp.sin(WIDE @ W))), (W,), (W,))[1], WIDE[:16, :3], 2),
        (lambda R: X.T @ jnp.sin(R), jnp.sin(X[:, :3]), 0),  # R is more than half of X
        (lambda A: A @ X.T, A, 0),  # as it should be
        (lambda A: jax.grad(lambda A: jnp.sum(jnp.sin(A @ X.T)))(A), A, 0),
        (lambda W: jnp.einsum("fc,sf->cs", W, X), V, 1),
        (lambda W: jnp.einsum("sf,fcd->scd", X, W), jnp.stack([V, V], -1), 1),
        (lambda v: X @ v, v, 0),  # vectors
        (lambda v: jnp.stack([X @ v, X @ (2 * v)]), v, 0),  # and two of them
        (lambda A: A @ X[:1].T, A, 0),  # a batch of one sample
        (lambda W: jax.grad(lambda W: jnp.sum(jnp.sin(X[:1] @ W)))(W), V, 0),
        (lambda W: jnp.einsum("bij,jk->bik", T, W), V, 0),  # no matrix
        (lambda W: jnp.einsum("bij,bjk->bik", T, jnp.stack([W] * 3)), V, 0),
    ],
)
def test_the_larger_factor_is_read_as_it_lies(fn, argument, turned):
    fast = fast_products(fn)
    assert str(jax.make_jaxpr(fast)(argument)).count("optimization_barrier") == 2 * turned
    for wrap in (lambda fn: fn, jax.jit, jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(wrap(fast)(argument), wrap(fn)(argument), rtol=1e-12, atol=1e-12)
    pair = jnp.stack([argument, 2 * argument])
    np.testing.assert_allclose(jax.vmap(fast)(pair), jax.vmap(fn)(pair), rtol=1e-12, atol=1e-12)


def test_a_loss_without_products_is_left_alone():
    def fn(a):
        return jax.grad(lambda a: jnp.sum(jnp.sin(a) * X))(a)

    assert str(jax.make_jaxpr(fast_products(fn))(X)) == str(jax.make_jaxpr(fn)(X))


def test_a_number_that_changed_outside_is_seen():
    """Nothing is remembered from call to call: who calls an oracle without jit sees what the loss sees now."""
    outside = [1.0]
    fast = fast_products(lambda W: outside[0] * (X @ W))
    once = fast(V)
    outside[0] = 2.0
    np.testing.assert_allclose(fast(V), 2 * once)
