"""Estimators of the hypergradient, the gradient of Phi(x) = f(x, y*(x))."""

from bilax.hypergrad.estimators import (
    ConjugateGradient,
    Exact,
    FixedPoint,
    Neumann,
    RandomNeumann,
    Unrolled,
    hypergradient,
)
from bilax.hypergrad.neumann import Estimate

__all__ = [
    "ConjugateGradient",
    "Estimate",
    "Exact",
    "FixedPoint",
    "Neumann",
    "RandomNeumann",
    "Unrolled",
    "hypergradient",
]
