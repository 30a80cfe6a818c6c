"""Sizes to which small tables are filled up: those of almost one size, as in a cross-validation, share a program.

What is filled up counts for nothing: its rows have no share in a loss, its columns are 0 and so are their weights.
"""

import numpy as np

LEAST, MOST = 64, 4096  # rows; beyond the latter, compiling takes little of the time of a fit


def rows_for(n: int) -> int:
    """Return a number of rows that holds n, at most an eighth more or the smallest one.

    >>> [rows_for(n) for n in (20, 118, 119, 900, 5000)]
    [64, 120, 120, 960, 5000]
    """
    return n if n > MOST else max(LEAST, _up(n, 2 ** max(3, (n - 1).bit_length() - 4)))


def columns_for(d: int, n: int) -> int:
    """Return a number of columns that holds d, of a table of n rows."""
    return d if n > MOST else _up(d, 2 ** max(4, (d - 1).bit_length() - 4))


def shares(n: int) -> np.ndarray:
    """Return for each row what it counts for in a mean over all that are there, so that it is one over n."""
    room = rows_for(n)
    return np.where(np.arange(room) < n, room / n, 0).astype(np.float32)


def filled(values: np.ndarray, rows: int, columns: int | None = None) -> np.ndarray:
    """Return the values with as many rows, and columns, the further ones 0."""
    more = [(0, rows - len(values))] + [(0, 0)] * (values.ndim - 1)
    if columns is not None:
        more[1] = (0, columns - values.shape[1])
    return np.pad(values, more)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
