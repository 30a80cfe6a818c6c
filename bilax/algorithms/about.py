"""What `bilax list` and the documentation say about a method, beside its code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scaling:
    """How a method is run to measure how its calls grow as the target gets smaller: the slopes of Table 1."""

    exponent: float | None  # the proven exponent of 1/eps; None if none is proven
    fixed: Callable[[float], dict[str, Any]]  # eps -> hyper-parameters that are not searched
    grid: Mapping[str, Sequence[float]]  # the step sizes and momentum constants that are searched
    steps: int  # at most
    sampler: str = "iid"
    others: Sequence[Callable[[float], dict[str, Any]]] = ()  # other constants of what `fixed` ties to eps


@dataclass(frozen=True)
class About:
    """Facts about a method. The formulas are for people; tests compare them with `cost` and `draws`."""

    name: str  # on the command line
    loops: str  # "single" or "double"
    reduces: str  # which estimates are variance-reduced, and how
    calls: dict[str, str]  # Table 1's column -> calls per iteration, on average, as a formula
    draws: dict[str, str]  # "F" or "G" -> samples drawn per iteration, on average
    complexity: str  # oracle calls to |grad Phi|^2 <= eps that its paper proves
    reference: str
    random: dict[str, str] = field(default_factory=dict)  # part of `calls` that a run only knows afterwards
    scaling: Scaling | None = None  # None: the method is not in Table 1
