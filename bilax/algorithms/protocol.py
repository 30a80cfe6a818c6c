"""What an algorithm is to the rest of the library."""

from typing import Any, NamedTuple, Protocol

from bilax.hypergrad import gauge, neumann
from bilax.hypergrad.gauge import Gauge
from bilax.hypergrad.neumann import Estimate
from bilax.oracle import Counts, Oracle
from bilax.tree import norm
from bilax.types import Key, PyTree, Scalar


class Info(NamedTuple):
    """What a person wants to see of one step; nothing here is needed by the next one."""

    norm_v: Scalar  # norm of the estimate of grad Phi that moved x
    norm_u: Scalar  # norm of the estimate of grad_y g that moved y
    eta: Scalar = 0.0  # step of the Neumann series, where there is one
    growth: Scalar = 0.0  # largest growth of its residual from one term to the next, at most 1 for a safe eta
    diverging: Scalar = False  # the residual grew: eta is too large
    residual: Scalar = 0.0  # |r_Q| / |r_0|: bounds what is left of the linear system H w = grad_y F
    HV: Scalar = 0  # calls beyond `cost`, whose number is not known beforehand: spent on measuring L for
    JV: Scalar = 0  # eta="auto", on a series of random length, on matrices of the problem's size


def info_of(v: PyTree, u: PyTree, estimate: Estimate, eta: Scalar, L: Gauge | None, HV: Scalar = 0) -> Info:
    """Return the info of a step that moved x along v, y along u, and used a series with step eta."""
    grew = neumann.grew(estimate.growth)
    return Info(norm(v), norm(u), eta, estimate.growth, grew, estimate.residual, gauge.probes(L) + HV)


class Algorithm(Protocol):
    """A frozen dataclass of hyper-parameters (see `bilax.hyperparameters`) with three pure methods."""

    def init(self, x0: PyTree, y0: PyTree) -> Any:
        """Return the first state: a NamedTuple with k (an int32 array), x, y and what the next step needs."""
        ...

    def step(self, oracle: Oracle, key: Key, state: Any) -> tuple[Any, Info]:
        """Return the state of iteration k + 1."""
        ...

    def cost(self, k: int) -> Counts:
        """Return the oracle calls of iteration k, in samples."""
        ...
