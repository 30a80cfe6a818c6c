"""The one loop: curvature for eta="auto", a step of the method, and a look at whether it is still finite.

`take_step` is what `solve`, `iterate`, `sweep`, `search` and Table 1 have in common. They differ in what drives it:
`advance` comes back when there is a reason to, `record` keeps what every step told, `repeat` only counts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bilax.algorithms.protocol import Algorithm, Info
from bilax.hypergrad import auto_eta
from bilax.hypergrad.neumann import grew
from bilax.hyperparameters import Auto, names_of, with_values
from bilax.numerics.layout import Turned, turn, turn_back
from bilax.numerics.platforms import Jitted, on_cpu
from bilax.numerics.tree import where
from bilax.optimisers import Optimiser, start
from bilax.oracle import KINDS, Counts, Oracle, Traced, TracedProblem, like, with_one_draw
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar

PROBING = 2**32 - 1  # the number of the stream on which L is measured; methods split theirs from 0 on
CARRYING = 2**32 - 2  # likewise, of the batches from which what is carried is renewed


class Memory(NamedTuple):
    """What the loop, not the method, carries from step to step."""

    curvature: auto_eta.Curvature | None  # None: no eta="auto"
    estimated: jax.Array  # whether an estimate other than 0 was seen: until then `tol` has nothing to judge
    carried: PyTree = None  # what the losses read but no step moves; None: nothing


class Goal(NamedTuple):
    """When a run may have converged: whether it has, is decided by a look at all data."""

    tol: Any  # of the norm of the estimate
    first: Any  # iteration at which to come back for it


class LoopState(NamedTuple):
    """What the compiled program hands from step to step. Why it came back is in the last three."""

    state: Any
    memory: Memory
    info: Info
    calls: Counts  # beyond the declared cost, since the program was called
    finite: jax.Array  # the norms of the last step
    converged: jax.Array  # or so it seems, from the estimate
    grew: jax.Array  # the residual of the last series


def auto_steps(algorithm: Algorithm) -> dict[str, int]:
    """Return the names of the hyper-parameters that are "auto", each with the batch size to measure L on."""
    fields = getattr(algorithm, "__dataclass_fields__", {})
    names = [name for name in names_of("series_step", algorithm) if isinstance(getattr(algorithm, name), Auto)]
    return {name: fields[name].metadata["batch"](algorithm) for name in names}


def fresh_memory(algorithm: Algorithm, state: Any, carried: PyTree = None) -> Memory:
    curvature = auto_eta.unmeasured(state.x, state.y) if auto_steps(algorithm) else None
    return Memory(curvature, jnp.zeros((), bool), carried)


def take_step(
    oracle: Oracle, algorithm: Algorithm, stream: Any, state: Any, memory: Memory, key: Key | None = None
) -> tuple[Any, Memory, Info]:
    """Take one step of the method; if its eta is "auto", hand it a number."""
    key = keys.at(stream, state.k) if key is None else key
    memory, probes = measure_curvature(oracle, algorithm, key, state, memory)
    state, memory, info = move(oracle, algorithm, key, state, memory)
    return state, memory, info._replace(calls=info.calls + probes)


def measure_curvature(
    oracle: Oracle, algorithm: Algorithm, key: Key, state: Any, memory: Memory
) -> tuple[Memory, Counts]:
    """Look at L before a step, if that is due and eta is "auto"; return also the calls that it took."""
    curvature, probes = memory.curvature, _none()
    for name, S in auto_steps(algorithm).items():
        assert curvature is not None
        fraction, probing, work = getattr(algorithm, name).fraction, _probing(key), _calls(algorithm) / S
        curvature, spent = auto_eta.update(curvature, fraction, oracle, probing, state.k, state.x, state.y, S, work)
        probes += Counts(HV=spent)
    return memory._replace(curvature=curvature), probes


def move(oracle: Oracle, algorithm: Algorithm, key: Key, state: Any, memory: Memory) -> tuple[Any, Memory, Info]:
    """Take the step of the method itself, with the curvature that is known."""
    curvature = memory.curvature
    for name in auto_steps(algorithm):
        assert curvature is not None
        eta = auto_eta.safe_eta(curvature, getattr(algorithm, name).fraction)
        algorithm = with_values(algorithm, **{name: eta})
    if oracle.paired:
        oracle = with_one_draw(oracle, key)
    if oracle.start_y is not None:
        state = _started_anew(oracle.start_y, algorithm, state)
    state, info = algorithm.step(oracle, key, state)
    info = _canonical(info)
    if curvature is not None:
        curvature = auto_eta.after_series(curvature, info.own.get("growth", 0.0))
    return state, Memory(curvature, memory.estimated | (info.norm_v > 0), _carried_on(oracle, key, state, memory)), info


def _carried_on(oracle: Oracle, key: Key, state: Any, memory: Memory) -> PyTree:
    carry = oracle.carry
    if carry is None or memory.carried is None:
        return memory.carried
    batch = oracle.draw_G(jax.random.fold_in(key, CARRYING), carry.batch)
    return like("carry", lambda carried: carry(carried, state.x, state.y, batch))(memory.carried)


def _started_anew(start_y: Callable[[PyTree], PyTree], algorithm: Algorithm, state: Any) -> Any:
    """Return the state with y, and what its optimiser remembers, as at the start."""
    steps = names_of("inner_step", algorithm)
    loops = any(hasattr(algorithm, name) for name in ("D", "N", "T"))
    if not loops or len(steps) != 1 or set(state._fields) - {"k", "x", "y", "x_memory", "y_memory"}:
        raise ValueError(
            f"y0 is a function of x, from which y starts anew in every step, and {type(algorithm).__name__} carries "
            "more than x and y from step to step, or has no inner loop; take aid-cg, aid-fp, bsa, pzobo, reverse or "
            "stocbio, or set y0=y0(x0) to begin with it."
        )
    y = start_y(state.x)
    return state._replace(y=y, y_memory=start(getattr(algorithm, steps[0]), y))


def _probing(key: Key) -> Key:
    return jax.random.fold_in(key, PROBING)


def arranged(problem: Traced, algorithm: Algorithm, state: Any, memory: Memory) -> tuple[Traced, Any, Memory]:
    """Return the problem, and state and memory, with y in the order in which products read it.

    Only for the library's own methods, which look at y through functions of trees alone; not for those that number its
    entries, as a dense Hessian does, and not with an optimiser of y, which may look at shapes.
    """
    about = getattr(algorithm, "about", None)
    own = type(algorithm).__module__.startswith("bilax.algorithms.") and about and "HINV" not in about.calls
    plain = not any(isinstance(getattr(algorithm, name), Optimiser) for name in names_of("inner_step", algorithm))
    if not (isinstance(problem, TracedProblem) and own and plain and on_cpu()):
        return problem, state, memory
    found = problem.ways(state.x, state.y) if problem.functions.start_y is None else ()
    if not any(found):
        return problem, state, memory
    problem = problem.turned()

    def fresh(x: PyTree, y: PyTree) -> tuple[Any, Memory]:
        leaves, structure = jax.tree.flatten(y)
        turned = [Turned.of(leaf, way) if way else leaf for leaf, way in zip(leaves, found, strict=True)]
        new = algorithm.init(problem.oracle(), x, structure.unflatten(turned))
        return new, fresh_memory(algorithm, new, problem.carried)

    return problem, *turn((state, memory), like=jax.eval_shape(fresh, state.x, state.y))


def _calls(algorithm: Algorithm) -> float:
    """Return the oracle calls, in samples, that a step makes at least."""
    cost = algorithm.cost(1)  # not the first one, which may be a restart
    return sum(getattr(cost, kind) for kind in KINDS)


@partial(jax.jit, inline=True)  # traced once for all programs that take it, and to learn what it tells
def _move(problem: Traced, algorithm: Algorithm, stream: jax.Array, state: Any, memory: Memory):
    return move(problem.carrying(memory.carried).oracle(), algorithm, keys.at(stream, state.k), state, memory)


@partial(jax.jit, inline=True)
def _step(problem: Traced, algorithm: Algorithm, stream: jax.Array, state: Any, memory: Memory):
    return take_step(problem.carrying(memory.carried).oracle(), algorithm, stream, state, memory)


def is_finite(info: Info) -> jax.Array:
    return jnp.isfinite(info.norm_v) & jnp.isfinite(info.norm_u)


def begin(problem: Traced, algorithm: Algorithm, stream: jax.Array, state: Any, memory: Memory) -> LoopState:
    """Return the loop before the first step; what a step would tell is not known yet, only its shape."""

    def first(state: Any, memory: Memory) -> Info:
        arrangement, *arguments = arranged(problem, algorithm, state, memory)
        return _move(arrangement, algorithm, stream, *arguments)[-1]

    told = jax.eval_shape(first, state, memory)
    info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), told)
    no = jnp.zeros((), bool)
    return LoopState(state, memory, info, _none(), ~no, no, no)


@Jitted
def advance(
    problem: Traced,
    algorithm: Algorithm,
    stream: jax.Array,
    goal: Goal,
    loop: LoopState,
    stop: Scalar,
    warned: Any,
) -> LoopState:
    """Take steps until k = stop, or until there is a reason to come back earlier.

    A step looks at its two norms alone, so that nothing as long as the state is read or copied but by the method
    itself; `all_finite` looks at the whole state. Who wants the state before the last step starts again from the old
    one: a run is a function of its start and of the stream.
    """

    problem, state, memory = arranged(problem, algorithm, loop.state, loop.memory)
    loop = loop._replace(state=state, memory=memory)

    def step(loop: LoopState) -> LoopState:
        state, memory, info = _move(problem, algorithm, stream, loop.state, loop.memory)
        grew = info.own.get("diverging", jnp.zeros((), bool)) & jnp.logical_not(warned)
        if memory.curvature is not None:
            grew &= loop.info.own.get("diverging", grew)  # the first time, eta="auto" lowers eta by itself
        converged = (info.norm_v <= goal.tol) & memory.estimated & (state.k >= goal.first)
        return problem.placed(LoopState(state, memory, info, loop.calls + info.calls, is_finite(info), converged, grew))

    def goes_on(loop: LoopState) -> jax.Array:
        return loop.finite & ~loop.converged & ~loop.grew & (loop.state.k < stop)

    def stretch(loop: LoopState) -> LoopState:
        """Look at the curvature, then take steps until it may have to be looked at again.

        A branch inside every step would cost the cheapest methods a third of their time.
        """
        k, oracle = loop.state.k, problem.carrying(loop.memory.carried).oracle()
        memory, probes = measure_curvature(oracle, algorithm, keys.at(stream, k), loop.state, loop.memory)
        loop = loop._replace(memory=memory, calls=loop.calls + probes)

        until = auto_eta.next_look(k)

        def on(loop: LoopState) -> jax.Array:
            now, curvature = loop.state.k, loop.memory.curvature
            assert curvature is not None
            return goes_on(loop) & ((now == k) | ((now < until) & ~grew(curvature.growth)))

        return jax.lax.while_loop(on, step, loop)

    no = jnp.zeros((), bool)
    loop = loop._replace(calls=_none(), finite=~no, converged=no, grew=no)
    one_step = step if loop.memory.curvature is None else stretch
    return problem.placed(turn_back(jax.lax.while_loop(goes_on, one_step, loop)))


@Jitted
def advance_while_finite(
    problem: Traced, algorithm: Algorithm, stream: jax.Array, loop: LoopState, stop: Scalar
) -> LoopState:
    """Take steps until k = stop or until the next state is not finite, and return the last one that is."""
    problem, state, memory = arranged(problem, algorithm, loop.state, loop.memory)
    loop = loop._replace(state=state, memory=memory, calls=_none())

    def step(carry: tuple[LoopState, jax.Array]) -> tuple[LoopState, jax.Array]:
        loop, _ = carry
        state, memory, info = _step(problem, algorithm, stream, loop.state, loop.memory)
        fine = is_finite(info) & state_is_finite((state, memory.carried))
        after = loop._replace(state=state, memory=memory, info=info, calls=loop.calls + info.calls)
        return problem.placed(where(fine, after, loop)), fine

    def goes_on(carry: tuple[LoopState, jax.Array]) -> jax.Array:
        return carry[1] & (carry[0].state.k < stop)

    return problem.placed(turn_back(jax.lax.while_loop(goes_on, step, (loop, jnp.ones((), bool)))[0]))


def record(
    problem: Traced,
    algorithm: Algorithm,
    stream: jax.Array,
    state: Any,
    steps: int,
    observe: Callable[[Any], PyTree] = lambda state: (),
) -> tuple[Any, Memory, Info, PyTree]:
    """Take so many steps whatever happens; return the last state and memory, every `Info`, and what was observed before
    each."""

    problem, state, memory = arranged(problem, algorithm, state, fresh_memory(algorithm, state, problem.carried))

    def step(carry: tuple[Any, Memory], _: None) -> tuple[tuple[Any, Memory], tuple[Info, PyTree]]:
        seen = observe(turn_back(carry[0]))
        state, memory, info = _step(problem, algorithm, stream, *carry)
        return problem.placed((state, memory)), (info, seen)

    (state, memory), (infos, seen) = jax.lax.scan(step, (state, memory), length=steps)
    return *turn_back((state, memory)), infos, seen


def repeat(
    problem: Traced, algorithm: Algorithm, stream: jax.Array, state: Any, memory: Memory, steps: Scalar
) -> tuple[Any, Memory, jax.Array]:
    """Take so many steps; return the last state and memory, and whether all norms were finite."""
    problem, state, memory = arranged(problem, algorithm, state, memory)

    def step(_: Any, carry: tuple[Any, Memory, jax.Array]) -> tuple[Any, Memory, jax.Array]:
        state, memory, info = _step(problem, algorithm, stream, *carry[:2])
        return *problem.placed((state, memory)), carry[2] & is_finite(info)

    return turn_back(jax.lax.fori_loop(0, steps, step, (state, memory, jnp.ones((), bool))))


@jax.jit
def state_is_finite(state: Any) -> jax.Array:
    floats = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in floats]).all()


def all_finite(loop: LoopState) -> bool:
    """Tell whether the norms of the last step and all of the state are finite; outside the compiled loop, which would
    otherwise read the whole state at every step."""
    return bool(loop.finite) and bool(state_is_finite((loop.state, loop.memory.carried)))


def _canonical(info: Info) -> Info:
    """Give everything that is told the dtype that it has in all methods."""
    own = {name: jnp.asarray(value, _own_dtype(value)) for name, value in info.own.items()}
    calls = Counts(*(jnp.asarray(getattr(info.calls, kind), jnp.int32) for kind in KINDS))
    return Info(jnp.asarray(info.norm_v, float), jnp.asarray(info.norm_u, float), own, calls)


def _own_dtype(value: Any) -> Any:
    kind = jnp.result_type(value)
    return bool if jnp.issubdtype(kind, jnp.bool_) else jnp.int32 if jnp.issubdtype(kind, jnp.integer) else float


def _none() -> Counts:
    return Counts(*(jnp.zeros((), jnp.int32) for _ in KINDS))
