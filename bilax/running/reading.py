"""Reads what the next steps will draw from a source, in a thread, while the steps before them are computed.

Which samples a step draws is decided by its key, so a step can be rehearsed: with an oracle that tells the numbers that
it is asked for, and whose derivatives are all zero. Where a rehearsal is wrong (a method that decides by what it
computed what to draw next), samples are read when they are asked for, as without it.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.algorithms.protocol import Algorithm
from bilax.functions import unconstrained
from bilax.oracle import Oracle, Traced, TracedProblem
from bilax.running import loop
from bilax.sampling import keys
from bilax.sampling.stored import Stored
from bilax.sampling.streamed import Streamed
from bilax.types import PyTree

PATIENCE = 10.0  # seconds for which the end of a run waits for the thread
QUICK = 2e-3  # seconds; what is read as quickly is in memory, and rehearsing would cost more than it saves


class ReadingAhead:
    """A context in which the sources of a problem are read ahead, from the step on that a run is at."""

    def __init__(self, problem: Traced, algorithm: Algorithm, stream: jax.Array, now: loop.LoopState):
        data = (problem.outer_data, problem.inner_data) if isinstance(problem, TracedProblem) else ()
        self.sources = [one for one in data if isinstance(one, Streamed) and one.mapped is None]
        self.problem, self.algorithm, self.stream, self.now = problem, algorithm, stream, now
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None
        self.seconds: dict[Streamed, float] = {}  # to read a sample

    def __enter__(self) -> "ReadingAhead":
        dense = "HINV" in getattr(getattr(self.algorithm, "about", None), "calls", ())
        for source in self.sources:
            source.failure = None
        if self.sources and not dense:
            self.seconds = {source: source.seconds_per_sample() for source in self.sources}
            for source in self.sources:
                source.ahead.open()
            self.thread = threading.Thread(target=self._read, args=(self.now,), daemon=True, name="bilax-reading")
            self.thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.ended.set()
        for source in self.sources:
            source.ahead.close()
        if self.thread is not None:
            self.thread.join(PATIENCE)
        for source in self.sources if isinstance(error, Exception) else ():
            if source.failure is not None:
                told = f"{source.name} could not be read: {type(source.failure).__name__}: {source.failure}"
                raise RuntimeError(told) from source.failure

    def _read(self, start: loop.LoopState) -> None:
        asked: list[tuple[Streamed, np.ndarray]] = []
        rehearsal = rehearsed(self.problem, self.algorithm, self.stream, start, asked)
        k = int(start.state.k)
        try:
            while not self.ended.is_set():
                asked.clear()
                jax.block_until_ready(rehearsal(k))
                if all(numbers.size * self.seconds[source] < QUICK for source, numbers in asked):
                    break
                for source, numbers in list(asked):
                    source.read_ahead(k, numbers)
                k += 1
        except Exception:  # what is wrong is told where the samples are asked for
            return
        for source in self.sources:
            source.ahead.close()


def rehearsed(
    problem: Any, algorithm: Algorithm, stream: jax.Array, start: loop.LoopState, asked: list
) -> Callable[[int], jax.Array]:
    """Return a function of k that appends to ``asked`` what step k draws, and from which source."""

    def noted(data: PyTree) -> PyTree:
        return Noted(data, asked) if isinstance(data, Streamed) and data.mapped is None else data

    problem = replace(problem, outer_data=noted(problem.outer_data), inner_data=noted(problem.inner_data))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), start.state)

    @jax.jit
    def rehearse(k: jax.Array) -> jax.Array:
        oracle = without_derivatives(problem.oracle())
        state = zeros._replace(k=k.astype(zeros.k.dtype))
        state, _, info = loop.move(oracle, algorithm, keys.at(stream, k), state, start.memory)
        floats = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return info.norm_v + jnp.stack([jnp.sum(leaf).astype(float) for leaf in floats]).sum()

    return lambda k: rehearse(jnp.asarray(k, jnp.int32))


def without_derivatives(oracle: Oracle) -> Oracle:
    """Return an oracle whose answers are 0, but made of what is given, so that every batch must be drawn."""

    def zero(like: PyTree, *made_of: PyTree) -> PyTree:
        some = [jax.tree.leaves(tree)[0] for tree in made_of]
        seen = sum(0 * leaf[(0,) * leaf.ndim].astype(float) for leaf in some)
        return jax.tree.map(lambda leaf: jnp.zeros_like(leaf) + jnp.asarray(seen, leaf.dtype), like)

    return oracle._replace(
        grad_F=lambda x, y, xi: zero((x, y), xi, x, y),
        grad_G=lambda x, y, zeta: zero(y, zeta, x, y),
        grads_G=lambda x, y, zeta: zero((x, y), zeta, x, y),
        hvp_G=lambda x, y, zeta, r: zero(r, zeta, r, y),
        step_hvp_G=lambda x, y, zeta, r: zero(r, zeta, r, y),
        jvp_G=lambda x, y, zeta, r: zero(x, zeta, r, y),
        linearize_G=lambda x, y, zeta, r: zero((y, r, x), zeta, r, y),
        value_F=lambda x, y, xi: zero(jnp.zeros(()), xi, y),
        value_G=lambda x, y, zeta: zero(jnp.zeros(()), zeta, y),
        tangent=lambda x, y, zeta, r: r,
        carry=None if oracle.carry is None else replace(oracle.carry, function=lambda c, x, y, zeta: zero(c, zeta, y)),
        project_x=unconstrained,
        project_y=unconstrained,
    )


@jax.tree_util.register_pytree_node_class
class Noted(Stored):
    """Stands for a source: notes which samples are asked for, and gives zeros."""

    def __init__(self, source: Streamed, asked: list):
        self.source, self.asked, self.samples = source, asked, source.samples

    @property
    def bytes_per_sample(self) -> float:
        return self.source.bytes_per_sample

    def take(self, numbers: jax.Array) -> PyTree:
        nothing = jax.ShapeDtypeStruct(numbers.shape[:-1], jnp.float32)
        token = jax.pure_callback(self._note, nothing, numbers, vmap_method="expand_dims")
        shapes = self.source.shapes(numbers.shape)

        def zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            spread = token.reshape(token.shape + (1,) * (leaf.ndim - token.ndim))
            return jnp.broadcast_to(spread, leaf.shape).astype(leaf.dtype)

        return jax.tree.map(zeros, shapes)

    def everything(self) -> PyTree:
        return self.source.everything()

    def _note(self, numbers: Any) -> np.ndarray:
        numbers = np.array(numbers)
        self.asked.append((self.source, numbers))
        return np.zeros(numbers.shape[:-1], np.float32)

    def tree_flatten(self) -> tuple[tuple, "Noted"]:
        return (), self

    @classmethod
    def tree_unflatten(cls, itself: "Noted", _: Any) -> "Noted":
        return itself
