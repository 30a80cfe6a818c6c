"""Products that share a factor, taken as one.

A Hessian-vector product multiplies the batch with the current point and, separately, with the direction; so does the
product with the mixed Jacobian. Each time the whole batch is read, and a matrix with few columns next to it uses a
processor badly. `merged` traces a function, finds the products that have their larger factor in common, and takes them
as one product with more columns. It knows nothing of the function, which may be any loss in plain JAX.
"""

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Primitive
from jax.extend.core.primitives import dot_general_p, transpose_p

F = TypeVar("F", bound=Callable)

WORTH = 4  # times as large as a factor that is copied, at least, is the one that is then read less often


class Operation:
    """One operation of a traced function; its inputs are (operation, number of its output) or constants."""

    def __init__(self, primitive: Primitive, params: dict[str, Any], inputs: list["Input"], outputs: list[Any]):
        self.primitive, self.params, self.inputs, self.outputs = primitive, params, inputs, outputs
        self.merge: Merge | None = None


class Constant(NamedTuple):
    value: Any


Input = Constant | tuple[Operation, int]


class Merge:
    """Operations that have all but one input in common; the other ones are joined along an axis."""

    def __init__(self, members: list[Operation], way: "Way"):
        self.members, self.way = members, way


class Way(NamedTuple):
    """How products are joined: which input differs, and along which axes of it and of the result."""

    differs: int
    axis: int | None  # None: a vector has no axis to join along, so that a new last one is made
    axis_out: int


def merged(fn: F) -> F:
    """Return a function that computes the same, with products that share their larger factor taken as one.

    >>> X = jnp.ones((100, 3))
    >>> def twice(v, w):
    ...     return X @ v, X @ w
    >>> str(jax.make_jaxpr(twice)(X[0], X[1])).count("dot_general")
    2
    >>> str(jax.make_jaxpr(merged(twice))(X[0], X[1])).count("dot_general")
    1
    """

    @wraps(fn)
    def call(*arguments):
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*arguments)
        if closed.effects:
            return fn(*arguments)
        constants: list[Input] = [Constant(value) for value in (*closed.consts, *jax.tree.leaves(arguments))]
        results = _operations(closed.jaxpr, constants)
        needed = _in_order(results)
        for members, way in _candidates(needed):
            _try_to_merge(members, way, results)
        return jax.tree.unflatten(jax.tree.structure(shapes), _evaluate(results))

    return call  # type: ignore[return-value]


def _operations(jaxpr: Any, inputs: list[Input]) -> list[Input]:
    """Return the results as operations on the inputs; functions that are only jitted are opened."""
    known: dict[Any, Input] = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))
    for eqn in jaxpr.eqns:
        given = [_input(atom, known) for atom in eqn.invars]
        if eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            results = _operations(inner.jaxpr, [*map(Constant, inner.consts), *given])
        else:
            operation = Operation(eqn.primitive, eqn.params, given, [v.aval for v in eqn.outvars])
            results = [(operation, i) for i in range(len(eqn.outvars))]
        known.update(zip(eqn.outvars, results, strict=True))
    return [_input(atom, known) for atom in jaxpr.outvars]


def _input(atom: Any, known: dict[Any, Input]) -> Input:
    return Constant(atom.val) if isinstance(atom, Literal) else known[atom]


def _before(operation: Operation) -> Iterator[Operation]:
    """What has to be computed before an operation, with those that it is merged with."""
    for member in operation.merge.members if operation.merge else [operation]:
        for source in member.inputs:
            if not isinstance(source, Constant):
                yield source[0]


def _in_order(results: list[Input]) -> list[Operation]:
    """Return the operations that the results need, each after those it needs itself; [] if they need each other."""
    order: list[Operation] = []
    state: dict[int, str] = {}
    for result in results:
        if isinstance(result, Constant):
            continue
        stack: list[tuple[Operation, Iterator[Operation]]] = [(result[0], _before(result[0]))]
        if _key(result[0]) in state:
            continue
        state[_key(result[0])] = "open"
        while stack:
            operation, rest = stack[-1]
            source = next(rest, None)
            if source is None:
                stack.pop()
                state[_key(operation)] = "done"
                order.append(operation)
            elif state.get(_key(source)) == "open":
                return []
            elif _key(source) not in state:
                state[_key(source)] = "open"
                stack.append((source, _before(source)))
    return order


def _key(operation: Operation) -> int:
    return id(operation if operation.merge is None else operation.merge)


def _candidates(operations: list[Operation]) -> Iterator[tuple[list[Operation], Way]]:
    """Yield groups of products that differ in their smaller factor only."""
    groups: dict[Any, list[Operation]] = {}
    for operation in operations:
        if operation.primitive is dot_general_p:
            way = _way(operation)
            shared, other = _aval(operation, 1 - way.differs), _aval(operation, way.differs)
            if shared.size >= WORTH * other.size:
                same = _same(operation.inputs[1 - way.differs])
                key = (way, same, other.shape, str(other.dtype), str(operation.params))
                groups.setdefault(key, []).append(operation)
    for (way, *_), members in groups.items():
        if len(members) > 1:
            yield members, way


def _same(source: Input) -> Any:
    return ("constant", id(source.value)) if isinstance(source, Constant) else (id(source[0]), source[1])


def _aval(operation: Operation, number: int) -> Any:
    source = operation.inputs[number]
    return jax.typeof(source.value) if isinstance(source, Constant) else source[0].outputs[source[1]]


def _way(operation: Operation) -> Way:
    """Return the way in which a product is joined with others that have its larger factor."""
    contract, batch = operation.params["dimension_numbers"]
    shapes = [_aval(operation, i).shape for i in (0, 1)]
    differs = 1 if math.prod(shapes[0]) >= math.prod(shapes[1]) else 0
    free = [[a for a in range(len(shapes[i])) if a not in (*contract[i], *batch[i])] for i in (0, 1)]
    axis_out = len(batch[0]) + (len(free[0]) if differs == 1 else 0)
    return Way(differs, free[differs][0] if free[differs] else None, axis_out)


def _try_to_merge(members: list[Operation], way: Way, results: list[Input]) -> None:
    """Merge as many of the members as do not need each other's results."""
    taken: list[Operation] = []
    for member in members:
        if member.merge is None:
            _bind([*taken, member], way)
            if _in_order(results):
                taken.append(member)
            else:
                member.merge = None
                _bind(taken, way)


def _bind(members: list[Operation], way: Way) -> None:
    merge = Merge(members, way) if len(members) > 1 else None
    for member in members:
        member.merge = merge


def _evaluate(results: list[Input]) -> list[Any]:
    values: dict[int, list[Any]] = {}

    def value(source: Input) -> Any:
        return source.value if isinstance(source, Constant) else values[id(source[0])][source[1]]

    for operation in _in_order(results):
        if operation.merge is None:
            values[id(operation)] = _apply(operation, [value(source) for source in operation.inputs])
            continue
        members, way = operation.merge.members, operation.merge.way
        given = [value(source) for source in members[0].inputs]
        given[way.differs] = _join([member.inputs[way.differs] for member in members], way, value)
        parts = _take_apart(_apply(members[0], given)[0], len(members), way)
        for member, part in zip(members, parts, strict=True):
            values[id(member)] = [part]
    return [value(source) for source in results]


def _join(factors: list[Input], way: Way, value: Callable[[Input], Any]) -> jax.Array:
    if way.axis is None:
        return jnp.stack([value(factor) for factor in factors], axis=-1)
    turned = {_turned(factor) for factor in factors}
    order = turned.pop()
    if turned or order is None:
        return jnp.concatenate([value(factor) for factor in factors], axis=way.axis)
    # Matrices are joined as they are stored, then turned as one: a product reads a turned factor for free.
    stored = [value(factor[0].inputs[0]) for factor in factors if not isinstance(factor, Constant)]
    return jnp.transpose(jnp.concatenate(stored, axis=order[way.axis]), order)


def _turned(source: Input) -> tuple[int, ...] | None:
    """Return the order of axes if this is a transposed array."""
    if isinstance(source, Constant) or source[0].primitive is not transpose_p:
        return None
    return source[0].params["permutation"]


def _take_apart(product: jax.Array, number: int, way: Way) -> list[jax.Array]:
    parts = jnp.split(product, number, axis=way.axis_out)
    return [part.squeeze(way.axis_out) for part in parts] if way.axis is None else parts


def _apply(operation: Operation, inputs: list[Any]) -> list[Any]:
    bound = operation.primitive.get_bind_params(operation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a tuple before JAX 0.9
    out = operation.primitive.bind(*functions, *inputs, **params)
    return list(out) if operation.primitive.multiple_results else [out]
