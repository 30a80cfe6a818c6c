"""Data that stay on disk: samples are read when they are drawn.

A problem takes a `Source` in place of arrays. What is drawn is decided by the seed alone, so that a run is the same,
bit for bit, as with all of the data in memory.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax.types import PyTree


class Source(ABC):
    """Samples that are read by their numbers. One of your own has these two methods.

    ``take`` is called from a thread, one call at a time, with numbers that may repeat and are in no order; it returns a
    pytree of NumPy arrays with one entry for each number along their first axis, always of the same types and shapes.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return how many samples there are."""

    @abstractmethod
    def take(self, indices: np.ndarray) -> PyTree:
        """Return the samples of these numbers."""


class Arrays(Source):
    """Arrays that share their first axis, such as memory-mapped ones, which are read and not copied.

    Memory-mapped arrays of JAX's types, in all up to half of the memory to spare, are as fast as arrays in memory.

    Args:
      arrays: a pytree of them, e.g. ``{"X": np.load("X.npy", mmap_mode="r")}``.

    >>> source = Arrays({"x": np.arange(10.0), "t": np.arange(10) % 2})
    >>> len(source), source.take(np.array([3, 1]))["x"].tolist()
    (10, [3.0, 1.0])
    """

    def __init__(self, arrays: PyTree):
        lengths = {len(leaf) for leaf in jax.tree.leaves(arrays)}
        if len(lengths) != 1:
            raise ValueError(
                f"the arrays of a source must share their first axis; they have lengths {sorted(lengths)}."
            )
        self.arrays, self._length, self._buffers = arrays, lengths.pop(), _Buffers()

    def __len__(self) -> int:
        return self._length

    def take(self, indices: np.ndarray) -> PyTree:
        inside = len(indices) > 0 and 0 <= indices.min() and indices.max() < self._length

        def rows(leaf: Any) -> np.ndarray:
            if not (inside and isinstance(leaf, np.ndarray)):
                return np.asarray(leaf[indices])
            batch = self._buffers.free((len(indices), *leaf.shape[1:]), leaf.dtype)
            return np.take(leaf, indices, axis=0, out=batch, mode="clip")  # "raise" would copy once more

        return jax.tree.map(rows, self.arrays)


class _Buffers:
    """Arrays to read into that nobody else holds any more: a new one for every batch costs more than its samples."""

    def __init__(self):
        self._all: dict[tuple, list[np.ndarray]] = {}
        self._one_at_a_time = threading.Lock()

    def free(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        with self._one_at_a_time:
            if (shape, dtype) not in self._all:
                self._all = {(shape, dtype): [], **dict(list(self._all.items())[: MOST_SHAPES - 1])}
            made = self._all[shape, dtype]
            for number in range(len(made)):
                if sys.getrefcount(made[number]) == ALONE:
                    return made[number]
            if len(made) < MOST_BUFFERS:
                made.append(np.empty(shape, dtype))
                return made[-1]
            return np.empty(shape, dtype)

    def __reduce__(self) -> tuple:
        return _Buffers, ()  # a copy of a source has its own


ALONE = 2  # references to an array: that of the list, and that of the call which counts them
MOST_SHAPES, MOST_BUFFERS = 8, 16


class Records(Source):
    """Records one by one, such as those of any ``grain.RandomAccessDataSource``: whatever has ``len`` and ``[i]``.

    Args:
      records: the records; each is a pytree of numbers and arrays, all of the same shapes.
      prepare: a function of a record, applied when it is read, e.g. to decode an image.

    >>> source = Records([{"x": np.array([1.0, 2.0])}, {"x": np.array([3.0, 4.0])}])
    >>> source.take(np.array([1, 1, 0]))["x"].tolist()
    [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    """

    def __init__(self, records: Any, prepare: Any = None):
        self.records, self.prepare = records, prepare

    def __len__(self) -> int:
        return len(self.records)

    def take(self, indices: np.ndarray) -> PyTree:
        read = [self.records[int(i)] for i in indices]
        read = read if self.prepare is None else [self.prepare(record) for record in read]
        return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *read)


class Parquet(Source):
    """The rows of the Parquet files of a folder, in the order of the files' names.

    Args:
      folder: the folder, or one file.
      columns: which columns go into which array: a name for a column, a list of names for a matrix, e.g.
        ``{"X": ["height", "width"], "label": "label"}``. By default, every column on its own.

    Rows are read in groups, as the file has them (`pyarrow`'s ``row_group_size``): files with groups of a few thousand
    rows are read quickly, those with one group for all are read whole for every batch. The groups that were read last
    are kept, up to ``kept_bytes``.
    """

    def __init__(
        self, folder: str | Path, columns: Mapping[str, str | Sequence[str]] | None = None, kept_bytes: int = 2**28
    ):
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise ImportError("Parquet files need pyarrow: pip install 'bilax[clean]'.") from None
        path = Path(folder)
        names = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not names:
            raise FileNotFoundError(f"{folder} holds no file whose name ends in .parquet.")
        self._files = [parquet.ParquetFile(name) for name in names]
        self.columns = dict(columns) if columns is not None else {n: n for n in self._files[0].schema_arrow.names}
        self._wanted = sorted({n for of in self.columns.values() for n in ([of] if isinstance(of, str) else of)})
        missing = [name for name in self._wanted if name not in self._files[0].schema_arrow.names]
        if missing:
            raise ValueError(
                f"{names[0]} has no column {', '.join(map(repr, missing))}; it has "
                f"{', '.join(self._files[0].schema_arrow.names)}."
            )
        self._groups = [(file, g) for file in self._files for g in range(file.num_row_groups)]
        lengths = [file.metadata.row_group(g).num_rows for file, g in self._groups]
        self._begins = np.concatenate([[0], np.cumsum(lengths)])
        self._kept: dict[int, dict[str, np.ndarray]] = {}
        self._most = kept_bytes

    def __len__(self) -> int:
        return int(self._begins[-1])

    def take(self, indices: np.ndarray) -> PyTree:
        groups = np.searchsorted(self._begins, indices, side="right") - 1
        batch: dict[str, np.ndarray] = {}
        for group in np.unique(groups):
            rows, at = self._read(int(group)), np.flatnonzero(groups == group)
            for name, of in rows.items():
                batch.setdefault(name, np.empty((len(indices), *of.shape[1:]), of.dtype))[at] = of[
                    indices[at] - self._begins[group]
                ]
        return batch

    def _read(self, group: int) -> dict[str, np.ndarray]:
        if group not in self._kept:
            file, number = self._groups[group]
            table = file.read_row_group(number, columns=self._wanted)
            whole = {name: table[name].to_numpy() for name in self._wanted}
            rows = {
                name: whole[of] if isinstance(of, str) else np.stack([whole[n] for n in of], axis=1)
                for name, of in self.columns.items()
            }
            size = sum(array.nbytes for array in rows.values())
            while self._kept and size * (len(self._kept) + 1) > self._most:
                self._kept.pop(next(iter(self._kept)))
            self._kept[group] = rows
        return self._kept[group]
