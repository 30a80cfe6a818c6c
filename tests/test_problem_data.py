"""What a problem keeps of what it was given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import bilax
from bilax import Problem
from bilax.given import as_variable


@pytest.mark.parametrize("floats", [10**3, 10**6, pytest.param(10**7, marks=pytest.mark.slow)])
def test_data_are_copied_before_the_problem_is_there(floats):
    """A buffer that is filled again and again, aligned or not, is what it was when the problem was made."""
    for i in range(20):
        room = np.zeros(floats + 16, np.float32)
        buffer = room[(-room.ctypes.data // 4) % 16 :][:floats] if i % 2 else room[1 : floats + 1]
        buffer[:] = i
        problem = Problem(lambda x, y, b: b.mean(), lambda x, y, b: b.mean(), buffer, buffer, x0=buffer, y0=buffer)
        start = as_variable("x0", buffer)
        buffer[:] = -1
        for kept in (problem.outer_data, problem.inner_data, problem.x0, start):
            assert float(kept.min()) == float(kept.max()) == i


def test_a_start_does_not_share_the_memory_of_an_array_of_jax():
    """Such an array may itself share that of one of NumPy, which is filled again."""
    room = np.ones(4096 + 16, np.float32)
    buffer = room[(-room.ctypes.data // 4) % 16 :][:4096]
    start = as_variable("x0", jax.device_put(buffer))
    buffer[:] = -1
    assert float(start.min()) == float(start.max()) == 1


def test_sparse_data_are_copied_too():
    for i in range(20):
        matrix = scipy.sparse.csr_array(np.full((1000, 300), i + 1.0))
        problem = Problem(lambda x, y, b: 0.0, lambda x, y, b: 0.0, matrix, matrix)
        matrix.data[:], matrix.indices[:], matrix.indptr[:] = -1, 0, 0
        assert float(problem.inner_data.values.min()) == float(problem.inner_data.values.max()) == i + 1
        assert problem.inner_data.indices.max() == 299
        assert problem.inner_data.start[-1] == 999 * 300


def test_data_of_small_integers_are_widened_in_the_batch():
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (60, 8), np.uint8), rng.integers(0, 2, 60)

    def loss(x, y, batch):
        return jnp.mean((batch["pixels"] @ y - batch["labels"]) ** 2) + jnp.exp(x) * jnp.sum(y**2)

    def widened(batch):
        return {**batch, "pixels": batch["pixels"].astype(jnp.float32) / 255}

    def end(pixels, **options):
        data = {"pixels": pixels, "labels": labels.astype(np.float32)}
        problem = bilax.Problem(loss, loss, data, data, jnp.float32(0.0), jnp.zeros(8, jnp.float32), **options)
        return problem, bilax.solve(problem, bilax.MRBO(S=8), steps=20)

    kept, result = end(pixels, prepare=widened)
    _, wide = end(pixels.astype(np.float32) / np.float32(255))
    assert kept.inner_data["pixels"].dtype == np.uint8
    np.testing.assert_allclose(result.y, wide.y, rtol=1e-6)
    assert kept.functions == kept.functions, "made anew each time, and equal, so that nothing is compiled twice"


def test_prepare_takes_a_batch():
    with pytest.raises(TypeError, match="prepare must be a function of a batch"):
        bilax.Problem(lambda x, y, b: 0.0, lambda x, y, b: 0.0, np.ones(3), np.ones(3), prepare=lambda: 0)
    with pytest.raises(TypeError, match="prepare must be a function of a batch"):
        bilax.Problem(lambda x, y, b: 0.0, lambda x, y, b: 0.0, np.ones(3), np.ones(3), prepare="scale")
