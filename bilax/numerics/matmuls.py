"""Matrix products that share a factor, taken as one.

A Hessian-vector product multiplies the batch X with the current point and, separately, with the direction:

    before   A = X @ w            after   AB = X @ [w r]
             B = X @ r                    A, B = split(AB)

Each product reads all of X, so one product with twice the columns takes little longer than either alone. This works for
any traced function: jitted calls are inlined, what nobody needs is left out, then everything that is ready is computed,
products last and grouped by their larger factor.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jax.extend.core.primitives import dot_general_p, transpose_p

F = TypeVar("F", bound=Callable)
Values = dict[int, Any]  # by number: the id of a constant or an argument, a negative number for a computed value

WORTH = 4  # the shared factor must be at least this many times as large as the other ones, which are copied


class Operation(NamedTuple):
    """One line of a traced function; its inputs and outputs are numbers of values."""

    primitive: Any
    params: dict[str, Any]
    inputs: list[int]
    outputs: list[int]


def share_products(fn: F) -> F:
    """Return a function that computes the same, with products that share their larger factor taken as one.

    >>> X = jnp.ones((100, 3))
    >>> def twice(v, w):
    ...     return X @ v, X @ w
    >>> str(jax.make_jaxpr(twice)(X[0], X[1])).count("dot_general")
    2
    >>> str(jax.make_jaxpr(share_products(twice))(X[0], X[1])).count("dot_general")
    1
    """

    @wraps(fn)
    def call(*arguments):
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*arguments)
        if closed.effects:
            return fn(*arguments)
        given = (*closed.consts, *jax.tree.leaves(arguments))
        values: Values = {id(value): value for value in given}
        operations: list[Operation] = []
        results = _inline(closed.jaxpr, [*map(id, given)], values, operations, count(1))
        operations = _needed(operations, results)
        if any(operation.primitive.name == "custom_lin" for operation in operations):
            raise NotImplementedError("custom_lin: a jax.custom_vjp was differentiated forward, which JAX cannot lower")
        _compute(operations, values)
        return jax.tree.unflatten(jax.tree.structure(shapes), [values[number] for number in results])

    return call  # type: ignore[return-value]


def _inline(jaxpr: Any, given: Sequence[int], values: Values, operations: list[Operation], new: count) -> list[int]:
    """Append the operations of a jaxpr and of the jitted functions that it calls; return the numbers of its results."""
    numbers = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))

    def number(atom: Any) -> int:
        if isinstance(atom, Literal):
            values[id(atom.val)] = atom.val
        return id(atom.val) if isinstance(atom, Literal) else numbers[atom]

    for eqn in jaxpr.eqns:
        inputs = [number(atom) for atom in eqn.invars]
        if eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            values |= {id(value): value for value in inner.consts}
            outputs = _inline(inner.jaxpr, [*map(id, inner.consts), *inputs], values, operations, new)
        else:
            outputs = [-next(new) for _ in eqn.outvars]
            operations.append(Operation(eqn.primitive, eqn.params, inputs, outputs))
        numbers.update(zip(eqn.outvars, outputs, strict=True))
    return [number(atom) for atom in jaxpr.outvars]


def _needed(operations: list[Operation], results: Sequence[int]) -> list[Operation]:
    """Leave out what no result depends on: joined with products that are needed, it would be computed, too."""
    wanted, kept = set(results), []
    for operation in reversed(operations):
        if wanted.intersection(operation.outputs):
            wanted.update(operation.inputs)
            kept.append(operation)
    return kept[::-1]


def _compute(operations: list[Operation], values: Values) -> None:
    made_by = {number: operation for operation in operations for number in operation.outputs}
    while operations:
        groups: dict[Any, list[Operation]] = {}
        for operation in operations:
            if all(number in values for number in operation.inputs):
                if operation.primitive is dot_general_p:
                    groups.setdefault(_shared(operation, values), []).append(operation)
                else:
                    values.update(zip(operation.outputs, _apply(operation, values), strict=True))
        if groups:
            # Only the largest group: meanwhile the others may grow. Of equals, the last one, which others wait for.
            shared, products = max(reversed(groups.items()), key=lambda group: len(group[1]))
            taken = _take(products, shared, values, made_by)
            values.update({product.outputs[0]: part for product, part in zip(products, taken, strict=True)})
        operations = [operation for operation in operations if operation.outputs[0] not in values]


class Shared(NamedTuple):
    """What products must have in common to be taken together."""

    factor: int
    side: int  # of the other factor, 0 or 1
    shape: tuple[int, ...]  # of the other factors
    how: tuple  # how they are multiplied
    alone: int | None  # the number of a product that is not worth joining, else None


def _shared(product: Operation, values: Values) -> Shared:
    left, right = (values[number] for number in product.inputs)
    side, (large, small) = (1, (left, right)) if left.size >= right.size else (0, (right, left))
    alone = product.outputs[0] if large.size < WORTH * small.size else None
    how = (small.dtype, *(product.params[name] for name in sorted(product.params)))
    return Shared(product.inputs[1 - side], side, small.shape, how, alone)


def _take(products: list[Operation], shared: Shared, values: Values, made_by: dict[int, Operation]) -> list[jax.Array]:
    """Return the results of products that share a factor."""
    if len(products) == 1:
        return _apply(products[0], values)
    side, (contracted, batched) = shared.side, products[0].params["dimension_numbers"]
    free = [axis for axis in range(len(shared.shape)) if axis not in (*contracted[side], *batched[side])]
    # The axes of a result: first those batched, then those of the left factor, then those of the right one.
    axis = len(batched[0]) if side == 0 else values[shared.factor].ndim - len(contracted[0])
    others = [product.inputs[side] for product in products]
    joined = _apply(products[0], {**values, others[0]: _join(others, free, values, made_by)})[0]
    parts = jnp.split(joined, len(products), axis=axis)
    return parts if free else [part.squeeze(axis) for part in parts]


def _join(numbers: list[int], free: list[int], values: Values, made_by: dict[int, Operation]) -> jax.Array:
    """Join factors along their first free axis; vectors, which have none, along a new last one."""
    if not free:
        return jnp.stack([values[number] for number in numbers], axis=-1)
    transposed = [made_by[n] for n in numbers if n in made_by and made_by[n].primitive is transpose_p]
    orders = {operation.params["permutation"] for operation in transposed}
    if len(transposed) < len(numbers) or len(orders) > 1:
        return jnp.concatenate([values[number] for number in numbers], axis=free[0])
    # Transposed matrices are joined as they are stored: a product reads a transposed factor for free.
    (order,) = orders
    return jnp.concatenate([values[t.inputs[0]] for t in transposed], axis=order[free[0]]).transpose(order)


def _apply(operation: Operation, values: Values) -> list[Any]:
    bound = operation.primitive.get_bind_params(operation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a tuple before JAX 0.9
    out = operation.primitive.bind(*functions, *(values[number] for number in operation.inputs), **params)
    return list(out) if operation.primitive.multiple_results else [out]
