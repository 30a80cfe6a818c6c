"""The small problems on which every method is tested."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import transcript

from bilax import Problem, solve
from bilax.problems import HyperCleaning, hyper_cleaning, quadratic


@dataclass(frozen=True)
class ProblemCase:
    """A small problem, with its NumPy twin; every sample's number travels with its batch."""

    name: str
    problem: Problem
    twin: Any
    x0: np.ndarray
    y0: np.ndarray  # shaped as the problem wants it
    eta: float  # safe for single samples


def numbered(problem: Problem) -> Problem:
    """Add the sample's number to the data, for the record of what was drawn."""

    def strip(loss):
        return lambda x, y, batch: loss(x, y, batch["data"])

    def number(data):
        return {"data": data, "number": jnp.arange(jax.tree.leaves(data)[0].shape[0])}

    return Problem(
        strip(problem.outer_loss), strip(problem.inner_loss), number(problem.outer_data), number(problem.inner_data)
    )


def _quadratic_case() -> ProblemCase:
    q = quadratic(inner_size=24, outer_size=24, seed=1)
    s, t = q.inner["s"][:, None, None], q.inner["t"][:, None, None]
    twin = transcript.Quadratic(q.A + s * q.B, q.C + t * q.E, q.inner["b"], q.outer["theta"], q.outer["c"], q.delta)
    rng = np.random.default_rng(2)
    return ProblemCase("quadratic", numbered(q.problem), twin, rng.normal(size=3), rng.normal(size=4), eta=0.6)


def _softmax_case() -> ProblemCase:
    rng = np.random.default_rng(3)
    n, features, classes, C = 24, 4, 3, 0.05
    data = HyperCleaning(
        features=rng.normal(size=(n, features)),
        labels=rng.integers(classes, size=n),
        true_labels=rng.integers(classes, size=n),
        trusted_features=rng.normal(size=(n, features)),
        trusted_labels=rng.integers(classes, size=n),
        test_features=rng.normal(size=(5, features)),
        test_labels=rng.integers(classes, size=5),
        classes=classes,
    )
    twin = transcript.HyperCleaning(data.features, data.labels, data.trusted_features, data.trusted_labels, classes, C)
    x0, y0 = rng.normal(size=n), rng.normal(size=(classes, features))
    return ProblemCase("softmax", numbered(hyper_cleaning(data, C)), twin, x0, y0, eta=0.2)


PROBLEM_CASES = [_quadratic_case(), _softmax_case()]


def final_state(case: ProblemCase, algorithm, steps: int, **options):
    """Run on a problem case and return the last state (by `solve`, which compiles once for any number of steps)."""
    return solve(case.problem, algorithm, case.x0, case.y0, steps=steps, every=steps, **options).state
