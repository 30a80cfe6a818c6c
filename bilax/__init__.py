"""bilax: bilevel optimization in JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

__version__ = "0.2.0"

# Name -> the module it lives in. Modules are imported when a name is first used, so that importing bilax
# (and `bilax --help`) does not import JAX. The classes of the algorithms are public, too: see bilax.algorithms.
_EXPORTS = {
    "Problem": "bilax.problem",
    "GaussNewton": "bilax.numerics.second_derivatives",
    "Oracle": "bilax.oracle",
    "Counts": "bilax.oracle",
    "make_oracle": "bilax.oracle",
    "hypergradient": "bilax.hypergrad",
    "solve": "bilax.running.solve",
    "iterate": "bilax.running.iterate",
    "sweep": "bilax.running.sweep",
    "Doubtful": "bilax.errors",
    "UnsafeEta": "bilax.errors",
    "Result": "bilax.results",
    "History": "bilax.results",
    "Info": "bilax.algorithms",
    "ALGORITHMS": "bilax.algorithms",
}
_MOVED = {  # since 0.2; to be removed in 0.3
    "keys": "bilax.sampling.keys",
    "sampler": "bilax.sampling.samplers",
    "runner": "bilax.running.solve",
    "loop": "bilax.running.loop",
    "sweeps": "bilax.running.sweep",
    "tree": "bilax.numerics.tree",
    "products": "bilax.numerics.matmuls",
}
_SUBPACKAGES = (
    "algorithms",
    "datasets",
    "hypergrad",
    "hyperparameters",
    "optimisers",
    "problems",
    "results",
    "settings",
    "sources",
    "sparse",
    "testing",
    "theory",
)

if TYPE_CHECKING:
    from bilax import (
        algorithms,
        datasets,
        hypergrad,
        hyperparameters,
        optimisers,
        problems,
        results,
        settings,
        sources,
        sparse,
        testing,
        theory,
    )
    from bilax.algorithms import *  # noqa: F403
    from bilax.algorithms import ALGORITHMS, Info
    from bilax.errors import Doubtful, UnsafeEta
    from bilax.hypergrad import hypergradient
    from bilax.numerics.second_derivatives import GaussNewton
    from bilax.oracle import Counts, Oracle, make_oracle
    from bilax.problem import Problem
    from bilax.results import History, Result
    from bilax.running.iterate import iterate
    from bilax.running.solve import solve
    from bilax.running.sweep import sweep


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"bilax.{name}")
    if name in _MOVED:
        warn(f"bilax.{name} has moved: use {_MOVED[name]}", DeprecationWarning, stacklevel=2)
        return import_module(_MOVED[name])
    if name == "__all__":
        return [*_EXPORTS, *_methods(), *_SUBPACKAGES, "__version__"]
    if not name.startswith("_") and name in _methods():
        return getattr(import_module("bilax.algorithms"), name)
    raise AttributeError(f"module 'bilax' has no attribute {name!r}")


def _methods() -> list[str]:
    return [cls.__name__ for cls in import_module("bilax.algorithms").ALGORITHMS.values()]


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
