"""Declare an algorithm's hyper-parameters once: default, meaning, allowed values, traced or static.

`hyperparameters` turns a class into a frozen dataclass that is a pytree. Its floats are leaves, so changing a
step size does not compile again and `jax.vmap` runs a grid of them as one program; integers are static.
"""

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

C = TypeVar("C", bound=type)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Auto:
    """``eta="auto"``: eta = fraction / L, with L measured by power iteration (see `bilax.hypergrad.gauge`)."""

    fraction: float = 0.9

    def __str__(self) -> str:
        return "auto"


Eta: TypeAlias = float | jax.Array | Auto | Literal["auto"]


def _field(default: Any, doc: str, check: Callable[[Any], Any], allowed: str, **metadata: Any) -> Any:
    static = metadata.pop("static", False)
    return dataclasses.field(
        default=default, metadata={"doc": doc, "check": check, "allowed": allowed, "static": static, **metadata}
    )


def positive(*, default: float, doc: str) -> Any:
    """A traced float above 0."""
    return _field(default, doc, lambda value: _real(value, lambda a: a > 0), "a finite number > 0")


def nonnegative(*, default: float, doc: str) -> Any:
    """A traced float of at least 0, such as a step size (0 freezes the variable)."""
    return _field(default, doc, lambda value: _real(value, lambda a: a >= 0), "a finite number >= 0")


def outer_step(*, default: float, doc: str = "outer step size") -> Any:
    """The step size of x: a traced float of at least 0 (0 freezes x)."""
    return nonnegative(default=default, doc=doc)


def inner_step(*, default: float, doc: str = "inner step size") -> Any:
    """The step size of y: a traced float of at least 0 (0 freezes y)."""
    return nonnegative(default=default, doc=doc)


def weight(*, default: float, doc: str) -> Any:
    """A traced float from 0 to 1."""
    return _field(default, doc, lambda value: _real(value, lambda a: (a >= 0) & (a <= 1)), "a number from 0 to 1")


def series_step(*, default: float | str, doc: str) -> Any:
    """The step eta of a Neumann series: a traced float above 0, or "auto"."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            return Auto() if value == "auto" else _refuse()
        return value if isinstance(value, Auto) else _real(value, lambda a: a > 0)

    return _field(default, doc, check, 'a finite number > 0, or "auto"', series_step=True)


def count(*, default: int, doc: str, at_least: int = 1) -> Any:
    """A static integer."""
    return _field(default, doc, lambda value: _integer(value, at_least), f"an integer >= {at_least}", static=True)


def batch_size(*, default: int, doc: str) -> Any:
    """A static integer that is the size of a batch."""
    return _field(default, doc, lambda value: _integer(value, 1), "an integer >= 1", static=True, batch_size=True)


def switch(*, default: bool, doc: str) -> Any:
    """A static yes or no."""
    return _field(
        default, doc, lambda v: v if isinstance(v, (bool, np.bool_)) else _refuse(), "True or False", static=True
    )


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(positive, nonnegative, outer_step, inner_step, weight, series_step, count, batch_size, switch),
)
def hyperparameters(cls: C) -> C:
    """Make ``cls`` a frozen dataclass, a pytree, and a check of its own values."""

    def __post_init__(self: Any) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                object.__setattr__(self, field.name, field.metadata["check"](value))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{cls.__name__}: {field.name} ({field.metadata['doc']}) must be "
                    f"{field.metadata['allowed']}; got {value!r}."
                ) from None

    cls.__post_init__ = __post_init__
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def names_of(kind: str, algorithm: Any) -> tuple[str, ...]:
    """Return the names of the hyper-parameters of one kind: "batch_size" or "series_step"."""
    if not dataclasses.is_dataclass(algorithm):
        return ()
    return tuple(field.name for field in dataclasses.fields(algorithm) if field.metadata.get(kind))


def _refuse() -> Any:
    raise ValueError


def _integer(value: Any, at_least: int) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    number = operator.index(value)
    return number if number >= at_least else _refuse()


def _real(value: Any, ok: Callable[[Any], Any]) -> Any:
    """Check what can be checked: numbers and concrete arrays; JAX's placeholders for leaves pass through."""
    if isinstance(value, (bool, np.bool_, str)):
        raise TypeError
    if isinstance(value, (int, float, np.number)):
        value = float(value)
        return value if math.isfinite(value) and ok(value) else _refuse()
    if isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, Tracer):
        if not jnp.issubdtype(value.dtype, jnp.number):
            raise TypeError
        if not (np.all(np.isfinite(value)) and np.all(ok(np.asarray(value)))):
            raise ValueError
        return jnp.asarray(value, float)
    if isinstance(value, (list, tuple, dict, type(None))):
        raise TypeError
    return value
