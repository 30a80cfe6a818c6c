"""A step along a direction: by a number, or by an optimiser such as those of optax.

Every step size of x or y takes either. An optimiser is anything with ``init(params)`` and ``update(direction, state,
params)``; bilax does not import optax. A method's own schedule multiplies the update, so ``optax.sgd(0.1)`` acts
like the number 0.1, and a projection comes after the step.
"""

import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.numerics.tree import axpy, scale
from bilax.types import PyTree, Scalar


@jax.tree_util.register_pytree_with_keys_class
class Optimiser:
    """An optimiser as a hyper-parameter; a method makes one of whatever optimiser it is given.

    Two optimisers that were made alike are equal, so they share one compiled program. Rates that
    ``optax.inject_hyperparams`` has exposed are leaves: they may differ within a program, and be swept.
    """

    def __init__(self, transformation: Any, rates: Any = None):
        self.transformation = transformation
        self.rates = _rates_of(transformation) if rates is None else rates

    def init(self, z: PyTree) -> Any:
        return _with_rates(self.transformation.init(z), self.rates) if self.rates else self.transformation.init(z)

    def tree_flatten_with_keys(self):
        return ((jax.tree_util.GetAttrKey("rates"), self.rates),), _Alike(self.transformation, bool(self.rates))

    @classmethod
    def tree_unflatten(cls, alike: "_Alike", children):
        return cls(alike.transformation, *children)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimiser) and jax.tree.flatten(self) == jax.tree.flatten(other)

    def __hash__(self) -> int:
        return hash(jax.tree.structure(self))

    def __repr__(self) -> str:
        origin = getattr(self.transformation.update, "__module__", None)
        return f"an optimiser of {origin}" if origin else "an optimiser"


def fingerprint(value: Any) -> str:
    """Return a text that is the same, in other processes too, for functions of the same code and values.

    What cannot be looked into is told by its name alone.
    """
    if isinstance(value, Optimiser):
        rates = jax.tree.map(float, value.rates)
        return f"{fingerprint(value.transformation.init)} {fingerprint(value.transformation.update)} {rates}"
    try:
        made = _text(_how_made(value, True, frozenset()))
    except _Unknown:
        made = getattr(value, "__qualname__", type(value).__qualname__)
    return hashlib.sha256(made.encode()).hexdigest()[:16]


def _text(made: Any) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(_text(part) for part in made)})"
    if isinstance(made, types.CodeType):
        inside = [_text(part) if isinstance(part, types.CodeType) else repr(part) for part in made.co_consts]
        return f"{made.co_qualname} {made.co_code.hex()} {made.co_names} {inside}"
    if isinstance(made, _Same):
        kept = made.value
        if isinstance(kept, types.FunctionType):
            return f"{kept.__qualname__} {_text(kept.__code__)}"
        if isinstance(kept, jax.Array) and not isinstance(kept, Tracer):
            return hashlib.sha256(np.asarray(kept).tobytes()).hexdigest()
        return getattr(kept, "__qualname__", getattr(kept, "__name__", type(kept).__qualname__))
    return made.__qualname__ if isinstance(made, type) else repr(made)


Step: TypeAlias = Any  # a number, or anything with init and update


def is_optimiser(value: Any) -> bool:
    """Tell whether a value has the two functions of an optimiser, ``init`` and ``update``.

    >>> is_optimiser(0.1)
    False
    """
    functions = (getattr(value, name, None) for name in ("init", "update"))
    return not isinstance(value, type) and all(callable(function) for function in functions)


def start(step: Step, z: PyTree) -> Any:
    """Return what the optimiser of z remembers before the first step; () for a number.

    >>> start(0.1, jnp.zeros(2))
    ()
    """
    return step.init(z) if isinstance(step, Optimiser) else ()


def descend(
    step: Step,
    memory: Any,
    direction: PyTree,
    z: PyTree,
    project: Callable[[PyTree], PyTree] = lambda z: z,
    schedule: Scalar | None = None,
) -> tuple[PyTree, Any]:
    """Return z after a step against a direction, and what the optimiser remembers.

    Args:
      step: a number, or an `Optimiser`.
      memory: what the optimiser remembers, from `start` or from the step before.
      direction: a pytree like z, such as a gradient.
      z: the variable to move.
      project: onto the set that z is kept in; it comes last.
      schedule: multiplies the step.

    Returns:
      The new z and the new memory.

    >>> descend(0.5, (), jnp.ones(2), jnp.zeros(2))[0].tolist()
    [-0.5, -0.5]
    """
    if isinstance(step, Optimiser):
        update, memory = step.transformation.update(direction, memory, z)
    else:
        update = scale(-step, direction)
    return project(axpy(1 if schedule is None else schedule, update, z)), memory


def size_of(step: Step, why: str) -> Scalar:
    """Return a step as a number: the number itself, or how far an optimiser's first step goes for a gradient of 1.

    Some methods use their step size for more than a step; ``why`` says for what.
    """
    if not isinstance(step, Optimiser):
        return step
    try:
        return -step.transformation.update(jnp.ones(()), step.init(jnp.zeros(())), jnp.zeros(()))[0]
    except Exception as error:
        raise ValueError(
            f"the method uses this step size {why}, so it needs a number, or an optimiser that can take a step on a "
            f"single number; {step!r} cannot: {type(error).__name__}: {error}"
        ) from None


def _rates_of(transformation: Any) -> list[dict[str, Any]]:
    """Return the rates that ``optax.inject_hyperparams`` has exposed, one dictionary for each place in the state."""
    try:
        state = transformation.init(jnp.zeros(()))
    except Exception:  # it cannot start at a single number: its rates stay as they are
        return []
    places = [node for node in jax.tree.leaves(state, is_leaf=_has_rates) if _has_rates(node)]
    return [{name: _plain(rate) for name, rate in place.hyperparams.items()} for place in places]


def _with_rates(state: Any, rates: list[dict[str, Any]]) -> Any:
    left = iter(rates)

    def replace(node: Any) -> Any:
        if not _has_rates(node):
            return node
        new = next(left)
        cast = {name: jnp.asarray(new[name], old.dtype) for name, old in node.hyperparams.items()}
        return node._replace(hyperparams=cast)

    return jax.tree.map(replace, state, is_leaf=_has_rates)


def _has_rates(node: Any) -> bool:
    return hasattr(node, "hyperparams") and hasattr(node, "inner_state")


def _plain(rate: Any) -> Any:
    return rate if isinstance(rate, Tracer) else np.asarray(rate).item()


class _Alike:
    """A transformation that is equal to those made by the same code from the same values.

    Where something behind it could change unnoticed, it is equal to itself alone, as functions are to `jax.jit`.
    """

    def __init__(self, transformation: Any, rates_apart: bool):
        self.transformation = transformation
        parts = (transformation.init, transformation.update)
        try:
            self._made = tuple(_how_made(part, rates_apart, frozenset()) for part in parts)
        except _Unknown:
            self._made = _Same(transformation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self._made == other._made

    def __hash__(self) -> int:
        return hash(self._made)


class _Unknown(Exception):
    """A value that may change without becoming another object."""


class _Same:
    """An object that is equal to itself alone; it is kept, so that no other one takes its place in memory."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


_PLAIN = (int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)
_FIXED = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, jax.Array, type(jax.jit(abs)), jax.custom_jvp)


def _how_made(value: Any, rates_apart: bool, seen: frozenset[int]) -> Any:
    """Return something hashable that is equal for functions with the same code and the same values behind them."""
    if id(value) in seen:
        return "itself"
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, Tracer) and value.size < 1000:
        return value.shape, str(value.dtype), np.asarray(value).tobytes()
    if isinstance(value, _FIXED):
        return _Same(value)
    again = functools.partial(_how_made, rates_apart=rates_apart, seen=seen | {id(value)})
    if isinstance(value, types.FunctionType):
        injected = rates_apart and value.__qualname__.startswith("inject_hyperparams.")
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        behind = [again(cell.cell_contents) for name, cell in cells if not (injected and name == "numeric_hps")]
        used = [_global(value.__globals__[name], again) for name in _names(value.__code__) if name in value.__globals__]
        return value.__code__, again(value.__defaults__), again(value.__kwdefaults__), *behind, *used
    if isinstance(value, types.MethodType) and not hasattr(value.__self__, "__dict__"):
        return again(value.__func__), again(value.__self__)
    if isinstance(value, functools.partial):
        return again(value.func), again(value.args), again(value.keywords)
    if isinstance(value, dict):
        return dict, *((again(key), again(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), *(again(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), *(again(getattr(value, field.name)) for field in dataclasses.fields(value))
    raise _Unknown


def _global(value: Any, again: Callable[[Any], Any]) -> Any:
    """Functions of a module are told by who they are: another definition is another function."""
    return _Same(value) if callable(value) else again(value)


def _names(code: types.CodeType) -> list[str]:
    """Return the names that code and the functions inside it look up."""
    inside = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return [*code.co_names, *(name for part in inside for name in _names(part))]
