"""The compiled loop: steps of an algorithm until there is a reason to come back."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bilax import keys
from bilax.algorithms.protocol import Algorithm, Info
from bilax.oracle import Oracle, from_parts
from bilax.problem import Functions
from bilax.sampler import Sampler
from bilax.types import PyTree, Scalar
from bilax.unsafe_eta import is_auto


class Run(NamedTuple):
    """What the compiled program hands from step to step. Why it came back is in the last three."""

    state: Any
    info: Info
    HV: jax.Array  # calls beyond the declared cost, since the program was called
    JV: jax.Array
    finite: jax.Array  # the norms of the last step
    converged: jax.Array
    grew: jax.Array


def start(state: Any) -> Run:
    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    return Run(state, _canonical(Info(jnp.inf, jnp.inf)), none, none, ~no, no, no)


# The compiler's highest level, 3, takes longer, and small steps come out slower. Who has switched optimisation off in
# JAX before, as our tests do, keeps that.
_LEVEL = None if jax.config.read("jax_disable_most_optimizations") else {"xla_backend_optimization_level": 2}
jit = partial(jax.jit, compiler_options=_LEVEL)


@partial(jit, static_argnums=(0, 1))
def advance(
    functions: Functions,
    sampler: Sampler,
    algorithm: Algorithm,
    outer_data: PyTree,
    inner_data: PyTree,
    stream: jax.Array,
    tol: jax.Array,
    run: Run,
    stop: Scalar,
    warned: Any,
) -> Run:
    """Take steps until k = stop, or until there is a reason to come back earlier.

    A step looks at its two norms alone, so that nothing as long as the state is read or copied but by the method
    itself; `is_finite` looks at the whole state. Whoever wants the state before the last step starts again from the
    old one: a run is a function of its start and of the stream.
    """
    oracle = from_parts(functions, outer_data, inner_data, sampler)

    def step(run: Run) -> Run:
        state, info = algorithm.step(oracle, keys.at(stream, run.state.k), run.state)
        info = _canonical(info)
        grew = info.diverging & jnp.logical_not(warned)
        if is_auto(algorithm):
            grew &= run.info.diverging  # the first time, eta="auto" measures again and lowers eta by itself
        finite = jnp.isfinite(info.norm_v) & jnp.isfinite(info.norm_u)
        return Run(state, info, run.HV + info.HV, run.JV + info.JV, finite, info.norm_v <= tol, grew)

    def goes_on(run: Run) -> jax.Array:
        return run.finite & ~run.converged & ~run.grew & (run.state.k < stop)

    return jax.lax.while_loop(goes_on, step, start(run.state)._replace(info=run.info))


def iterations(oracle: Oracle, algorithm: Algorithm, stream: jax.Array, state: Any, steps: int) -> tuple[Any, Info]:
    """Take so many steps whatever happens; return the last state and the `Info` of every step."""
    return jax.lax.scan(lambda s, _: algorithm.step(oracle, keys.at(stream, s.k), s), state, length=steps)


def is_finite(run: Run) -> bool:
    """Tell whether the norms of the last step and all of the state are finite; outside the program, which compiles
    sooner without it."""
    floats = [leaf for leaf in jax.tree.leaves(run.state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return bool(run.finite) and all(np.isfinite(leaf).all() for leaf in floats)


def _canonical(info: Info) -> Info:
    """Give every entry the dtype that it has in all algorithms."""
    return Info(*(jnp.asarray(value, _INFO_DTYPES.get(name, float)) for name, value in info._asdict().items()))


_INFO_DTYPES = {"diverging": bool, "HV": jnp.int32, "JV": jnp.int32}
