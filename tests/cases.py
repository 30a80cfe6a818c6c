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
import transcript_amigo
import transcript_bome
import transcript_f2sa
import transcript_fsla
import transcript_ma_soba
import transcript_pzobo
import transcript_saba
import transcript_soba
import transcript_srba
from stepping import Batches

import bilax
from bilax import MRBO, VRBO, Problem, solve
from bilax.algorithms import directions, pzobo, saba, spaba
from bilax.algorithms.f2sa import WEIGHTS
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
    biased: float = 1.0  # how many times the target, for a method that is not exact with constants that stay

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


def _loop_outer_loop(T: int, draws: list) -> Batches:
    """T inner batches for y, the outer batch, T inner batches for v, one more."""
    assert [level for level, _ in draws] == ["G"] * T + ["F"] + ["G"] * (T + 1)
    numbers = [_numbers(batch) for _, batch in draws]
    return Batches(B_y=numbers[:T], B_F=numbers[T], B_v=numbers[T + 1 : -1], B_G=numbers[-1])


def _five(draws: list) -> Batches:
    assert [level for level, _ in draws] == ["G", "G", "G", "F", "F"]
    return Batches(**dict(zip(("B1", "B2", "B4", "B3", "B5"), (_numbers(batch) for _, batch in draws), strict=True)))


def _two_or_none(draws: list) -> Batches:
    return _two(draws) if draws else Batches()


def _points_then_two(a: Any, draws: list) -> Batches:
    """For each inner step an inner and an outer batch for each point, then one of each."""
    *loop, (_, B_G), (_, B_F) = draws
    left = iter(loop)
    inner = [[(_next(left, "G"), _next(left, "F") if j else None) for j in WEIGHTS[a.P]] for _ in range(a.T)]
    assert next(left, None) is None
    return Batches(inner=inner, B_G=_numbers(B_G), B_F=_numbers(B_F))


def _next(left: Any, level: str) -> np.ndarray:
    of, batch = next(left)
    assert of == level
    return _numbers(batch)


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


def _sarah_transcript(refresh: Callable[[Any, int], bool]) -> Callable:
    def parameters(a: Any) -> dict:
        return _named("gamma", "rho", "rho_v", "radius")(a) | {"refresh": lambda k: refresh(a, k), "n": 24, "m": 24}

    return _written(transcript_srba.sarah, lambda a, d: _two_or_none(d), parameters)


def _saba_transcript(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
    blocks = [np.arange(start, min(start + a.S, 24)) for start in range(0, 24, a.S)]
    chosen = [saba.chosen(keys.at(keys.root(7), k), len(blocks), len(blocks)) for k in range(K)]
    draws = [Batches(i=int(i), j=int(j)) for i, j in chosen]
    return transcript_saba.saba(
        case.twin, case.x0, case.y0.ravel(), draws.__getitem__, K, blocks_G=blocks, blocks_F=blocks,
        **_named("gamma", "rho", "rho_v")(a), **projections,
    )  # fmt: skip


def _pzobo_transcript(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
    def batches(k: int, step: list) -> Batches:
        assert [level for level, _ in step] == ["G"] * a.N + ["F"]
        u = pzobo.directions(jax.random.split(keys.at(keys.root(7), k), 3)[2], jnp.asarray(case.x0), a.R)
        return Batches(B_y=[_numbers(batch) for _, batch in step[:-1]], B_F=_numbers(step[-1][1]), u=np.asarray(u))

    draws = [batches(k, step) for k, step in enumerate(drawn)]
    return transcript_pzobo.pzobo(
        case.twin,
        case.x0,
        case.y0.ravel(),
        draws.__getitem__,
        K,
        **_named("gamma", "beta", "mu", "N")(a),
        **projections,
    )


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


def _exact_soba_directions(a, oracle, s):
    d = directions.on_all_data(oracle, directions.Point(s.x_prev, s.y_prev, s.v_prev))
    return [(s.d_x, d.x), (s.d_y, d.y), (s.d_v, d.v)]


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
    AlgorithmCase(
        "ma-soba",
        _merge(bilax.MASOBA, alpha=0.2, beta=0.3, nu=0.2, theta=0.4, S=5),
        _written(transcript_ma_soba.ma_soba, lambda a, d: _two(d), _named("alpha", "beta", "nu", "theta")),
        (bilax.MASOBA(alpha=0.01, beta=0.5, theta=0.1, S=256), 3000),
    ),
    AlgorithmCase(
        "saba",
        _merge(bilax.SABA, gamma=0.1, rho=0.3, rho_v=0.2, S=5),
        _saba_transcript,
        (bilax.SABA(gamma=0.05, rho=0.3, S=256), 2000),
    ),
    AlgorithmCase(
        "srba",
        _merge(bilax.SRBA, gamma=0.1, rho=0.3, rho_v=0.2, q=4, S=5),
        _sarah_transcript(lambda a, k: k % a.q == 0),
        (bilax.SRBA(gamma=0.05, rho=0.3, q=20, S=64), 1000),
        _exact_soba_directions,
    ),
    AlgorithmCase(
        "srba-ball",
        _merge(bilax.SRBA, gamma=0.1, rho=0.3, rho_v=0.2, q=3, S=5, radius=0.2),
        _sarah_transcript(lambda a, k: k % a.q == 0),
        (bilax.SRBA(gamma=0.05, rho=0.3, q=20, S=64, radius=100.0), 1000),
        _exact_soba_directions,
    ),
    AlgorithmCase(
        "spaba",
        _merge(bilax.SPABA, gamma=0.1, rho=0.3, rho_v=0.2, q=4, S=5),
        _sarah_transcript(lambda a, k: bool(spaba.refreshes(k, a.q))),
        (bilax.SPABA(gamma=0.05, rho=0.3, q=20, S=64), 1000),
        _exact_soba_directions,
    ),
    AlgorithmCase(
        "spaba-large-batch",
        _merge(bilax.SPABA, gamma=0.1, rho=0.3, rho_v=0.2, q=3, S=5, S1=9),
        _sarah_transcript(lambda a, k: bool(spaba.refreshes(k, a.q))),
        (bilax.SPABA(gamma=0.05, rho=0.3, q=10, S=256, S1=16384), 1000),
        _exact_soba_directions,
    ),
    AlgorithmCase(
        "fsla",
        _merge(bilax.FSLA, gamma=0.2, rho=0.3, rho_v=0.2, theta=0.8, S=5),
        _written(transcript_fsla.fsla, lambda a, d: _five(d), _named("gamma", "rho", "rho_v", "theta")),
        (bilax.FSLA(gamma=0.1, rho=1.0, theta=0.5, S=256), 4000),
    ),
    AlgorithmCase(
        "amigo",
        _merge(bilax.AmIGO, gamma=0.2, rho=0.3, rho_v=0.2, T=3, S=5),
        _written(transcript_amigo.amigo, lambda a, d: _loop_outer_loop(a.T, d), _named("gamma", "rho", "rho_v", "T")),
        (bilax.AmIGO(gamma=0.05, rho=0.3, T=5, S=1024), 600),
    ),
    *(
        AlgorithmCase(
            name,
            _merge(bilax.F2SA, gamma=0.1, beta=0.3, nu=0.2, c=0.2, T=3, S=5, P=P),
            _written(transcript_f2sa.f2sa, _points_then_two, _named("gamma", "nu", "c", "T", "P", eta="beta")),
            (bilax.F2SA(gamma=0.02, beta=0.3, nu=nu, T=10, S=4096, P=P), 800),
            biased=biased,
        )
        for name, P, nu, biased in (
            ("f2sa", 2, 0.1, 1),
            ("f2sa-first-order", 1, 0.05, 10),
            ("f2sa-fourth-order", 4, 0.1, 1),
        )
    ),
    *(
        AlgorithmCase(
            name,
            _merge(bilax.BOME, gamma=0.1, rho=0.2, alpha=0.3, c=c, T=3, S=5, by_value=by_value),
            _written(
                transcript_bome.bome, lambda a, d: _two(d), _named("gamma", "rho", "alpha", "T", "by_value", eta="c")
            ),
            (bilax.BOME(gamma=0.01, rho=0.02, alpha=0.5, c=0.9, T=20, S=2048, by_value=by_value), 4000),
            biased=10,  # by the noise of q, which is no mean over samples
        )
        # Where lam is 0, x does not move at all if F ignores it.
        for name, by_value, c in (("bome", False, 5.0), ("bome-by-value", True, 0.5))
    ),
    AlgorithmCase(
        "pzobo",
        _merge(bilax.PZOBO, gamma=0.1, beta=0.3, mu=0.05, N=3, R=2, S=5),
        _pzobo_transcript,
        (bilax.PZOBO(gamma=0.02, beta=0.3, N=20, R=10, S=1024), 1000),
    ),
]

# One row per registered name, without the variants: enough for what does not depend on the mathematics.
METHOD_CASES = [case for case in ALGORITHM_CASES if case.name in bilax.ALGORITHMS]


def final_state(case: ProblemCase, algorithm, steps: int, **options):
    """Run on a problem case and return the last state (by `solve`, which compiles once for any number of steps)."""
    return solve(case.problem, algorithm, case.x0, case.y0, steps=steps, every=steps, **options).state
