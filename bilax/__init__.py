"""bilax: bilevel optimization in JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Name -> the module it lives in. Modules are imported when a name is first used, so that importing bilax
# (and `bilax --help`) does not import JAX.
_EXPORTS = {
    "Problem": "bilax.problem",
    "Oracle": "bilax.oracle",
    "Counts": "bilax.oracle",
    "make_oracle": "bilax.oracle",
    "hypergradient": "bilax.hypergrad",
    "solve": "bilax.runner",
    "iterate": "bilax.runner",
    "sweep": "bilax.sweeps",
    "UnsafeEta": "bilax.unsafe_eta",
    "Result": "bilax.results",
    "History": "bilax.results",
    "Info": "bilax.algorithms",
    "ALGORITHMS": "bilax.algorithms",
    **dict.fromkeys(
        (
            "AIDCG",
            "AIDFP",
            "BSA",
            "MRBO",
            "MRBOD",
            "MSTSA",
            "RSVRB",
            "Reverse",
            "SEMA",
            "STABLE",
            "SUSTAIN",
            "StocBiO",
            "TTSA",
            "VRBO",
        ),
        "bilax.algorithms",
    ),
}
_SUBPACKAGES = ("algorithms", "datasets", "hypergrad", "problems", "results", "sparse", "testing", "theory")

__all__ = [*_EXPORTS, *_SUBPACKAGES, "__version__"]

if TYPE_CHECKING:
    from bilax import algorithms, datasets, hypergrad, problems, results, sparse, testing, theory
    from bilax.algorithms import (
        AIDCG,
        AIDFP,
        ALGORITHMS,
        BSA,
        MRBO,
        MRBOD,
        MSTSA,
        RSVRB,
        SEMA,
        STABLE,
        SUSTAIN,
        TTSA,
        VRBO,
        Info,
        Reverse,
        StocBiO,
    )
    from bilax.hypergrad import hypergradient
    from bilax.oracle import Counts, Oracle, make_oracle
    from bilax.problem import Problem
    from bilax.results import History, Result
    from bilax.runner import iterate, solve
    from bilax.sweeps import sweep
    from bilax.unsafe_eta import UnsafeEta


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"bilax.{name}")
    raise AttributeError(f"module 'bilax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
