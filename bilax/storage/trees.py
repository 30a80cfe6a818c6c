"""Pytrees of dictionaries, lists, tuples and named tuples as text, so that nothing needs to be unpickled."""

import sys
from collections import namedtuple
from functools import cache
from typing import Any

import jax
import numpy as np

LEAF = "*"


def described(tree: Any) -> Any:
    """Return the shape of a tree as JSON has it, with ``*`` for each array, in the order of `jax.tree.leaves`.

    >>> described({"w": np.ones(2), "b": (np.ones(1), None)})
    {'dict': {'b': {'tuple': ['*', None]}, 'w': '*'}}
    """
    if tree is None:
        return None
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise TypeError("dictionaries can be saved if their keys are text.")
        return {"dict": {key: described(tree[key]) for key in sorted(tree)}}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        kind = getattr(type(tree), "method_state", type(tree))
        name = f"{kind.__module__}:{kind.__qualname__}"
        fields = zip(tree._fields, tree, strict=True)  # type: ignore[attr-defined]
        return {"named": name, "fields": {field: described(part) for field, part in fields}}
    if isinstance(tree, (list, tuple)):
        return {type(tree).__name__: [described(part) for part in tree]}
    if isinstance(tree, (jax.Array, np.ndarray, np.generic, int, float)):
        return LEAF
    raise TypeError(
        f"a {type(tree).__name__} cannot be saved: dictionaries, lists, tuples, named tuples and arrays can. Save what "
        "jax.tree.leaves makes of it."
    )


def rebuilt(shape: Any, leaves: list[Any]) -> Any:
    """Return the tree of a description; ``leaves`` is emptied from its front."""
    if shape is None:
        return None
    if shape == LEAF:
        return leaves.pop(0)
    if "dict" in shape:
        return {key: rebuilt(part, leaves) for key, part in shape["dict"].items()}
    if "named" in shape:
        parts = {name: rebuilt(part, leaves) for name, part in shape["fields"].items()}
        return _named(shape["named"], parts)
    ((kind, parts),) = shape.items()
    return {"list": list, "tuple": tuple}[kind](rebuilt(part, leaves) for part in parts)


def _named(name: str, parts: dict[str, Any]) -> Any:
    """Return a named tuple of the class of that name if it was imported already, else one that looks like it."""
    module, _, qualified = name.partition(":")
    known = getattr(sys.modules.get(module), qualified, None)
    fields = getattr(known, "_fields", ())
    is_tuple = isinstance(known, type) and issubclass(known, tuple)
    if is_tuple and tuple(parts) == fields:
        return known(*parts.values())  # type: ignore[misc]
    if is_tuple and tuple(parts) == (*fields, "memory"):
        return with_memory(known(*list(parts.values())[:-1]), parts["memory"])  # type: ignore[misc]
    return namedtuple(qualified.rpartition(".")[2], parts)(**parts)  # type: ignore[misc]


def with_memory(state: Any, memory: Any) -> Any:
    """Return a method's state with one more field, ``memory``: what the loop needs to go on from it."""
    return _with_memory(type(state))(*state, memory)


def without_memory(state: Any) -> tuple[Any, Any]:
    kind = getattr(type(state), "method_state", None)
    return (state, None) if kind is None else (kind(*state[:-1]), state.memory)


@cache
def _with_memory(kind: type) -> type:
    made = namedtuple(kind.__name__, (*kind._fields, "memory"))  # type: ignore[attr-defined, misc]
    made.method_state = kind  # type: ignore[attr-defined]
    made.__reduce__ = lambda self: (with_memory, (kind(*self[:-1]), self.memory))  # for pickle
    return made
