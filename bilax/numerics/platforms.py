"""What is tuned to a CPU is done on a CPU alone."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import jax

from bilax.types import PyTree

# The compiler's highest level of optimisation, 3, takes longer and makes small steps slower. Where the user has asked
# JAX for almost no optimisation, as our tests do, that is respected.
_LEVEL = None if jax.config.read("jax_disable_most_optimizations") else {"xla_backend_optimization_level": 2}


def on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def kept_apart(tree: PyTree) -> PyTree:
    """Return the same; on a CPU, the compiler does not merge what comes before with what comes after."""
    return jax.lax.optimization_barrier(tree) if on_cpu() else tree


class Jitted:
    """A jitted function with the compiler's options of the platform, which is first asked for when it is called: JAX
    must not look for devices while it is imported."""

    def __init__(self, fn: Callable, **options: Any):
        self._for_cpu: Any
        self._for_others: Any
        self._for_cpu, self._for_others = jax.jit(fn, compiler_options=_LEVEL, **options), jax.jit(fn, **options)
        update_wrapper(self, fn)

    @property
    def chosen(self) -> Any:
        return self._for_cpu if on_cpu() else self._for_others

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.chosen(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        return self.chosen.lower(*arguments, **named)

    def clear_cache(self) -> None:
        self._for_cpu.clear_cache()
        self._for_others.clear_cache()
