"""Estimators of the hypergradient, the gradient of Phi(x) = f(x, y*(x))."""

from bilax.hypergrad.estimators import (
    ConjugateGradient,
    Differences,
    Exact,
    FixedPoint,
    Neumann,
    Nystrom,
    RandomNeumann,
    Subspace,
    Unrolled,
    hypergradient,
)
from bilax.hypergrad.neumann import Estimate

__all__ = [
    "ConjugateGradient",
    "Differences",
    "Estimate",
    "Exact",
    "FixedPoint",
    "Neumann",
    "Nystrom",
    "RandomNeumann",
    "Subspace",
    "Unrolled",
    "hypergradient",
]
