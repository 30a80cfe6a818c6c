"""The functions of a problem, as a compiled program takes them: each knows what it is given of what was drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax.numerics.second_derivatives import Damped, GaussNewton, Products
from bilax.types import PyTree

Loss = Callable[[PyTree, PyTree, PyTree], jax.Array]
Projection = Callable[[PyTree], PyTree]
SecondDerivatives = Callable[[Loss], Products]


def unconstrained(z: PyTree) -> PyTree:
    """The projection onto the whole space."""
    return z


@dataclass(frozen=True)
class Mask:
    """Which parts of a variable are held as they are; a pytree of True and False, in a form that can be hashed."""

    name: str
    structure: Any
    held: tuple[bool, ...]

    @classmethod
    def of(cls, name: str, tree: PyTree) -> "Mask | None":
        leaves, structure = jax.tree.flatten(tree)
        return cls(name, structure, tuple(bool(leaf) for leaf in leaves)) if any(leaves) else None

    def __call__(self, z: PyTree, hold: Callable[[jax.Array], jax.Array] = jax.lax.stop_gradient) -> PyTree:
        try:
            held = jax.tree.broadcast(self.structure.unflatten(self.held), z)
        except ValueError as error:
            raise TypeError(f"{self.name} must be a pytree like the variable, or like the top of it: {error}") from None
        return jax.tree.map(lambda held, leaf: hold(leaf) if held else leaf, held, z)

    def off(self, tangent: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """Return the part of a direction along which y can move, without those that are held."""
        return lambda x, y, zeta, r: tangent(x, y, zeta, self(r, jnp.zeros_like))


@dataclass(frozen=True)
class Held:
    """A function of x, y and more, without derivatives along the parts that are held."""

    of: Callable[..., PyTree]
    x: Mask | None
    y: Mask | None

    def __call__(self, x: PyTree, y: PyTree, *others: Any) -> PyTree:
        return self.of(x if self.x is None else self.x(x), y if self.y is None else self.y(y), *others)


class Drawn(NamedTuple):
    """A batch with random bits for each of its samples, of a loss that takes a key."""

    batch: PyTree
    bits: jax.Array


@dataclass(frozen=True)
class Arguments:
    """What a loss is given of what was drawn: the batch, prepared, or None; and the others that it asks for by name."""

    prepare: Callable[[PyTree], PyTree] | None = None
    others: tuple[str, ...] = ()
    empty: bool = False
    carried: PyTree = field(default=None, compare=False)  # as it is at this step

    def __call__(self, draw: PyTree) -> tuple[Any, ...]:
        batch, bits = draw if isinstance(draw, Drawn) else (draw, None)
        if self.empty:
            batch = None
        elif self.prepare is not None:
            batch = self.prepare(batch)
        given = {"carried": self.carried}
        if bits is not None and "key" in self.others:
            given["key"] = jax.random.wrap_key_data(bits[0], impl="threefry2x32")
        return batch, *(given.get(name) for name in self.others)


@dataclass(frozen=True)
class OfDraw:
    """A loss as one of what is drawn; equal to another one of the same functions."""

    loss: Callable[..., jax.Array]
    arguments: Arguments

    def __call__(self, x: PyTree, y: PyTree, draw: PyTree) -> jax.Array:
        return self.loss(x, y, *self.arguments(draw))


@dataclass(frozen=True)
class Carry:
    """How what is carried changes, once in a step."""

    function: Callable[..., PyTree]
    arguments: Arguments
    batch: int  # samples

    def __call__(self, carried: PyTree, x: PyTree, y: PyTree, draw: PyTree) -> PyTree:
        return self.function(carried, x, y, *self.arguments(draw))


class Functions(NamedTuple):
    """The parts of a problem that are code, not data: the static part of a compiled program."""

    F: Loss
    G: Loss
    project_x: Projection
    project_y: Projection
    second_derivatives: SecondDerivatives
    keyed: tuple[bool, bool] = (False, False)  # whether F and G take a key
    start_y: Callable[[PyTree], PyTree] | None = None  # where y starts anew, in every step
    paired: bool = False  # whether all batches of a step are of the same samples
    frozen_y: Mask | None = None
    carry: Carry | None = None

    def reading(self, carried: PyTree) -> "Functions":
        """Return the same functions, whose losses are given these numbers."""
        if self.carry is None:
            return self
        F, G, way = (_reading(part, carried) for part in (self.F, self.G, self.second_derivatives))
        return self._replace(F=F, G=G, second_derivatives=way)


def _reading(part: Any, carried: PyTree) -> Any:
    if isinstance(part, Arguments):
        return replace(part, carried=carried)
    if not isinstance(part, (OfDraw, GaussNewton, Damped)):
        return part
    return replace(part, **{one.name: _reading(getattr(part, one.name), carried) for one in fields(part)})
