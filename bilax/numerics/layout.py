"""Variables, kept inside of a loop in the order in which products read them.

A loss with weights W (features, classes) multiplies a batch with W, and its gradient comes out as one of W. Both are
fastest class by class (see `matmuls`), so each product would turn W before and its result after. Instead, W is turned
once, when the loop begins, and turned back when it ends: `ways` finds out which leaves of y want that, `Turned` stands
for such a leaf, and the loss is given what it expects.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
from jax.extend.core import Jaxpr, Literal
from jax.extend.core.primitives import dot_general_p, reshape_p, transpose_p

from bilax.numerics.matmuls import written_out
from bilax.types import PyTree

Reordering: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # its kind, what it needs, what undoing it needs
Way: TypeAlias = tuple[Reordering, ...]  # from a leaf to the matrix (columns, contracted) that products read

NARROW = 64  # columns at most


@partial(jax.tree_util.register_dataclass, data_fields=["array"], meta_fields=["way"])
@dataclass(frozen=True)
class Turned:
    """A leaf in the order of its way."""

    array: Any
    way: Way

    @classmethod
    def of(cls, leaf: Any, way: Way) -> "Turned":
        """Turn a leaf, or a stack of such leaves along leading axes."""
        ndim = len(way[0][2]) if way else leaf.ndim
        return cls(_reorder(leaf, [(kind, there) for kind, there, _ in way], ndim), way)

    def back(self) -> Any:
        ndim = len(self.way[-1][1]) if self.way else self.array.ndim
        return _reorder(self.array, [(kind, back) for kind, _, back in reversed(self.way)], ndim)


def _reorder(leaf: Any, reorderings: Sequence[tuple[str, tuple[int, ...]]], ndim: int) -> Any:
    stack = leaf.shape[: leaf.ndim - ndim]
    for kind, how in reorderings:
        if kind == "reshape":
            leaf = leaf.reshape(stack + how)
        else:
            leaf = leaf.transpose((*range(len(stack)), *(len(stack) + axis for axis in how)))
    return leaf


def is_turned(node: Any) -> bool:
    return isinstance(node, Turned)


def turn(tree: PyTree, like: PyTree) -> PyTree:
    """Return a tree whose leaves are turned where those of ``like`` are."""
    marks, structure = jax.tree.flatten(like, is_leaf=is_turned)
    leaves = jax.tree.leaves(tree)
    both = zip(leaves, marks, strict=True)
    return structure.unflatten([Turned.of(leaf, mark.way) if is_turned(mark) else leaf for leaf, mark in both])


def turn_back(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda node: node.back() if is_turned(node) else node, tree, is_leaf=is_turned)


@dataclass(frozen=True)
class OfTurned:
    """A loss ``(x, y, batch)``, given turned leaves. Equal to another one of the same loss."""

    loss: Callable[..., Any]

    def __call__(self, x: PyTree, y: PyTree, batch: PyTree) -> Any:
        return self.loss(x, turn_back(y), batch)


@dataclass(frozen=True)
class OntoTurned:
    """A projection, likewise."""

    project: Callable[[PyTree], PyTree]

    def __call__(self, y: PyTree) -> PyTree:
        return turn(self.project(turn_back(y)), like=y)


def ways(loss: Callable[..., Any], x: PyTree, y: PyTree, batch: PyTree) -> list[Way]:
    """Return for each leaf of y how products want it turned; ``()`` if they do not, or not all in the same way."""
    closed = jax.make_jaxpr(loss)(x, y, batch)
    leaves, (before, count) = jax.tree.leaves((x, y, batch)), (len(jax.tree.leaves(x)), len(jax.tree.leaves(y)))
    if closed.effects or not any(leaf.ndim for leaf in jax.tree.leaves(y)):
        return [()] * count
    flat = jax.make_jaxpr(lambda *leaves: written_out(closed, leaves))(*leaves)
    wanted = _wanted(flat.jaxpr, range(before, before + count))
    return [next(iter(found)) if len(found) == 1 else () for found in wanted]


def _wanted(jaxpr: Jaxpr, inputs: Sequence[int]) -> list[set[Way]]:
    """Return the ways that products ask for, of each of these inputs."""
    wanted: list[set[Way]] = [set() for _ in inputs]
    came: dict[Any, tuple[int, Way]] = {jaxpr.invars[i]: (n, ()) for n, i in enumerate(inputs)}
    for eqn in jaxpr.eqns:
        if eqn.primitive in (reshape_p, transpose_p) and eqn.invars[0] in came:
            n, way = came[eqn.invars[0]]
            came[eqn.outvars[0]] = n, (*way, _reordering(eqn))
        elif eqn.primitive is dot_general_p:
            contracted, batched = eqn.params["dimension_numbers"]
            for side, factor in enumerate(eqn.invars):
                if isinstance(factor, Literal) or factor not in came or batched[0] or len(contracted[0]) != 1:
                    continue
                n, way = came[factor]
                (axis,), shape = contracted[side], _shape(factor)
                if len(shape) == 2 and math.prod(shape) // shape[axis] <= NARROW and shape[axis] > shape[1 - axis]:
                    wanted[n].add(_columns_first(way) if axis == 0 else way)
    return wanted


def _columns_first(way: Way) -> Way:
    swap: Reordering = ("transpose", (1, 0), (1, 0))
    return way[:-1] if way[-1:] == (swap,) else (*way, swap)


def _reordering(eqn: Any) -> Reordering:
    if eqn.primitive is reshape_p:
        return "reshape", _shape(eqn.outvars[0]), _shape(eqn.invars[0])
    there = eqn.params["permutation"]
    return "transpose", there, tuple(sorted(range(len(there)), key=there.__getitem__))


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape
