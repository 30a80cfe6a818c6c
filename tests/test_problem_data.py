"""What a problem keeps of what it was given."""

import numpy as np
import pytest
import scipy.sparse

from bilax import Problem
from bilax.problem import as_variable


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


def test_sparse_data_are_copied_too():
    for i in range(20):
        matrix = scipy.sparse.csr_array(np.full((1000, 300), i + 1.0))
        problem = Problem(lambda x, y, b: 0.0, lambda x, y, b: 0.0, matrix, matrix)
        matrix.data[:], matrix.indices[:], matrix.indptr[:] = -1, 0, 0
        assert float(problem.inner_data.values.min()) == float(problem.inner_data.values.max()) == i + 1
        assert problem.inner_data.indices.max() == 299
        assert problem.inner_data.start[-1] == 999 * 300
