"""What a run leaves behind: in memory a `Result`, on disk what `load` reads."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from bilax.oracle import Counts
from bilax.storage import checkpoints
from bilax.storage.runs import manifests, read_rows
from bilax.storage.trees import described, rebuilt
from bilax.types import PyTree

if TYPE_CHECKING:
    import pandas

Status = Literal["done", "converged", "diverged", "timeout", "interrupted", "failed", "stopped"]


class History(Sequence[dict[str, Any]]):
    """Rows of measurements, the first at the starting point: a sequence of dictionaries.

    Each row has ``k``, ``seconds``, ``samples``, the losses, the norm of the inner gradient, all that the method tells
    of its last step, and the metrics of the problem.

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
        """The quantities that were measured in any row."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    def column(self, name: str) -> np.ndarray:
        """Return one quantity over the rows, NaN where it was not measured."""
        if name not in self.names:
            raise KeyError(f"no quantity {name!r} was measured; there are {', '.join(self.names)}.")
        return np.array([row.get(name, np.nan) for row in self.rows])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a table of pandas, which must be installed."""
        return _pandas("to_pandas").DataFrame(self.rows)


@dataclass(frozen=True)
class Result:
    """The outcome of `bilax.solve`.

    Attributes:
      x: the outer variable, a pytree like x0.
      y: the inner variable, a pytree like y0.
      state: the algorithm's last state: ``.k``, ``.x``, ``.y`` and the method's own fields; ``solve(..., state=...)``
        goes on from it.
      counts: oracle calls made, in samples.
      history: rows of measurements.
      status: "done", "converged", "timeout", "stopped", "interrupted", "diverged" or "failed".
      message: the status in words: why the run ended, and what to do about it.
      warnings: why the result should not be trusted as it is; empty if nothing was found.
      seconds: spent in the algorithm alone.
      compile_seconds: spent in compiling, and in looking at eta before the first step.
      eval_seconds: spent in the metrics.

    >>> import bilax
    >>> result = bilax.solve(bilax.problems.quadratic().problem, bilax.MRBO(gamma=0.05, lam=0.5), steps=10)
    >>> result.status, int(result.state.k), result.counts.F, len(result.history), result.warnings
    ('done', 10, 1280, 11, ())
    """

    x: PyTree
    y: PyTree
    state: Any
    counts: Counts
    history: History
    status: Status
    message: str
    warnings: tuple[str, ...]
    seconds: float
    compile_seconds: float
    eval_seconds: float

    @property
    def carried(self) -> PyTree:
        """What the losses read at the end, such as batch statistics, if the problem has any of it."""
        return _carried(self.state)

    def save(self, path: str | Path) -> None:
        """Write all of it to one file, which `bilax.results.load` reads back bit for bit."""
        trees = {"x": self.x, "y": self.y, "state": self.state}
        names = ("status", "message", "seconds", "compile_seconds", "eval_seconds")
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        facts |= {"warnings": self.warnings, "counts": asdict(self.counts), "history": self.history.rows}
        checkpoints.save(Path(path), trees, facts | {"result": {name: described(tree) for name, tree in trees.items()}})

    def __repr__(self) -> str:
        last = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.history[-1].items())
        return f"Result({self.status}: {self.message} {last})"


class Outcome(NamedTuple):
    """How runs without a clock ended, as arrays that can be traced: `iterate` and `sweep` return it.

    Attributes:
      code: 0 if all steps were taken, 1 if one gave numbers that are not finite.
      steps: steps before the first one that gave such numbers.

    >>> print(Outcome(np.array([0, 1]), np.array([50, 7])))
    ['done' 'diverged']
    """

    code: Any
    steps: Any

    @property
    def names(self) -> np.ndarray:
        """The statuses in words."""
        return np.array(["done", "diverged"])[np.asarray(self.code)]

    def __str__(self) -> str:
        return str(self.names)


class Iterates(NamedTuple):
    """What `iterate` and `sweep` return; for its shapes, see there.

    Attributes:
      state: the last state.
      info: the `Info` of every step.
      status: how it ended.
    """

    state: Any
    info: Any
    status: Outcome

    @property
    def carried(self) -> PyTree:
        """What the losses read at the end, such as batch statistics, if the problem has any of it."""
        return _carried(self.state)


def load(path: str | Path) -> Any:
    """Return the `Result` in a file that `Result.save` wrote, or the rows of all runs below a folder as a table.

    Every row of the table has the columns of its measurement and, of its run, ``run`` (the folder's name), ``task``,
    ``variant``, ``method``, ``setting``, ``seed`` and ``status``. A last line that was cut off is left out.

    Args:
      path: a file, or a folder such as ``bilax-results``, which `bilax run` and `bilax reproduce` make.

    Returns:
      A `Result`, or a ``pandas.DataFrame``.

    >>> import bilax, tempfile
    >>> result = bilax.solve(bilax.problems.quadratic().problem, bilax.MRBO(), steps=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/result")
    ...     again = load(f"{folder}/result")
    >>> again.status, bool((again.x == result.x).all())
    ('done', True)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"give the name of a folder, or of a file that Result.save wrote; got {path!r}.")
    if Path(path).is_file():
        return _saved(Path(path))
    folder = Path(path)
    pandas = _pandas("load")
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `bilax run` and `bilax reproduce` make one.")
    rows = []
    for path, manifest in manifests(folder).items():
        facts = {name: manifest.get(name) for name in ("task", "variant", "method", "setting", "seed", "status")}
        rows += [{"run": path.name, **facts, **row} for row in read_rows(path)]
    if not rows:
        raise ValueError(f"{folder} holds no runs; `bilax run` and `bilax reproduce` write them.")
    return pandas.DataFrame(rows)


def _saved(path: Path) -> Result:
    leaves, facts = checkpoints.load(path)
    if "result" not in facts:
        raise ValueError(f"{path} is a checkpoint of a run, not a result: give its folder to solve as checkpoint_dir.")
    arrays: list[Any] = [jnp.array(leaf) for leaf in leaves]
    shapes = facts.pop("result")
    trees = {name: rebuilt(shapes[name], arrays) for name in sorted(shapes)}  # the order of jax.tree.leaves
    counts, history, warnings = (facts.pop(name) for name in ("counts", "history", "warnings"))
    return Result(counts=Counts(**counts), history=History(history), warnings=tuple(warnings), **trees, **facts)


def _carried(state: Any) -> PyTree:
    return getattr(getattr(state, "memory", None), "carried", None)


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{what} needs pandas: pip install 'bilax[tables]'.") from None
    return pandas
