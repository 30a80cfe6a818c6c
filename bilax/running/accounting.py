"""What a run has cost: oracle calls and samples, for the batches that the sampler really makes."""

import dataclasses
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import jax

from bilax.algorithms.protocol import Algorithm
from bilax.hypergrad.auto_eta import LOOK
from bilax.hypergrad.auto_eta import SAMPLES as PROBED
from bilax.hyperparameters import names_of
from bilax.oracle import KINDS, Counts, Oracle, Traced, TracedProblem
from bilax.sampling.samplers import full
from bilax.types import PyTree

COUNTED = 2**31 - 1  # the largest number of a 32-bit counter


class Account:
    """The declared calls of a method, of any stretch of its steps."""

    def __init__(self, algorithm: Algorithm, problem: Traced):
        self._outer, self._inner = _with_real_batches(algorithm, problem)
        self._passes = getattr(algorithm, "passes", float)()  # over all data, in a step, on average
        oracle = problem.oracle() if self._passes else None
        carry = None if not isinstance(problem, TracedProblem) else problem.functions.carry
        self._carried = 0 if carry is None else carry.batch  # samples, in a step, that no oracle is called on
        self._sizes = (0, 0) if oracle is None else (oracle.size_F or 0, oracle.size_G or 0)
        self.period = getattr(algorithm, "period", 1 if hasattr(algorithm, "about") else None)
        self._up_to = lru_cache(maxsize=None)(self._sum)

    def cost(self, k: int) -> Counts:
        """Return the calls of step k."""
        inner = self._inner.cost(k)
        return inner if self._outer is self._inner else replace(inner, F=self._outer.cost(k).F)

    def between(self, first: int, last: int) -> Counts:
        """Return the calls of the steps from ``first`` up to, not including, ``last``."""
        if self.period is None:  # the cost of a method that does not say after how many steps it repeats
            return sum((self.cost(k) for k in range(first, last)), Counts())
        return self._total(last) + -1 * self._total(first)

    def _total(self, k: int) -> Counts:
        periods, rest = divmod(k, cast(int, self.period))
        return periods * self._up_to(self.period) + self._up_to(rest)

    def _sum(self, k: int) -> Counts:
        return sum((self.cost(i) for i in range(k)), Counts())

    def steps_per_call(self, y: PyTree) -> int:
        """Return how many steps the compiled program may take before its 32-bit counters could overflow."""
        names = names_of("batch_size", self._inner)
        sizes = [getattr(self._inner, name) for name in names]
        given = vars(self._inner) if dataclasses.is_dataclass(self._inner) else {}
        values = [value for name, value in given.items() if isinstance(value, int) and name not in names]
        random = getattr(getattr(self._inner, "about", None), "random", {})
        dense = sum(leaf.size for leaf in jax.tree.leaves(y)) if any("d_y" in text for text in random.values()) else 1
        # At most: power iteration on two batches, and products as many as the largest whole number says, at two points.
        most = max([PROBED, *sizes]) * (2 * LOOK + 2 * dense) + 2 * max([1, *sizes]) * max([1, *values])
        most += max(self._sizes) if self._passes else 0
        if most >= COUNTED:
            raise ValueError(
                f"a step with batches of {max([1, *sizes]):,} samples makes up to {most:,} oracle calls, and at most "
                f"{COUNTED:,} can be counted; take smaller batches."
            )
        return COUNTED // most

    def of_init(self, oracle: Oracle) -> Counts:
        """Return the calls that making the first state takes."""
        declared = getattr(self._inner, "init_cost", None)
        return Counts() if declared is None else declared(oracle)

    @property
    def samples_per_step(self) -> float:
        """How many samples a step draws, on average; those on which L is measured are not among them."""
        if not hasattr(self._inner, "draws"):
            return math.nan
        return float(self._outer.draws().F + self._inner.draws().G + self._carried + self._passes * sum(self._sizes))


def plain(calls: Counts) -> Counts:
    """Return counts as numbers of Python, which have no largest one."""
    return Counts(*(int(getattr(calls, kind)) for kind in KINDS))


def _with_real_batches(algorithm: Algorithm, problem: Traced) -> tuple[Any, Any]:
    """Return the algorithm with the batch sizes that it really gets from the outer and from the inner data."""
    sizes = names_of("batch_size", algorithm)
    if not (isinstance(problem, TracedProblem) and problem.sampler is full and sizes):
        return algorithm, algorithm
    # The whole data set stands for a batch of any size.
    oracle = problem.oracle()
    return tuple(replace(cast(Any, algorithm), **dict.fromkeys(sizes, n)) for n in (oracle.size_F, oracle.size_G))
