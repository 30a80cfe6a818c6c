"""What `bilax list` and the documentation say about a method, beside its code."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class About:
    """Facts about a method. The formulas use the names of its hyper-parameters; tests evaluate them."""

    loops: str  # "single" or "double"
    reduces: str  # which estimates are variance-reduced, and how
    calls: dict[str, str]  # Table 1's column -> calls per iteration, on average, as a formula
    draws: dict[str, str]  # "F" or "G" -> samples drawn per iteration, on average (a batch used twice counts once)
    complexity: str  # oracle calls to |grad Phi|^2 <= eps that its paper proves
    reference: str
    random: dict[str, str] = field(default_factory=dict)  # part of `calls` that a run only knows afterwards
