"""Sparse rows multiply, differentiate and vmap like the dense matrix they stand for, and stay sparse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import bilax
from bilax.datasets import digit_documents
from bilax.problems import logistic
from bilax.sampling import keys
from bilax.sparse import BLOCK, Rows

rng = np.random.default_rng(0)
KEPT = np.arange(60)[:, None] != 7  # row 7 has no entries
MATRIX = scipy.sparse.csr_array(scipy.sparse.random_array((60, 40), density=0.1, rng=rng).toarray() * KEPT)
DENSE = jnp.asarray(MATRIX.toarray())
W = jnp.asarray(rng.normal(size=(40, 3)))
INDEX = jnp.array([5, 7, 5, 0, 59, 7, 7])


def loss(X, W):
    return jnp.mean(jax.nn.logsumexp(X @ W, axis=1) ** 2)


def hvp(X, W, V):
    return jax.jvp(lambda W: jax.grad(loss, 1)(X, W), (W,), (V,))[1]


@pytest.mark.parametrize("pick", [lambda X: X, lambda X: X[INDEX], lambda X: X[jnp.array([7])]])
def test_products_and_derivatives(pick):
    rows, dense = pick(Rows.from_scipy(MATRIX)), pick(DENSE)
    assert rows.shape == dense.shape
    np.testing.assert_allclose(rows @ W, dense @ W, atol=1e-12)
    np.testing.assert_allclose(jax.grad(loss, 1)(rows, W), jax.grad(loss, 1)(dense, W), atol=1e-12)
    np.testing.assert_allclose(hvp(rows, W, W + 1), hvp(dense, W, W + 1), atol=1e-12)


def test_more_entries_than_one_pass_takes():
    many = scipy.sparse.random_array((50, 400), density=0.3, rng=rng).tocsr()
    assert many.nnz > 3 * BLOCK
    V = rng.normal(size=(400, 2))
    np.testing.assert_allclose(Rows.from_scipy(many) @ jnp.asarray(V), many @ V, atol=1e-10)


def test_vmap_over_the_matrix_and_over_the_rows():
    rows = Rows.from_scipy(MATRIX)
    stack = jnp.stack([W, 2 * W, -W])
    for axis in (0, 2):
        over = jax.vmap(lambda V: hvp(rows[INDEX], V, V + 1), axis)
        same = jax.vmap(lambda V: hvp(DENSE[INDEX], V, V + 1), axis)
        moved = jnp.moveaxis(stack, 0, axis)
        np.testing.assert_allclose(over(moved), same(moved), atol=1e-12)
    batches = jnp.array([[1, 2], [3, 7], [0, 0]])
    np.testing.assert_allclose(
        jax.jit(jax.vmap(lambda i, V: hvp(rows[i], V, V + 1)))(batches, stack),
        jax.vmap(lambda i, V: hvp(DENSE[i], V, V + 1))(batches, stack),
        atol=1e-12,
    )


def test_a_matrix_without_entries():
    none = Rows.from_scipy(scipy.sparse.csr_array((3, 40)))
    assert not (none @ W).any()
    assert not jax.grad(loss, 1)(none, W).any()


def test_refusals():
    rows = Rows.from_scipy(MATRIX)
    with pytest.raises(ValueError, match=r"rows of 40 columns need a matrix of that many rows; got shape \(3, 40\)"):
        rows @ W.T
    with pytest.raises(NotImplementedError, match="the entries of sparse rows are data"):
        jax.grad(lambda values: (Rows(rows.start, rows.length, rows.indices, values, 40) @ W).sum())(rows.values)


def logistic_problems():
    """The problem of the documents, and the same on dense arrays."""
    sparse = logistic(digit_documents())

    def dense(data):
        return data | {"features": data["features"] @ jnp.eye(data["features"].columns)}

    return sparse, bilax.Problem(
        sparse.outer_loss, sparse.inner_loss, dense(sparse.outer_data), dense(sparse.inner_data), sparse.x0, sparse.y0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [bilax.MRBO(gamma=3, lam=3, Q=3, S=20), bilax.VRBO(alpha=3, beta=3, m=1, Q=2, S1=30, S2=10, per_sample=True)],
)
def test_a_method_takes_the_same_steps_on_dense_data(method):
    sparse, dense = logistic_problems()
    ends = [bilax.solve(problem, method, steps=5) for problem in (sparse, dense)]
    for a, b in zip(jax.tree.leaves(ends[0].state), jax.tree.leaves(ends[1].state), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)  # float32 data
    assert ends[0].history[-1]["val_loss"] < ends[0].history[0]["val_loss"]


def test_scipy_matrices_are_taken_as_data():
    problem = bilax.Problem(
        lambda x, y, batch: jnp.mean((batch["X"] @ y) ** 2),
        lambda x, y, batch: jnp.mean((batch["X"] @ (y - x)) ** 2),
        outer_data={"X": MATRIX, "t": np.zeros(60)},
        inner_data={"X": MATRIX.tocoo()},
    )
    assert isinstance(problem.inner_data["X"], Rows)
    assert problem.outer_size == 60
    oracle = bilax.make_oracle(problem)
    batch = oracle.draw_G(keys.root(0), 8)
    assert batch["X"].shape == (8, 40)
    x, y = jnp.zeros(40), jnp.arange(40.0)
    dense = batch["X"] @ jnp.eye(40)
    np.testing.assert_allclose(oracle.grad_G(x, y, batch), 2 * dense.T @ (dense @ y) / 8, atol=1e-10)
    with pytest.raises(ValueError, match=r"outer_data\['X'\] has 60, outer_data\['t'\] has 59"):
        bilax.Problem(problem.outer_loss, problem.inner_loss, {"X": MATRIX, "t": np.zeros(59)}, problem.inner_data)


def test_nothing_of_the_size_of_the_dense_matrix_is_made():
    """The compiled step of MRBO on 2,000 x 30,000 sparse features holds no array of that size."""
    wide = scipy.sparse.random_array((2000, 30_000), density=0.001, rng=rng, dtype=np.float32).tocsr()
    data = {"features": wide, "labels": np.zeros(2000, np.int32)}
    small = logistic(digit_documents())
    problem = bilax.Problem(small.outer_loss, small.inner_loss, data, data, jnp.zeros(30_000), jnp.zeros((30_000, 2)))
    method = bilax.MRBO(S=100, eta=0.1)
    step = jax.jit(lambda s: method.step(bilax.make_oracle(problem), keys.root(0), s))
    memory = step.lower(method.init(None, problem.x0, problem.y0)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 30_000 * 100 * 4  # even a batch, made dense, would be larger
