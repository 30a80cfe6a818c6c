"""What an algorithm is to the rest of the library."""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar


class Info(NamedTuple):
    """What a person wants to see of one step; nothing here is needed by the next one."""

    norm_v: Scalar  # norm of the estimate of grad Phi that moved x
    norm_u: Scalar  # norm of the estimate of grad_y g that moved y
    eta: Scalar = jnp.nan  # step of the Neumann series, where there is one
    growth: Scalar = 0.0  # largest growth of its residual from one term to the next, at most 1 for a safe eta
    diverging: Scalar = False  # the residual grew: eta is too large
    probes: Scalar = 0  # Hessian-vector products of samples spent on eta="auto", beyond `cost`


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
