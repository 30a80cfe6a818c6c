"""The tables that drive the tests. A new algorithm adds one row to ALGORITHM_CASES."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import transcript

from bilax import MRBO, VRBO, Problem, iterate
from bilax.problems import HyperCleaning, hyper_cleaning, quadratic

# ---------------------------------------------------------------- problems


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

# ---------------------------------------------------------------- algorithms


@dataclass(frozen=True)
class AlgorithmCase:
    """An algorithm on small batches, its NumPy transcript, and what holds for it when every batch is all data."""

    name: str
    make: Callable[..., Any]  # (**changes) -> algorithm
    transcript: Callable[..., list[dict]]  # (algorithm, case, drawn: list per step, K) -> dicts with x y v u
    directions: Callable[[Any], tuple]  # state after the step -> (x, y, v, u): v, u must be exact at (x, y)
    converges: Callable[[], tuple[Any, int]]  # () -> (algorithm, steps) for the noisy quadratic

    def __str__(self) -> str:
        return self.name


def _numbers(batch) -> np.ndarray:
    return np.asarray(batch["number"])


def _series(draws: list) -> SimpleNamespace:
    """B_y, B_F, B_G, then B_Q, ..., B_1: the order in which a step draws."""
    (_, B_y), (_, B_F), (_, B_G), *factors = draws
    assert [level for level, _ in draws[:3]] == ["G", "F", "G"]
    Q = len(factors)
    return SimpleNamespace(
        B_y=_numbers(B_y),
        B_F=_numbers(B_F),
        B_G=_numbers(B_G),
        B={Q - i: _numbers(b) for i, (_, b) in enumerate(factors)},
    )


def _mrbo_transcript(a: MRBO, case: ProblemCase, drawn: list, K: int) -> list[dict]:
    draws = [_series(step) for step in drawn]
    return transcript.mrbo(
        case.twin, case.x0, case.y0.ravel(), draws.__getitem__, K,
        gamma=a.gamma, lam=a.lam, c1=a.c1, c2=a.c2, d=a.d, m=a.m, Q=a.Q, eta=a.eta,
    )  # fmt: skip


def _vrbo_transcript(a: VRBO, case: ProblemCase, drawn: list, K: int) -> list[dict]:
    each = 3 + a.Q
    large, small = {}, {}
    for k, step in enumerate(drawn):
        groups = [_series(step[i : i + each]) for i in range(0, len(step), each)]
        if k % a.q == 0:
            large[k] = groups.pop(0)
        assert len(groups) == a.m + 2
        small[k] = groups
    rows = transcript.vrbo(
        case.twin, case.x0, case.y0.ravel(), large.__getitem__, lambda k, t: small[k][t], K,
        alpha=a.alpha, beta=a.beta, m=a.m, q=a.q, Q=a.Q, eta=a.eta, per_sample=a.per_sample,
    )  # fmt: skip
    return [{**row, "v": row["v_last"], "u": row["u_last"]} for row in rows]


_MRBO = dict(gamma=0.3, lam=0.4, c1=0.9, c2=1.1, d=0.9, m=3.0, Q=3, eta=0.2, S=5)
_VRBO = dict(alpha=0.2, beta=0.3, m=2, q=4, Q=3, eta=0.2, S1=9, S2=5)


def _merge(default: dict, algorithm: type) -> Callable[..., Any]:
    return lambda **changes: algorithm(**(default | changes))


ALGORITHM_CASES = [
    AlgorithmCase(
        "mrbo",
        _merge(_MRBO, MRBO),
        _mrbo_transcript,
        lambda s: (s.x_prev, s.y_prev, s.v, s.u),
        lambda: (MRBO(gamma=0.3, lam=1.0, c1=2.0, c2=2.0, d=1.0, m=8.0, Q=8, S=32), 3000),
    ),
    AlgorithmCase(
        "vrbo",
        _merge(_VRBO, VRBO),
        _vrbo_transcript,
        lambda s: (s.x, s.y, s.v, s.u),
        lambda: (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64), 200),
    ),
    AlgorithmCase(
        "vrbo-per-sample",
        _merge(_VRBO | {"per_sample": True}, VRBO),
        _vrbo_transcript,
        lambda s: (s.x, s.y, s.v, s.u),
        lambda: (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64, per_sample=True), 200),
    ),
]


def final_state(case: ProblemCase, algorithm, steps: int, **options):
    """Run on a problem case and return the last state."""
    run = jax.jit(lambda a: iterate(case.problem, a, case.x0, case.y0, steps=steps, **options)[0])
    return run(algorithm)
