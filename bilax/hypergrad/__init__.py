"""Estimators of the hypergradient, the gradient of Phi(x) = f(x, y*(x)).

How far each is from the truth on a quadratic, where it is known:

>>> from bilax.problems import quadratic
>>> q = quadratic()
>>> x = q.problem.x0
>>> for method in (Exact(), Neumann(Q=60), FixedPoint(N=60), ConjugateGradient(N=4), Subspace(N=20), Differences()):
...     error = abs(hypergradient(q.problem, x, q.y_star(x), method).value - q.gradient(x)).max()
...     print(f"{type(method).__name__:<18} {'good' if error < 1e-4 else 'biased'}")
Exact              good
Neumann            good
FixedPoint         good
ConjugateGradient  good
Subspace           good
Differences        biased
"""

from bilax.hypergrad.estimators import (
    SAMA,
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
    "SAMA",
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
