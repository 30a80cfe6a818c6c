"""Tools to test an algorithm, ours or yours: an oracle that counts its calls, and one that records its batches."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from bilax.numerics.tree import size
from bilax.oracle import KINDS, Counts, Oracle
from bilax.types import PyTree

COLUMNS = {  # function of the oracle -> the columns of Table 1 that its calls count in
    "grad_F": ("F",),
    "grad_G": ("G",),
    "grads_G": ("G",),
    "jvp_G": ("JV",),
    "hvp_G": ("HV",),
    "step_hvp_G": ("HV",),
    "linearize_G": ("G", "HV", "JV"),
}


class Tally:
    """Oracle calls that were really made, in samples; `counting` makes one."""

    def __init__(self):
        self._calls: dict[str, int] = dict.fromkeys(KINDS, 0)

    def _add(self, columns: tuple[str, ...], samples: int) -> None:
        for column in columns:
            self._calls[column] += samples

    @property
    def counts(self) -> Counts:
        """The calls so far."""
        jax.effects_barrier()
        return Counts(**self._calls)


def counting(oracle: Oracle) -> tuple[Oracle, Tally]:
    """Return an oracle that counts the calls it answers, also under jit, scan, cond and vmap.

    Args:
      oracle: such as `bilax.make_oracle` returns.

    Returns:
      The oracle to use, and a `Tally` whose ``counts`` are the calls so far.

    >>> from bilax import make_oracle
    >>> from bilax.problems import quadratic
    >>> problem = quadratic().problem
    >>> oracle, tally = counting(make_oracle(problem))
    >>> gradient = oracle.grad_G(problem.x0, problem.y0, oracle.draw_G(jax.random.key(0), 8))
    >>> tally.counts
    Counts(F=0, G=8, JV=0, HV=0, HINV=0)
    """
    tally = Tally()

    def counted(columns: tuple[str, ...], fn):
        def call(x: PyTree, y: PyTree, batch: PyTree, *r: PyTree):
            samples = size(batch)
            # The callback depends on every argument, so that vmap over any of them counts once per element.
            arguments = [leaf.ravel()[0].astype(float) for leaf in jax.tree.leaves((x, y, batch, r))]
            jax.debug.callback(lambda _: tally._add(columns, samples), sum(arguments, jnp.zeros(())))
            return fn(x, y, batch, *r)

        return call

    def factor(H: jax.Array):
        jax.debug.callback(lambda _: tally._add(("HINV",), 1), H.ravel()[0])
        return oracle.factor(H)

    counters = {name: counted(columns, getattr(oracle, name)) for name, columns in COLUMNS.items()}
    return oracle._replace(**counters, factor=factor), tally


class Drawn:
    """The batches that were drawn, in order: pairs of "F" or "G" and the batch."""

    def __init__(self):
        self._batches: list[tuple[str, Any]] = []

    def take(self) -> list[tuple[str, Any]]:
        """Return what was drawn since the last call."""
        taken, self._batches = self._batches, []
        return taken


def recording(oracle: Oracle) -> tuple[Oracle, Drawn]:
    """Return an oracle that records the batches it draws. Take its steps inside ``python_loops()``.

    Args:
      oracle: such as `bilax.make_oracle` returns.

    Returns:
      The oracle to use, and `Drawn`, whose ``take()`` returns the batches.

    >>> from bilax import MRBO, make_oracle
    >>> from bilax.problems import quadratic
    >>> problem = quadratic().problem
    >>> oracle, drawn = recording(make_oracle(problem))
    >>> method = MRBO(Q=2, S=4, eta=0.5)
    >>> state = method.init(oracle, jnp.asarray(problem.x0), jnp.asarray(problem.y0))
    >>> with python_loops():
    ...     state, info = method.step(oracle, jax.random.key(0), state)
    >>> [level for level, batch in drawn.take()]
    ['G', 'F', 'G', 'G', 'G']
    """
    compiled = {name: jax.jit(getattr(oracle, name)) for name in COLUMNS}
    draws = {name: jax.jit(getattr(oracle, name), static_argnums=1) for name in ("draw_F", "draw_G")}
    oracle = oracle._replace(**compiled, **draws)
    drawn = Drawn()

    def recorded(level: str, draw):
        def call(key, size):
            batch = draw(key, size)
            drawn._batches.append((level, batch))
            return batch

        return call

    return oracle._replace(draw_F=recorded("F", oracle.draw_F), draw_G=recorded("G", oracle.draw_G)), drawn


@contextmanager
def python_loops() -> Iterator[None]:
    """Run the loops and branches of ``jax.lax`` as those of Python, so that all values in them are concrete."""

    def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
        carry, outputs = init, []
        steps = range(size(xs) if length is None else length)
        for i in reversed(steps) if reverse else steps:
            carry, output = f(carry, jax.tree.map(lambda leaf: leaf[i], xs))  # noqa: B023
            outputs.append(output)
        if not outputs:
            return carry, jax.tree.map(lambda leaf: leaf[:0], xs[0] if isinstance(xs, tuple) else xs)
        return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *(outputs[::-1] if reverse else outputs))

    def cond(pred, true_fun, false_fun, *operands):
        return true_fun(*operands) if pred else false_fun(*operands)

    def fori_loop(lower, upper, body, init):
        for i in range(int(lower), int(upper)):
            init = body(i, init)
        return init

    loops = {"scan": scan, "cond": cond, "fori_loop": fori_loop}
    with ExitStack() as stack:
        for name, loop in loops.items():
            stack.enter_context(mock.patch.object(jax.lax, name, loop))
        yield
