"""What a run leaves behind: in memory a `Result`, on disk a folder with a manifest and a row per measurement."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from bilax.environment import environment
from bilax.oracle import Counts
from bilax.types import PyTree

if TYPE_CHECKING:
    import pandas

MANIFEST, ROWS, ARRAYS = "manifest.json", "rows.jsonl", "arrays.npz"

Status = Literal["done", "diverged", "timeout", "interrupted"]


class History(Sequence[dict[str, Any]]):
    """Rows of measurements, the first at the starting point.

    >>> history = History([{"k": 0, "loss": 2.0}, {"k": 5, "loss": 1.0, "norm_v": 0.1}])
    >>> history[-1]["loss"], history.column("loss").tolist(), history.column("norm_v").tolist()
    (1.0, [2.0, 1.0], [nan, 0.1])
    """

    def __init__(self, rows: Sequence[dict[str, Any]] = ()):
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return History(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"History({len(self)} rows of {', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    def column(self, name: str) -> np.ndarray:
        """Return one quantity over the rows, NaN where it was not measured."""
        if name not in self.names:
            raise KeyError(f"no quantity {name!r} was measured; there are {', '.join(self.names)}.")
        return np.array([row.get(name, np.nan) for row in self.rows])

    def to_pandas(self) -> "pandas.DataFrame":
        return _pandas("to_pandas").DataFrame(self.rows)


@dataclass(frozen=True)
class Result:
    """The outcome of `bilax.solve`."""

    x: PyTree
    y: PyTree
    state: Any  # the algorithm's last state: .k .x .y and the method's own fields
    counts: Counts  # oracle calls made, in samples
    history: History
    status: Status
    message: str  # the status in words: why the run ended, and what to do about it
    seconds: float  # spent in the algorithm alone
    compile_seconds: float  # and in looking at eta before the first step
    eval_seconds: float  # spent in the metrics

    def __repr__(self) -> str:
        last = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.history[-1].items())
        return f"Result({self.status}: {self.message} {last})"


class Record:
    """One run on disk: a manifest, and a row per measurement, written as it happens."""

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder, self.manifest = Path(folder), manifest

    @classmethod
    def begin(cls, folder: Path, facts: Mapping[str, Any]) -> "Record":
        """Start a run in an empty folder; what an unfinished run left there is removed."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, ROWS, ARRAYS):
            (folder / name).unlink(missing_ok=True)
        record = cls(folder, {**facts, "status": "running", "started": _now(), **environment()})
        record._save()
        return record

    def row(self, row: Mapping[str, Any]) -> None:
        with (self.folder / ROWS).open("a") as file:
            file.write(json.dumps({name: _plain(value) for name, value in row.items()}) + "\n")

    def arrays(self, **arrays: np.ndarray) -> None:
        np.savez_compressed(self.folder / ARRAYS, **cast(Any, arrays))

    def end(self, **facts: Any) -> None:
        """Close the run: its status, message and times."""
        self.manifest |= {"finished": _now(), **facts}
        self._save()

    def _save(self) -> None:
        part = self.folder / f"{MANIFEST}.part"
        part.write_text(json.dumps(self.manifest, indent=2) + "\n")
        part.replace(self.folder / MANIFEST)  # at once: a reader never meets half a manifest


FINISHED = ("done", "timeout", "diverged")


def manifests(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """Return the manifest of every run below a folder, by the run's own folder."""
    found = {}
    for path in sorted(Path(folder).rglob(MANIFEST)):
        try:
            manifest = json.loads(path.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError):
            if (path.parent / ROWS).exists():
                raise ValueError(f"{path} is damaged; remove {path.parent} and run it again.") from None
            continue  # somebody else's file of that name
        if isinstance(manifest, dict) and "setting" in manifest:
            found[path.parent] = manifest
    return found


def load(folder: str | Path) -> "pandas.DataFrame":
    """Return all measurements of all runs below a folder as one table.

    Every row has the columns of its measurement and, of its run, ``run`` (the folder's name), ``task``, ``variant``,
    ``method``, ``setting``, ``seed`` and ``status``. A last line that was cut off is left out.
    """
    pandas = _pandas("load")
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `bilax run` and `bilax reproduce` make one.")
    rows = []
    for path, manifest in manifests(folder).items():
        facts = {name: manifest.get(name) for name in ("task", "variant", "method", "setting", "seed", "status")}
        rows += [{"run": path.name, **facts, **row} for row in read_rows(path)]
    if not rows:
        raise ValueError(f"{folder} holds no runs; `bilax run` and `bilax reproduce` write them.")
    return pandas.DataFrame(rows)


def read_rows(run: Path) -> list[dict[str, Any]]:
    path = run / ROWS
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(f"line {number} of {path} is damaged; remove {run} and run it again.") from None
    return rows


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """Return a value that JSON has: infinities and NaN become null."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{what} needs pandas: pip install 'bilax[tables]'.") from None
    return pandas
