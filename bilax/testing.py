"""Tools to test an algorithm, ours or yours: an oracle that counts its calls, and one that records its batches."""

from typing import Any

import jax
import jax.numpy as jnp

from bilax.oracle import Counts, Oracle
from bilax.tree import size
from bilax.types import PyTree


class Tally:
    """Oracle calls that were really made, in samples."""

    def __init__(self):
        self._calls = dict.fromkeys(("F", "G", "JV", "HV"), 0)

    def _add(self, column: str, samples: int) -> None:
        self._calls[column] += samples

    @property
    def counts(self) -> Counts:
        jax.effects_barrier()
        return Counts(**self._calls)


def counting(oracle: Oracle) -> tuple[Oracle, Tally]:
    """Return an oracle that counts the calls it answers, also under jit, scan, cond and vmap."""
    tally = Tally()

    def counted(column: str, fn):
        def call(x: PyTree, y: PyTree, batch: PyTree, *r: PyTree):
            samples = size(batch)
            # Something of every argument goes in, so that vmap over any of them counts once per element.
            arguments = [leaf.ravel()[0].astype(float) for leaf in jax.tree.leaves((x, y, batch, r))]
            jax.debug.callback(lambda _: tally._add(column, samples), sum(arguments, jnp.zeros(())))
            return fn(x, y, batch, *r)

        return call

    columns = {"grad_F": "F", "grad_G": "G", "jvp_G": "JV", "hvp_G": "HV"}
    return oracle._replace(**{name: counted(column, getattr(oracle, name)) for name, column in columns.items()}), tally


class Drawn:
    """The batches that were drawn, in order: pairs of "F" or "G" and the batch."""

    def __init__(self):
        self.batches: list[tuple[str, Any]] = []

    def take(self) -> list[tuple[str, Any]]:
        """Return what was drawn since the last call."""
        taken, self.batches = self.batches, []
        return taken


def recording(oracle: Oracle) -> tuple[Oracle, Drawn]:
    """Return an oracle that records the batches it draws. Use it under ``jax.disable_jit()``."""
    drawn = Drawn()

    def recorded(level: str, draw):
        def call(key, size):
            batch = draw(key, size)
            drawn.batches.append((level, batch))
            return batch

        return call

    return oracle._replace(draw_F=recorded("F", oracle.draw_F), draw_G=recorded("G", oracle.draw_G)), drawn
