"""The tables that drive the tests. A new algorithm adds one row to ALGORITHM_CASES."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import baselines
import jax
import jax.numpy as jnp
import numpy as np
import transcript
import transcript_soba
from stepping import Batches

import bilax
from bilax import MRBO, VRBO, Problem, iterate
from bilax.hypergrad import dense, neumann
from bilax.problems import HyperCleaning, hyper_cleaning, quadratic
from bilax.sampling import keys

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
    """An algorithm on small batches, and what is known about it."""

    name: str
    make: Callable[..., Any]  # (**changes) -> algorithm; changes that it has no name for are ignored
    transcript: Callable[..., list[dict]]  # (algorithm, case, drawn: list per step, K, **projections) -> rows
    converges: tuple[Any, int]  # settings and steps that reach 1e-3 on the noisy quadratic
    # (algorithm, oracle, state) -> pairs of what the state holds and what it must be, if every batch is all data
    exact: Callable[..., list[tuple]] | None = None
    projects: str = "xy"  # the variables that the transcript projects

    def __str__(self) -> str:
        return self.name

    @property
    def method(self) -> str:
        """The registered name of the method that this is a variant of."""
        return type(self.converges[0]).about.name


def _numbers(batch) -> np.ndarray:
    return np.asarray(batch["number"])


def _series(draws: list) -> Batches:
    """B_y, B_F, B_G, then the factors, B_Q first: the order in which a step draws."""
    (_, B_y), (_, B_F), (_, B_G), *factors = draws
    assert [level for level, _ in draws[:3]] == ["G", "F", "G"]
    factors = [_numbers(batch) for _, batch in factors]
    B = {len(factors) - i: batch for i, batch in enumerate(factors)}
    # Transcripts take the factors by number or in order.
    return Batches(B_y=_numbers(B_y), B_F=_numbers(B_F), B_G=_numbers(B_G), B=B, factors=factors)


def _loop_then_series(T: int, draws: list) -> Batches:
    """T inner batches, then B_F, B_G and the factors."""
    s = _series(draws[T - 1 :])
    s.B_y = [_numbers(batch) for _, batch in draws[:T]]
    return s


def _series_then_loop(Q: int, draws: list) -> Batches:
    """B_F, B_G, the Q factors, then the inner batches."""
    s = _series([draws[-1], *draws[: 2 + Q]])
    s.B_y = [_numbers(batch) for _, batch in draws[2 + Q :]]
    return s


def _two(draws: list) -> Batches:
    (_, B_G), (_, B_F) = draws
    return Batches(B_G=_numbers(B_G), B_F=_numbers(B_F))


def _outer_then_loop(T: int, draws: list) -> Batches:
    """B_F, then the T inner batches; reverse draws them again on its way back."""
    assert draws[0][0] == "F"
    return Batches(B_F=_numbers(draws[0][1]), B_y=[_numbers(batch) for _, batch in draws[1 : T + 1]])


def _written(method: Callable, layout: Callable[[Any, list], Any], parameters: Callable[[Any], dict]) -> Callable:
    """A transcript that is called with the drawn batches, laid out, and the algorithm's parameters."""

    def run(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
        draws = [_laid_out(layout, a, k, step) for k, step in enumerate(drawn)]
        rows = method(case.twin, case.x0, case.y0.ravel(), draws.__getitem__, K, **parameters(a), **projections)
        return [{**row, "draws": batches} for row, batches in zip(rows, draws, strict=True)]

    return run


def _laid_out(layout: Callable[[Any, list], Any], a: Any, k: int, step: list) -> Any:
    try:
        return layout(a, step)
    except (AssertionError, ValueError, IndexError) as error:
        levels = " ".join(level for level, _ in step)
        raise AssertionError(f"step {k}: the draws do not agree with the row's layout; drawn: {levels}") from error


def _named(*names: str, **renamed: str) -> Callable[[Any], dict]:
    return lambda a: {n: getattr(a, n) for n in names} | {theirs: getattr(a, ours) for theirs, ours in renamed.items()}


def _terms(parameters: Callable[[Any], dict]) -> Callable[[Any], dict]:
    """A series of random length up to Q has N = Q + 1 terms."""
    return lambda a: parameters(a) | {"N": a.Q + 1, "eta": a.eta}


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


def _aid_parameters(a: Any) -> dict:
    if isinstance(a, bilax.AIDFP):
        estimator = partial(baselines.fixed_point, steps=a.N, eta=a.eta)
    else:
        estimator = partial(baselines.conjugate_gradient, steps=a.N)
    return {"alpha": a.alpha, "beta": a.beta, "T": a.T, "estimator": estimator}


def _G_y(oracle, x, y):
    return oracle.grad_G(x, y, oracle.draw_G(keys.root(0), 1))


def _Phi(a, oracle, x, y):
    estimator = neumann.hypergrad_per_sample if getattr(a, "per_sample", False) else neumann.hypergrad
    return estimator(oracle, x, y, neumann.draw(oracle, keys.root(0), 1, a.Q), a.eta).value


def _matrices(oracle, x, y):
    return dense.matrices(oracle, x, y, oracle.draw_G(keys.root(0), 1))


def _exact_behind(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x_prev, s.y_prev)), (s.u, _G_y(oracle, s.x_prev, s.y_prev))]


def _exact_here(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x, s.y)), (s.u, _G_y(oracle, s.x, s.y))]


def _exact_mrbo_d(a, oracle, s):
    return [(s.v, _Phi(a, oracle, s.x_prev, s.y_prev)), (s.u, _G_y(oracle, s.x_prev, s.y_last))]


def _exact_sustain(a, oracle, s):
    return [(s.u, _G_y(oracle, s.x_prev, s.y_prev))]  # v follows a series whose length changes


def _exact_stable(a, oracle, s):
    return [(s.H, _matrices(oracle, s.x_prev, s.y_prev))]


def _exact_rsvrb(a, oracle, s):
    F_x, F_y = oracle.grad_F(s.x_prev, s.y_prev, oracle.draw_F(keys.root(0), 1))
    G_y, H = _G_y(oracle, s.x_prev, s.y_prev), _matrices(oracle, s.x_prev, s.y_prev)
    return [(s.z.a, F_x), (s.z.b, F_y), (s.z.s, G_y), (s.z.H, H)]


def _merge(algorithm: type, **default) -> Callable[..., Any]:
    known = {field.name for field in fields(algorithm)}
    return lambda **changes: algorithm(**(default | {n: v for n, v in changes.items() if n in known}))


_STORM = dict(gamma=0.3, lam=0.4, c1=0.9, c2=1.1, d=0.9, m=3.0, Q=3, eta=0.2, S=5)
_SARAH = dict(alpha=0.2, beta=0.3, m=1, q=4, Q=3, eta=0.2, S1=9, S2=5)

ALGORITHM_CASES = [
    AlgorithmCase(
        "mrbo",
        _merge(MRBO, **_STORM),
        _written(transcript.mrbo, lambda a, d: _series(d), _named("gamma", "lam", "c1", "c2", "d", "m", "Q", "eta")),
        (MRBO(gamma=0.3, lam=1.0, c1=2.0, c2=2.0, d=1.0, m=8.0, Q=8, S=64), 3000),
        _exact_behind,
        projects="",
    ),
    AlgorithmCase(
        "mrbo-d",
        _merge(bilax.MRBOD, N=3, **_STORM),
        _written(
            baselines.mrbo_d,
            lambda a, d: _series_then_loop(a.Q, d),
            _named("gamma", "lam", "c1", "c2", "d", "m", "Q", "eta", inner="N"),
        ),
        (bilax.MRBOD(gamma=0.3, lam=1.0, c1=2.0, c2=2.0, N=5, Q=8, S=64), 1500),
        _exact_mrbo_d,
    ),
    AlgorithmCase(
        "vrbo",
        _merge(VRBO, **_SARAH),
        _vrbo_transcript,
        (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64), 200),
        _exact_here,
        projects="",
    ),
    AlgorithmCase(
        "vrbo-per-sample",
        _merge(VRBO, per_sample=True, **_SARAH),
        _vrbo_transcript,
        (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64, per_sample=True), 200),
        _exact_here,
        projects="",
    ),
    AlgorithmCase(
        "stocbio",
        _merge(bilax.StocBiO, alpha=0.3, beta=0.2, D=3, Q=3, eta=0.2, S=5),
        _written(baselines.stocbio, lambda a, d: _loop_then_series(a.D, d), _named("alpha", "beta", "D", "Q", "eta")),
        (bilax.StocBiO(alpha=0.5, beta=0.02, D=5, Q=8, S=256), 1000),
    ),
    AlgorithmCase(
        "bsa",
        _merge(bilax.BSA, alpha=0.2, beta=0.3, a=0.5, b=0.3, T=3, Q=3, eta=0.2, S=1),
        _written(baselines.bsa, lambda a, d: _loop_then_series(a.T, d), _terms(_named("alpha", "beta", "a", "b", "T"))),
        (bilax.BSA(alpha=0.2, beta=0.3, a=0.6, T=10, Q=8, S=128), 4000),
    ),
    AlgorithmCase(
        "ttsa",
        _merge(bilax.TTSA, alpha=0.2, beta=0.3, Q=3, eta=0.2, S=1),
        _written(baselines.ttsa, lambda a, d: _series(d), _terms(_named("alpha", "beta", "a", "b"))),
        (bilax.TTSA(alpha=0.3, beta=0.8, Q=8, S=256), 4000),
    ),
    AlgorithmCase(
        "mstsa",
        _merge(bilax.MSTSA, alpha=0.2, beta=0.3, c=2.0, Q=3, eta=0.2, S=1),
        _written(baselines.mstsa, lambda a, d: _series(d), _terms(_named("alpha", "beta", "c"))),
        (bilax.MSTSA(alpha=0.1, beta=0.9, c=10.0, Q=8, S=256), 4000),
    ),
    AlgorithmCase(
        "sustain",
        _merge(bilax.SUSTAIN, c=0.3, c_b=0.9, c_f=3.0, c_g=4.0, w=3.0, Q=3, eta=0.2, S=1),
        _written(baselines.sustain, lambda a, d: _series(d), _terms(_named("c", "c_b", "c_f", "c_g", "w"))),
        (bilax.SUSTAIN(c=0.2, c_b=4.0, c_f=30.0, c_g=30.0, Q=8, S=256), 4000),
        _exact_sustain,
    ),
    AlgorithmCase(
        "sema",
        _merge(bilax.SEMA, gamma=0.2, tau=0.3, alpha=0.4, beta=0.6, Q=3, eta=0.2, S=5),
        _written(baselines.sema, lambda a, d: _series(d), _named("gamma", "tau", "alpha", "beta", "Q", "eta")),
        (bilax.SEMA(gamma=0.01, tau=0.1, alpha=0.1, beta=0.2, Q=8, S=256), 2000),
    ),
    AlgorithmCase(
        "stable",
        _merge(bilax.STABLE, alpha=0.1, beta=0.3, tau=0.4, mu=0.05, C=2.0, S=1),
        _written(baselines.stable, lambda a, d: _two(d), _named("alpha", "beta", "tau", "mu", "C")),
        (bilax.STABLE(alpha=0.02, beta=0.1, tau=0.1, mu=0.1, S=512), 1500),
        _exact_stable,
    ),
    AlgorithmCase(
        "rsvrb",
        _merge(bilax.RSVRB, gamma=0.1, tau=2.0, beta=0.4, mu=0.05, C=2.0, S=1),
        _written(baselines.rsvrb, lambda a, d: _two(d), _named("gamma", "tau", "beta", "mu", "C")),
        (bilax.RSVRB(gamma=0.02, tau=5.0, beta=0.05, mu=0.1, S=256), 1500),
        _exact_rsvrb,
    ),
    AlgorithmCase(
        "aid-fp",
        _merge(bilax.AIDFP, alpha=0.2, beta=0.3, T=3, N=4, eta=0.2, S=5),
        _written(baselines.aid, lambda a, d: _loop_then_series(a.T, d), _aid_parameters),
        (bilax.AIDFP(alpha=0.1, beta=0.5, T=10, N=20, S=1024), 400),
    ),
    AlgorithmCase(
        "aid-cg",
        _merge(bilax.AIDCG, alpha=0.2, beta=0.3, T=3, N=3, S=5),
        _written(baselines.aid, lambda a, d: _loop_then_series(a.T, d), _aid_parameters),
        (bilax.AIDCG(alpha=0.1, beta=0.5, T=10, N=4, S=1024), 400),
    ),
    AlgorithmCase(
        "reverse",
        _merge(bilax.Reverse, alpha=0.2, beta=0.3, T=7, S=5),
        _written(baselines.reverse, lambda a, d: _outer_then_loop(a.T, d), _named("alpha", "beta", "T", "last")),
        (bilax.Reverse(alpha=0.1, beta=0.5, T=20, S=1024), 400),
        projects="x",
    ),
    AlgorithmCase(
        "reverse-truncated",
        _merge(bilax.Reverse, alpha=0.2, beta=0.3, T=7, K=5, S=5),
        _written(baselines.reverse, lambda a, d: _outer_then_loop(a.T, d), _named("alpha", "beta", "T", "last")),
        (bilax.Reverse(alpha=0.1, beta=0.5, T=20, K=12, S=1024), 400),
        projects="x",
    ),
    AlgorithmCase(
        "soba",
        _merge(bilax.SOBA, gamma=0.2, rho=0.3, rho_v=0.2, a=0.4, b=0.3, S=5),
        _written(transcript_soba.soba, lambda a, d: _two(d), _named("gamma", "rho", "rho_v", "a", "b")),
        (bilax.SOBA(gamma=0.1, rho=0.8, a=0.5, b=0.3, S=256), 4000),
    ),
]

# One row per registered name, without the variants: enough for what does not depend on the mathematics.
METHOD_CASES = [case for case in ALGORITHM_CASES if case.name in bilax.ALGORITHMS]


def final_state(case: ProblemCase, algorithm, steps: int, **options):
    """Run on a problem case and return the last state."""
    run = jax.jit(lambda a: iterate(case.problem, a, case.x0, case.y0, steps=steps, **options)[0])
    return run(algorithm)
