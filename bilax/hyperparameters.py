"""Declare an algorithm's hyper-parameters once: default, meaning, allowed values, traced or static.

`hyperparameters` turns a class into a frozen dataclass that is a pytree. Its floats are leaves, so changing a
step size does not compile again and `jax.vmap` runs a grid of them as one program; integers are static.
"""

import dataclasses
import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.optimisers import Optimiser, is_optimiser

C = TypeVar("C", bound=type)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Auto:
    """``eta="auto"``: eta = fraction / L, with L measured by power iteration (see `bilax.hypergrad.auto_eta`)."""

    fraction: float = 0.9

    def __repr__(self) -> str:
        return "'auto'"


Eta: TypeAlias = Any  # a number above 0 or "auto"; inside a step always a number


def _field(default: Any, doc: str, check: Callable[[Any], Any], allowed: str, **metadata: Any) -> Any:
    static = metadata.pop("static", False)
    return dataclasses.field(
        default=default, metadata={"doc": doc, "check": check, "allowed": allowed, "static": static, **metadata}
    )


def positive(*, default: float, doc: str) -> Any:
    """Declare a traced float above 0: its ``default``, and in ``doc`` its meaning."""
    return _field(default, doc, lambda value: _real(value, lambda a: a > 0), "a finite number > 0")


def nonnegative(*, default: float, doc: str) -> Any:
    """Declare a traced float of at least 0, such as a step size (0 freezes the variable)."""
    return _field(default, doc, lambda value: _real(value, lambda a: a >= 0), "a finite number >= 0")


def outer_step(*, default: float, doc: str = "outer step size") -> Any:
    """Declare the step of x: a traced float of at least 0 (0 freezes x), or an optimiser."""
    return _step(default, doc, outer_step=True)


def inner_step(*, default: float, doc: str = "inner step size") -> Any:
    """Declare the step of y: a traced float of at least 0 (0 freezes y), or an optimiser."""
    return _step(default, doc, inner_step=True)


def _step(default: float, doc: str, **kind: bool) -> Any:
    def check(value: Any) -> Any:
        if isinstance(value, Optimiser):
            return value
        return Optimiser(value) if is_optimiser(value) else _real(value, lambda a: a >= 0)

    return _field(default, doc, check, "a finite number >= 0, or an optimiser such as optax.adam(1e-2)", **kind)


def weight(*, default: float, doc: str) -> Any:
    """Declare a traced float from 0 to 1, such as a weight of momentum."""
    return _field(default, doc, lambda value: _real(value, lambda a: (a >= 0) & (a <= 1)), "a number from 0 to 1")


def series_step(
    *,
    default: float | str,
    doc: str,
    of: str = "the Neumann series",
    batch: Callable[[Any], int] = lambda algorithm: algorithm.S,
) -> Any:
    """Declare a step that must stay below 1/L, such as eta of a Neumann series: a traced float above 0, or "auto".

    For "auto" the loop measures L on batches of the size ``batch(algorithm)`` and hands the method a number. ``of``
    names what the step belongs to, in warnings.
    """

    def check(value: Any) -> Any:
        if isinstance(value, str):
            return Auto() if value == "auto" else _refuse()
        return value if isinstance(value, Auto) else _real(value, lambda a: a > 0)

    return _field(default, doc, check, 'a finite number > 0, or "auto"', series_step=True, batch=batch, of=of)


def count(*, default: int, doc: str, at_least: int = 1) -> Any:
    """Declare a static integer, ``at_least`` so large. Another value is another compiled program."""
    return _field(default, doc, lambda value: _integer(value, at_least), f"an integer >= {at_least}", static=True)


def choice(*, default: int, among: tuple[int, ...], doc: str) -> Any:
    """Declare a static integer, one of those in ``among``."""

    def check(value: Any) -> int:
        return value if _integer(value, 1) in among else _refuse()

    return _field(default, doc, check, f"one of {', '.join(map(str, among))}", static=True)


def batch_size(*, default: int, doc: str) -> Any:
    """Declare a static integer that is the size of a batch."""
    return _field(default, doc, lambda value: _integer(value, 1), "an integer >= 1", static=True, batch_size=True)


def switch(*, default: bool, doc: str) -> Any:
    """Declare a static yes or no."""
    return _field(
        default, doc, lambda v: v if isinstance(v, (bool, np.bool_)) else _refuse(), "True or False", static=True
    )


def anything(*, default: Any, doc: str) -> Any:
    """Declare a pytree of arrays, or None."""
    return _field(default, doc, lambda value: value, "a pytree of arrays, or None")


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(
        positive,
        nonnegative,
        outer_step,
        inner_step,
        weight,
        series_step,
        count,
        choice,
        batch_size,
        switch,
        anything,
    ),
)
def hyperparameters(cls: C) -> C:
    """Make ``cls`` a frozen dataclass that is a pytree and checks its own values.

    Args:
      cls: a class whose fields are declared by the functions of this module, each with its default and its meaning.

    Returns:
      The class. Its docstring, if it has one, gets what is declared of every field.

    >>> @hyperparameters
    ... class Method:
    ...     "A method."
    ...     gamma: float = outer_step(default=0.1)
    ...     S: int = batch_size(default=64, doc="size of every batch")
    >>> jax.tree.leaves(Method(gamma=0.5))
    [0.5]
    >>> print(Method.__doc__)
    A method.
    <BLANKLINE>
    Args:
      gamma: outer step size; a finite number >= 0, or an optimiser such as optax.adam(1e-2). Default 0.1.
      S: size of every batch; an integer >= 1. Default 64.
    >>> Method(S=0)
    Traceback (most recent call last):
    ValueError: Method: S (size of every batch) must be an integer >= 1; got 0.
    """
    written = cls.__doc__

    def __post_init__(self: Any) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                object.__setattr__(self, field.name, field.metadata["check"](value))
            except (TypeError, ValueError, OverflowError):
                most = (
                    " (and at most 2147483647)"
                    if field.metadata["static"] and isinstance(value, int) and value >= 2**31
                    else ""
                )
                raise ValueError(
                    f"{cls.__name__}: {field.name} ({field.metadata['doc']}) must be "
                    f"{field.metadata['allowed']}{most}; got {value!r}."
                ) from None

    cls.__post_init__ = __post_init__
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)
    if written is not None:
        made.__doc__ = _with_arguments(written, fields)
    traced = tuple(field.name for field in fields if not field.metadata["static"])
    static = tuple(field.name for field in fields if field.metadata["static"])

    def flatten(self: Any) -> tuple[tuple, tuple]:
        keyed = tuple((jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in traced)
        return keyed, tuple(getattr(self, name) for name in static)

    def unflatten(aux: tuple, children: Any) -> Any:
        # Unchecked: JAX puts placeholders of its own where the leaves were.
        new = object.__new__(made)
        for name, value in (*zip(static, aux, strict=True), *zip(traced, children, strict=True)):
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    if hasattr(made, "step") and any(field.metadata.get("series_step") for field in fields):
        made.step = _alone(made.step)
    return made


def _with_arguments(doc: str, fields: tuple[dataclasses.Field, ...]) -> str:
    """Return a docstring with what is declared of every field, in front of its example."""
    text, mark, example = inspect.cleandoc(doc).partition("\n>>>")
    told = [f"  {f.name}: {f.metadata['doc']}; {f.metadata['allowed']}. Default {f.default!r}." for f in fields]
    return "\n".join([text.rstrip(), "", "Args:", *told]) + (f"\n{mark}{example}" if mark else "")


def _alone(step: Callable) -> Callable:
    """Let a step be called outside the loop, where nothing else replaces "auto" by a number: measure L at each call."""

    @functools.wraps(step)
    def call(self: Any, oracle: Any, key: Any, state: Any) -> Any:
        if not any(isinstance(getattr(self, name), Auto) for name in names_of("series_step", self)):
            return step(self, oracle, key, state)
        from bilax.running import loop

        return loop.take_step(oracle, self, None, state, loop.fresh_memory(self, state), key)[::2]

    return call


def names_of(kind: str, algorithm: Any) -> tuple[str, ...]:
    """Return the names of the hyper-parameters of one kind: "batch_size", "series_step", "outer_step", "inner_step".

    >>> from bilax.algorithms import VRBO
    >>> names_of("batch_size", VRBO())
    ('S1', 'S2')
    """
    if not dataclasses.is_dataclass(algorithm):
        return ()
    return tuple(field.name for field in dataclasses.fields(algorithm) if field.metadata.get(kind))


def with_values(algorithm: Any, **values: Any) -> Any:
    """Return the algorithm with other values, those that the loop has measured, without checking them."""
    new = object.__new__(type(algorithm))
    new.__dict__.update(vars(algorithm) | values)
    return new


def _refuse() -> Any:
    raise ValueError


def _integer(value: Any, at_least: int) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    number = operator.index(value)
    return number if at_least <= number < 2**31 else _refuse()


def _real(value: Any, ok: Callable[[Any], Any]) -> Any:
    """Check numbers and concrete arrays; traced values pass."""
    if isinstance(value, Tracer):
        return value
    if isinstance(value, (np.ndarray, jax.Array, np.generic)) and np.ndim(value) > 0:
        array = np.asarray(value)
        if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
            raise TypeError
        if array.size == 0 or not (np.all(np.isfinite(array)) and np.all(ok(array))):
            raise ValueError
        return jnp.asarray(value, float)
    if isinstance(value, (np.ndarray, jax.Array, np.generic)):
        value = np.asarray(value).item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value) if math.isfinite(value) and ok(value) else _refuse()
