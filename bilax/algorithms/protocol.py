"""What an algorithm is to the rest of the library."""

from typing import Any, NamedTuple, Protocol

from bilax.numerics.tree import norm
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class Info(NamedTuple):
    """What a person wants to see of one step; nothing here is needed by the next one.

    Attributes:
      norm_v: norm of the estimate of grad Phi that moved x.
      norm_u: norm of the estimate of grad_y g that moved y.
      own: what the method tells beyond the norms, by name.
      calls: oracle calls beyond `cost`, because their number is not known before the step.

    What a method tells beyond the norms is read like them; asking for what it does not tell is an error:

    >>> Info(1.0, 2.0, {"residual": 0.5}).residual
    0.5
    >>> Info(1.0, 2.0).residual
    Traceback (most recent call last):
    AttributeError: the method tells nothing called 'residual'; it tells norm_v, norm_u.
    """

    norm_v: Scalar
    norm_u: Scalar
    own: dict[str, Any] = {}  # noqa: RUF012  # never changed
    calls: Counts = Counts()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.own:
            told = ", ".join(("norm_v", "norm_u", *self.own))
            raise AttributeError(f"the method tells nothing called {name!r}; it tells {told}.")
        return self.own[name]

    def told(self) -> dict[str, Any]:
        """Return all that is told, by name."""
        return {"norm_v": self.norm_v, "norm_u": self.norm_u, **self.own}


def info(v: PyTree, u: PyTree, calls: Counts | None = None, /, **own: Any) -> Info:
    """Return the info of a step that moved x along v and y along u."""
    return Info(norm(v), norm(u), own, Counts() if calls is None else calls)


class Draws(NamedTuple):
    """Samples drawn from the outer and from the inner data, per iteration, on average; one used twice counts once.

    Attributes:
      F: outer samples.
      G: inner samples.

    >>> from bilax.algorithms import MRBO
    >>> MRBO(Q=3, S=10).draws()
    Draws(F=10, G=50)
    """

    F: float
    G: float


class Algorithm(Protocol):
    """A pytree of hyper-parameters (see `bilax.hyperparameters`) with three pure methods.

    It may have four more: ``draws() -> Draws``, by which the history counts samples; ``passes() -> float``, how often
    it goes through all data, per iteration on average; ``init_cost(oracle) -> Counts``, the calls of `init` if it makes
    any; and ``period``, the number of iterations after which `cost` repeats, so that it need not be summed up one by
    one.
    """

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> Any:
        """Return the first state: a NamedTuple with k (an int32 array), x, y and what the next step needs."""
        ...

    def step(self, oracle: Oracle, key: Key, state: Any) -> tuple[Any, Info]:
        """Return the state of iteration k + 1."""
        ...

    def cost(self, k: int) -> Counts:
        """Return the oracle calls of iteration k, in samples."""
        ...
