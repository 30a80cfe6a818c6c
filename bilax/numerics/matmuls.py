"""Matrix products that share a factor, taken as one, and so that the larger factor is read as it lies.

A Hessian-vector product multiplies the batch X with the current point and, separately, with the direction:

    before   A = X @ w            after   AB = X @ [w r]
             B = X @ r                    A, B = split(AB)

Each product reads all of X, so one product with twice the columns takes little longer than either alone. This works for
any traced function: jitted calls are written out, what nobody needs is left out, then everything that is ready is
computed, products last and grouped by their larger factor.

Of all ways to write a product with a large X, those with X on the right, contracted with the last axis of the small
factor, are the fastest on a CPU; a loss with weights (features, classes) has neither, its gradient X' R least of all:

    before   A = X @ w            after   A = (w' @ X')'
             g = X' @ R                   g = (R' @ X)'
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.extend.core.primitives import dot_general_p, reshape_p, transpose_p
from jax.interpreters.partial_eval import dce_jaxpr

from bilax.numerics.platforms import kept_apart, on_cpu

F = TypeVar("F", bound=Callable)

WORTH = 4  # the shared factor must be at least this many times as large as the other ones, which are copied


class Values(dict):
    """What the variables of a jaxpr stand for."""

    def of(self, atoms: Sequence[Any]) -> list[Any]:
        return [atom.val if isinstance(atom, Literal) else self[atom] for atom in atoms]


def fast_products(fn: F) -> F:
    """Return a function that computes the same, with products that share their larger factor taken as one, and turned.

    >>> X = jnp.ones((100, 3))
    >>> def twice(v, w):
    ...     return X @ v, X @ w
    >>> str(jax.make_jaxpr(twice)(X[0], X[1])).count("dot_general")
    2
    >>> str(jax.make_jaxpr(fast_products(twice))(X[0], X[1])).count("dot_general")
    1
    """

    @wraps(fn)
    def call(*arguments):
        if (found := _flat(fn, arguments)) is None:
            return fn(*arguments)
        (flat, structure), leaves = found, jax.tree.leaves(arguments)
        values = Values(zip((*flat.jaxpr.constvars, *flat.jaxpr.invars), (*flat.consts, *leaves), strict=True))
        _compute(flat.eqns, values)
        return jax.tree.unflatten(structure, values.of(flat.jaxpr.outvars))

    return call  # type: ignore[return-value]


def _flat(fn: Callable, arguments: tuple) -> tuple[ClosedJaxpr, Any] | None:
    """Return the jaxpr of a function, written out, and the structure of what it returns; None: leave it alone."""
    # JAX remembers what it traced by the function: another one each time, so that what the loss captures may change.
    closed, shapes = jax.make_jaxpr(lambda *arguments: fn(*arguments), return_shape=True)(*arguments)
    if closed.effects:
        return None
    flat = jax.make_jaxpr(lambda *leaves: written_out(closed, leaves))(*jax.tree.leaves(arguments))
    # What nobody needs would be computed, too, when it is joined with products that are needed.
    jaxpr, _ = dce_jaxpr(flat.jaxpr, [True] * len(flat.jaxpr.outvars), instantiate=True)
    if any(eqn.primitive.name == "custom_lin" for eqn in flat.eqns):
        raise NotImplementedError("custom_lin: a jax.custom_vjp was differentiated forward, which JAX cannot lower")
    if not any(eqn.primitive is dot_general_p for eqn in jaxpr.eqns):
        return None
    return ClosedJaxpr(jaxpr, flat.consts), jax.tree.structure(shapes)


def written_out(closed: ClosedJaxpr, arguments: Sequence[Any], origins: dict[int, Any] | None = None) -> list[Any]:
    """Evaluate a jaxpr, with the jitted functions that it calls as part of it, and axes reordered at most once."""
    origins = {} if origins is None else origins
    values = Values(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*closed.consts, *arguments), strict=True))
    for eqn in closed.eqns:
        inputs = values.of(eqn.invars)
        if eqn.primitive.name in ("jit", "pjit"):
            outputs = written_out(eqn.params["jaxpr"], inputs, origins)
        elif eqn.primitive in (reshape_p, transpose_p):
            outputs = [_reordered(eqn, inputs[0], origins)]
        else:
            outputs = applied(eqn, inputs)
        values.update(zip(eqn.outvars, outputs, strict=True))
    return values.of(closed.jaxpr.outvars)


def _reordered(eqn: JaxprEqn, array: Any, origins: dict[int, Any]) -> Any:
    """Reshape or transpose, in one go with what made the array, if that was of the same kind."""
    kind, source, order = origins.get(id(array), (None, None, ()))[:3]
    together = kind is eqn.primitive
    origin = source if together else array
    if eqn.primitive is reshape_p:
        order = shape = eqn.params["new_sizes"]
        out = origin if origin.shape == shape else origin.reshape(shape)
    else:
        order = tuple(order[axis] for axis in eqn.params["permutation"]) if together else eqn.params["permutation"]
        out = origin if order == tuple(range(len(order))) else origin.transpose(order)
    if out is not origin:
        origins[id(out)] = eqn.primitive, origin, order, out  # kept alive, so that its id stays its own
    return out


def _compute(eqns: Sequence[JaxprEqn], values: Values) -> None:
    made_by = {variable: eqn for eqn in eqns for variable in eqn.outvars}
    while eqns:
        groups: dict[tuple, list[JaxprEqn]] = {}
        for eqn in eqns:
            if all(isinstance(atom, Literal) or atom in values for atom in eqn.invars):
                if eqn.primitive is dot_general_p:
                    groups.setdefault(_shared(eqn, values), []).append(eqn)
                else:
                    values.update(zip(eqn.outvars, applied(eqn, values.of(eqn.invars)), strict=True))
        if groups:
            # Only the largest group: meanwhile the others may grow. Of equals, the last one, which others wait for.
            (side, *_), products = max(reversed(groups.items()), key=lambda group: len(group[1]))
            taken = _take(products, side, values, made_by)
            values.update({product.outvars[0]: part for product, part in zip(products, taken, strict=True)})
        eqns = [eqn for eqn in eqns if eqn.outvars[0] not in values]


def _shared(product: JaxprEqn, values: Values) -> tuple:
    """Return the side of the smaller factor, and all else that products taken together must have in common."""
    factors = values.of(product.invars)
    side = 1 if factors[0].size >= factors[1].size else 0
    large, small = factors[1 - side], factors[side]
    how = tuple(product.params[name] for name in sorted(product.params))
    alone = None if large.size >= WORTH * small.size else product.outvars[0]
    return side, id(large), small.shape, small.dtype, how, alone


def _take(products: list[JaxprEqn], side: int, values: Values, made_by: dict[Any, JaxprEqn]) -> list[Any]:
    """Return the results of products that share a factor; ``side`` is that of the others."""
    factors, (contracted, batched) = values.of(products[0].invars), products[0].params["dimension_numbers"]
    if len(products) == 1:
        vectors = _with_a_vector(products[0], values, made_by)
        return [_turned(products[0], factors, side) if vectors is None else vectors]
    free = [axis for axis in range(factors[side].ndim) if axis not in (*contracted[side], *batched[side])]
    # The axes of a result: first those batched, then those of the left factor, then those of the right one.
    axis = len(batched[0]) if side == 0 else factors[0].ndim - len(contracted[0])
    factors[side] = _join([product.invars[side] for product in products], free, values, made_by)
    if not free:
        (joined,) = applied(products[0], factors)
        return [part.squeeze(axis) for part in jnp.split(joined, len(products), axis=axis)]
    return list(jnp.split(_turned(products[0], factors, side), len(products), axis=axis))


def _with_a_vector(product: JaxprEqn, values: Values, made_by: dict[Any, JaxprEqn]) -> jax.Array | None:
    """Return the product of a matrix with a single row or column, or of two of these; None if it is none of them.

    The compiler takes such products element by element: a matrix is read as it lies, not turned before.
    """
    factors, (contracted, batched) = values.of(product.invars), product.params["dimension_numbers"]
    if batched[0] or len(contracted[0]) != 1 or any(factor.ndim != 2 for factor in factors):
        return None
    axes = [contracted[side][0] for side in (0, 1)]
    shared = factors[0].shape[axes[0]]
    if shared == 1:
        column, row = (factor.squeeze(axis) for factor, axis in zip(factors, axes, strict=True))
        return (column[:, None] * row[None, :]).astype(product.outvars[0].aval.dtype)  # type: ignore[attr-defined]
    if shared not in (factor.size for factor in factors):
        return None
    for side, variable in enumerate(product.invars):
        made = None if isinstance(variable, Literal) else made_by.get(variable)
        if made is not None and made.primitive is transpose_p:
            factors[side], axes[side] = values.of(made.invars)[0], 1 - axes[side]
    matrix = 0 if factors[0].size > factors[1].size else 1
    if axes[matrix] == 0:
        return applied(product, values.of(product.invars))[0]
    params = {**product.params, "dimension_numbers": (((1,), (axes[1 - matrix],)), ((), ()))}
    out = dot_general_p.bind(factors[matrix], factors[1 - matrix], **params)
    return out if matrix == 0 else out.T


def _turned(product: JaxprEqn, factors: list[Any], side: int) -> jax.Array:
    """Multiply, with the larger one of two matrices on the right and the contracted axis of the other one last."""
    (contracted, batched), large, small = product.params["dimension_numbers"], factors[1 - side], factors[side]
    free = [axis for axis in range(small.ndim) if axis not in contracted[side]]
    last = [small.ndim - 1] == list(contracted[side])
    if batched[0] or large.ndim != 2 or len(contracted[0]) != 1 or not free or (side == 0 and last):
        return applied(product, factors)[0]
    if large.size < 2 * small.size or not on_cpu():
        return applied(product, factors)[0]
    # The compiler would turn a mere transpose back.
    small = kept_apart(small.transpose((*free, *contracted[side])))
    params = {**product.params, "dimension_numbers": (((small.ndim - 1,), contracted[1 - side]), ((), ()))}
    out = kept_apart(dot_general_p.bind(small, large, **params))
    return out if side == 0 else jnp.moveaxis(out, -1, 0)


def _join(factors: list[Any], free: list[int], values: Values, made_by: dict[Any, JaxprEqn]) -> jax.Array:
    """Join factors along their first free axis; vectors, which have none, along a new last one."""
    if not free:
        return jnp.stack(values.of(factors), axis=-1)
    transposed = [
        made_by[factor] for factor in factors if factor in made_by and made_by[factor].primitive is transpose_p
    ]
    orders = {eqn.params["permutation"] for eqn in transposed}
    if len(transposed) < len(factors) or len(orders) > 1:
        return jnp.concatenate(values.of(factors), axis=free[0])
    # Transposed matrices are joined as they are stored: a product reads a transposed factor for free.
    (order,) = orders
    return jnp.concatenate([values[t.invars[0]] for t in transposed], axis=order[free[0]]).transpose(order)


def applied(eqn: JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate one equation of a jaxpr as it stands."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a tuple before JAX 0.9
    out = eqn.primitive.bind(*functions, *inputs, **params)
    return list(out) if eqn.primitive.multiple_results else [out]
