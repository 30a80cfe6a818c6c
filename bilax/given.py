"""What a user gives, as arrays that can be computed with, or the reason why that cannot be."""

import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.numerics.tree import copied
from bilax.sampling.stored import Stored
from bilax.sampling.streamed import Streamed
from bilax.sources import Source
from bilax.sparse import Rows, is_rows
from bilax.types import PyTree

NOTHING = np.zeros((1, 0), np.float32)  # the data of a loss without data: one sample of no number


def is_nothing(data: PyTree) -> bool:
    return getattr(data, "shape", None) == NOTHING.shape


def as_data(name: str, data: PyTree) -> PyTree:
    """Move the data to the device once, and refuse data that cannot be cut into batches."""
    if isinstance(data, Stored):
        return data
    if isinstance(data, Source):
        return Streamed(name, data)
    data = NOTHING if data is None else data
    try:
        given = jax.tree.leaves_with_path(data, is_leaf=_is_sparse)
    except ValueError:
        kinds = (
            sorted({f"{key!r} ({type(key).__name__})" for key in data}) if isinstance(data, dict) else ["a dictionary"]
        )
        raise TypeError(f"{name} has keys of different types: {', '.join(kinds)}; use one type.") from None
    for path, leaf in given:
        refuse_wrong_kind(f"{name}{jax.tree_util.keystr(path)}", leaf)
    data = jax.tree.map(lambda leaf: Rows.from_scipy(leaf) if hasattr(leaf, "tocsr") else leaf, data)
    paths = jax.tree.leaves_with_path(data, is_leaf=is_rows)
    described = {f"{name}{jax.tree_util.keystr(path)}": leaf for path, leaf in paths}
    shapes = {path: leaf.shape if is_rows(leaf) else np.shape(leaf) for path, leaf in described.items()}
    if not described:
        raise ValueError(f"{name} holds no arrays; give a pytree of arrays that share their leading axis.")
    for path, shape in shapes.items():
        if shape == ():
            raise ValueError(
                f"{path} is a scalar; every array in {name} needs a leading axis with one entry per sample. "
                "Constants belong in the loss function. A list is a pytree of its members: wrap it in np.array."
            )
    sizes = {path: shape[0] for path, shape in shapes.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{path} has {n}" for path, n in sizes.items())
        raise ValueError(f"the arrays in {name} must share their leading axis, one entry per sample; {listing}.")
    if 0 in sizes.values():
        raise ValueError(f"{name} has no samples; its arrays have a leading axis of length 0.")
    for path, leaf in described.items():
        if isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.integer):
            limits = np.iinfo(jax.dtypes.canonicalize_dtype(leaf.dtype))
            if leaf.min() < limits.min or leaf.max() > limits.max:
                raise ValueError(
                    f"{path} holds integers beyond {limits.dtype}, which JAX would cut off; number them from 0, or set "
                    "jax_enable_x64."
                )
    with jax.ensure_compile_time_eval():  # a problem made inside a jitted function may outlive it
        return copied(data)


def _is_sparse(leaf: Any) -> bool:
    return _is_jax_sparse(leaf) or isinstance(leaf, Iterator) or is_rows(leaf) or hasattr(leaf, "tocsr")


def _is_jax_sparse(leaf: Any) -> bool:
    loaded = sys.modules.get("jax.experimental.sparse")  # importing it takes a third of a second
    return loaded is not None and isinstance(leaf, loaded.JAXSparse)


def refuse_wrong_kind(path: str, leaf: Any) -> None:
    """Refuse what JAX cannot compute with, or would take for something else."""
    if _is_jax_sparse(leaf):
        raise TypeError(
            f"{path} is a {type(leaf).__name__} matrix of JAX, whose stored numbers would be taken for samples; give a "
            "scipy.sparse matrix, which becomes bilax.sparse.Rows."
        )
    if hasattr(leaf, "tocsr"):
        if getattr(leaf, "ndim", 2) != 2:
            raise ValueError(
                f"{path} is a sparse array of {leaf.ndim} axis, shape {leaf.shape}; give one of two: (samples, columns)"
            )
        return
    if isinstance(leaf, (jax.Array, Rows)):
        return
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"{path} is a masked array, and JAX has no masks; give .filled(value), or leave the masked samples out."
        )
    if isinstance(leaf, (Iterator, str, bytes, set, frozenset)) or callable(leaf):
        raise TypeError(
            f"{path} is a {type(leaf).__name__}; data must be arrays of numbers: np.stack(list(...)) makes one, "
            "np.load reads one."
        )
    try:
        dtype = np.asarray(leaf).dtype
    except ValueError:
        raise TypeError(
            f"{path} is a {type(leaf).__name__} that is no array, e.g. of lists of unequal length."
        ) from None
    if dtype.kind not in "biufc" and not jnp.issubdtype(dtype, jnp.number):
        raise TypeError(
            f"{path} has dtype {dtype}, which JAX has not; number classes from 0 (np.unique(labels, "
            "return_inverse=True)[1]), and turn dates and other objects into numbers."
        )


def refuse_non_finite(name: str, tree: PyTree, or_else: str) -> None:
    """Say where the first number is that is not finite, if there is one."""
    for path, leaf in jax.tree.leaves_with_path(tree, is_leaf=is_rows):
        if is_rows(leaf):
            _refuse_non_finite_rows(f"{name}{jax.tree_util.keystr(path)}", leaf, or_else)
            continue
        if isinstance(leaf, Tracer) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):  # other processes look at their parts
            continue
        if np.isfinite(np.asarray(leaf)).all():
            continue
        wrong = np.argwhere(~np.isfinite(np.asarray(leaf)))
        place = f"{name}{jax.tree_util.keystr(path)}"
        at = ", ".join(str(i) for i in wrong[0])
        value = np.asarray(leaf)[tuple(wrong[0])]
        raise ValueError(
            f"{place} holds {value} at [{at}], the first of {len(wrong):,} of {leaf.size:,} numbers that are not "
            f"finite; correct or remove {'them' if len(wrong) > 1 else 'it'}, or {or_else}."
        )


def _refuse_non_finite_rows(path: str, rows: Rows, or_else: str) -> None:
    values = np.asarray(rows.values)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        row = int(np.searchsorted(np.asarray(rows.start), wrong[0], side="right")) - 1
        at = f"[{row}, {int(rows.indices[wrong[0]])}]"
        raise ValueError(
            f"{path} holds {values[wrong[0]]} at {at}, the first of {wrong.size:,}; correct it, or {or_else}."
        )


def _strong(leaf: Any) -> Any:
    # An array of JAX, too, may share the memory of one of NumPy that the user goes on to change.
    return leaf if isinstance(leaf, np.ndarray) else jnp.array(leaf, dtype=jnp.asarray(leaf).dtype)


def as_variable(name: str, value: PyTree) -> PyTree:
    """Return x0 or y0 as a pytree of floating arrays, or say what is wrong with it."""
    leaves = jax.tree.leaves_with_path(value)
    if not leaves:
        raise ValueError(
            f"{name} is empty; give a pytree with at least one floating-point array (or set it on the problem)."
        )
    for path, leaf in leaves:
        where = f"{name}{jax.tree_util.keystr(path)}"
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            raise TypeError(f"{where} is a {type(leaf).__name__}; {name} must hold floating-point arrays.") from None
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"{where} has dtype {array.dtype}; {name} must hold floating-point arrays, "
                "because it is moved by gradient steps. Convert it, e.g. with .astype(float)."
            )
        if array.size == 0:
            raise ValueError(f"{where} has shape {array.shape}, which holds no numbers.")
    # Strong copies: a weakly typed leaf would change its type after the first step.
    value = copied(jax.tree.map(_strong, value))
    refuse_non_finite(name, value, "start somewhere else")
    return value
