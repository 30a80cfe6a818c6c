"""The table of methods that drives the tests. A new one adds one row to ALGORITHM_CASES."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import baselines
import exact_states as exact
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
from batch_layouts import (
    five,
    loop_outer_loop,
    loop_then_series,
    named,
    numbers,
    outer_then_loop,
    points_then_two,
    series,
    series_then_loop,
    terms,
    two,
    two_or_none,
    written,
)
from problem_cases import ProblemCase
from stepping import Batches

import bilax
from bilax import MRBO, VRBO
from bilax.algorithms import pzobo, saba, spaba
from bilax.sampling import keys


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


def _vrbo_transcript(a: VRBO, case: ProblemCase, drawn: list, K: int) -> list[dict]:
    each = 3 + a.Q
    large, small = {}, {}
    for k, step in enumerate(drawn):
        groups = [series(step[i : i + each]) for i in range(0, len(step), each)]
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
        return named("gamma", "rho", "rho_v", "radius")(a) | {"refresh": lambda k: refresh(a, k), "n": 24, "m": 24}

    return written(transcript_srba.sarah, lambda a, d: two_or_none(d), parameters)


def _saba_transcript(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
    blocks = [np.arange(start, min(start + a.S, 24)) for start in range(0, 24, a.S)]
    chosen = [saba.chosen(keys.at(keys.root(7), k), len(blocks), len(blocks)) for k in range(K)]
    draws = [Batches(i=int(i), j=int(j)) for i, j in chosen]
    return transcript_saba.saba(
        case.twin, case.x0, case.y0.ravel(), draws.__getitem__, K, blocks_G=blocks, blocks_F=blocks,
        **named("gamma", "rho", "rho_v")(a), **projections,
    )  # fmt: skip


def _pzobo_transcript(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
    def batches(k: int, step: list) -> Batches:
        assert [level for level, _ in step] == ["G"] * a.N + ["F"]
        u = pzobo.directions(jax.random.split(keys.at(keys.root(7), k), 3)[2], jnp.asarray(case.x0), a.R)
        return Batches(B_y=[numbers(batch) for _, batch in step[:-1]], B_F=numbers(step[-1][1]), u=np.asarray(u))

    draws = [batches(k, step) for k, step in enumerate(drawn)]
    return transcript_pzobo.pzobo(
        case.twin,
        case.x0,
        case.y0.ravel(),
        draws.__getitem__,
        K,
        **named("gamma", "beta", "mu", "N")(a),
        **projections,
    )


def _aid_parameters(a: Any) -> dict:
    if isinstance(a, bilax.AIDFP):
        estimator = partial(baselines.fixed_point, steps=a.N, eta=a.eta)
    else:
        estimator = partial(baselines.conjugate_gradient, steps=a.N)
    return {"alpha": a.alpha, "beta": a.beta, "T": a.T, "estimator": estimator}


def _merge(algorithm: type, **default) -> Callable[..., Any]:
    known = {field.name for field in fields(algorithm)}
    return lambda **changes: algorithm(**(default | {n: v for n, v in changes.items() if n in known}))


_STORM = dict(gamma=0.3, lam=0.4, c1=0.9, c2=1.1, d=0.9, m=3.0, Q=3, eta=0.2, S=5)
_SARAH = dict(alpha=0.2, beta=0.3, m=1, q=4, Q=3, eta=0.2, S1=9, S2=5)

ALGORITHM_CASES = [
    AlgorithmCase(
        "mrbo",
        _merge(MRBO, **_STORM),
        written(transcript.mrbo, lambda a, d: series(d), named("gamma", "lam", "c1", "c2", "d", "m", "Q", "eta")),
        (MRBO(gamma=0.3, lam=1.0, c1=2.0, c2=2.0, d=1.0, m=8.0, Q=8, S=64), 3000),
        exact.behind,
        projects="",
    ),
    AlgorithmCase(
        "mrbo-d",
        _merge(bilax.MRBOD, N=3, **_STORM),
        written(
            baselines.mrbo_d,
            lambda a, d: series_then_loop(a.Q, d),
            named("gamma", "lam", "c1", "c2", "d", "m", "Q", "eta", inner="N"),
        ),
        (bilax.MRBOD(gamma=0.3, lam=1.0, c1=2.0, c2=2.0, N=5, Q=8, S=64), 1500),
        exact.mrbo_d,
    ),
    AlgorithmCase(
        "vrbo",
        _merge(VRBO, **_SARAH),
        _vrbo_transcript,
        (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64), 200),
        exact.here,
        projects="",
    ),
    AlgorithmCase(
        "vrbo-per-sample",
        _merge(VRBO, per_sample=True, **_SARAH),
        _vrbo_transcript,
        (VRBO(alpha=0.1, beta=0.3, m=5, q=5, Q=8, S1=8192, S2=64, per_sample=True), 200),
        exact.here,
        projects="",
    ),
    AlgorithmCase(
        "stocbio",
        _merge(bilax.StocBiO, alpha=0.3, beta=0.2, D=3, Q=3, eta=0.2, S=5),
        written(baselines.stocbio, lambda a, d: loop_then_series(a.D, d), named("alpha", "beta", "D", "Q", "eta")),
        (bilax.StocBiO(alpha=0.5, beta=0.02, D=5, Q=8, S=256), 1000),
    ),
    AlgorithmCase(
        "bsa",
        _merge(bilax.BSA, alpha=0.2, beta=0.3, a=0.5, b=0.3, T=3, Q=3, eta=0.2, S=1),
        written(baselines.bsa, lambda a, d: loop_then_series(a.T, d), terms(named("alpha", "beta", "a", "b", "T"))),
        (bilax.BSA(alpha=0.2, beta=0.3, a=0.6, T=10, Q=8, S=128), 4000),
    ),
    AlgorithmCase(
        "ttsa",
        _merge(bilax.TTSA, alpha=0.2, beta=0.3, Q=3, eta=0.2, S=1),
        written(baselines.ttsa, lambda a, d: series(d), terms(named("alpha", "beta", "a", "b"))),
        (bilax.TTSA(alpha=0.3, beta=0.8, Q=8, S=256), 4000),
    ),
    AlgorithmCase(
        "mstsa",
        _merge(bilax.MSTSA, alpha=0.2, beta=0.3, c=2.0, Q=3, eta=0.2, S=1),
        written(baselines.mstsa, lambda a, d: series(d), terms(named("alpha", "beta", "c"))),
        (bilax.MSTSA(alpha=0.1, beta=0.9, c=10.0, Q=8, S=256), 4000),
    ),
    AlgorithmCase(
        "sustain",
        _merge(bilax.SUSTAIN, c=0.3, c_b=0.9, c_f=3.0, c_g=4.0, w=3.0, Q=3, eta=0.2, S=1),
        written(baselines.sustain, lambda a, d: series(d), terms(named("c", "c_b", "c_f", "c_g", "w"))),
        (bilax.SUSTAIN(c=0.2, c_b=4.0, c_f=30.0, c_g=30.0, Q=8, S=256), 4000),
        exact.sustain,
    ),
    AlgorithmCase(
        "sema",
        _merge(bilax.SEMA, gamma=0.2, tau=0.3, alpha=0.4, beta=0.6, Q=3, eta=0.2, S=5),
        written(baselines.sema, lambda a, d: series(d), named("gamma", "tau", "alpha", "beta", "Q", "eta")),
        (bilax.SEMA(gamma=0.01, tau=0.1, alpha=0.1, beta=0.2, Q=8, S=256), 2000),
    ),
    AlgorithmCase(
        "stable",
        _merge(bilax.STABLE, alpha=0.1, beta=0.3, tau=0.4, mu=0.05, C=2.0, S=1),
        written(baselines.stable, lambda a, d: two(d), named("alpha", "beta", "tau", "mu", "C")),
        (bilax.STABLE(alpha=0.02, beta=0.1, tau=0.1, mu=0.1, S=512), 1500),
        exact.stable,
    ),
    AlgorithmCase(
        "rsvrb",
        _merge(bilax.RSVRB, gamma=0.1, tau=2.0, beta=0.4, mu=0.05, C=2.0, S=1),
        written(baselines.rsvrb, lambda a, d: two(d), named("gamma", "tau", "beta", "mu", "C")),
        (bilax.RSVRB(gamma=0.02, tau=5.0, beta=0.05, mu=0.1, S=256), 1500),
        exact.rsvrb,
    ),
    AlgorithmCase(
        "aid-fp",
        _merge(bilax.AIDFP, alpha=0.2, beta=0.3, T=3, N=4, eta=0.2, S=5),
        written(baselines.aid, lambda a, d: loop_then_series(a.T, d), _aid_parameters),
        (bilax.AIDFP(alpha=0.1, beta=0.5, T=10, N=20, S=1024), 400),
    ),
    AlgorithmCase(
        "aid-cg",
        _merge(bilax.AIDCG, alpha=0.2, beta=0.3, T=3, N=3, S=5),
        written(baselines.aid, lambda a, d: loop_then_series(a.T, d), _aid_parameters),
        (bilax.AIDCG(alpha=0.1, beta=0.5, T=10, N=4, S=1024), 400),
    ),
    AlgorithmCase(
        "reverse",
        _merge(bilax.Reverse, alpha=0.2, beta=0.3, T=7, S=5),
        written(baselines.reverse, lambda a, d: outer_then_loop(a.T, d), named("alpha", "beta", "T", "last")),
        (bilax.Reverse(alpha=0.1, beta=0.5, T=20, S=1024), 400),
        projects="x",
    ),
    AlgorithmCase(
        "reverse-truncated",
        _merge(bilax.Reverse, alpha=0.2, beta=0.3, T=7, K=5, S=5),
        written(baselines.reverse, lambda a, d: outer_then_loop(a.T, d), named("alpha", "beta", "T", "last")),
        (bilax.Reverse(alpha=0.1, beta=0.5, T=20, K=12, S=1024), 400),
        projects="x",
    ),
    AlgorithmCase(
        "soba",
        _merge(bilax.SOBA, gamma=0.2, rho=0.3, rho_v=0.2, a=0.4, b=0.3, S=5),
        written(transcript_soba.soba, lambda a, d: two(d), named("gamma", "rho", "rho_v", "a", "b")),
        (bilax.SOBA(gamma=0.1, rho=0.8, a=0.5, b=0.3, S=256), 4000),
    ),
    AlgorithmCase(
        "ma-soba",
        _merge(bilax.MASOBA, alpha=0.2, beta=0.3, nu=0.2, theta=0.4, S=5),
        written(transcript_ma_soba.ma_soba, lambda a, d: two(d), named("alpha", "beta", "nu", "theta")),
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
        exact.soba_directions,
    ),
    AlgorithmCase(
        "srba-ball",
        _merge(bilax.SRBA, gamma=0.1, rho=0.3, rho_v=0.2, q=3, S=5, radius=0.2),
        _sarah_transcript(lambda a, k: k % a.q == 0),
        (bilax.SRBA(gamma=0.05, rho=0.3, q=20, S=64, radius=100.0), 1000),
        exact.soba_directions,
    ),
    AlgorithmCase(
        "spaba",
        _merge(bilax.SPABA, gamma=0.1, rho=0.3, rho_v=0.2, q=4, S=5),
        _sarah_transcript(lambda a, k: bool(spaba.refreshes(k, a.q))),
        (bilax.SPABA(gamma=0.05, rho=0.3, q=20, S=64), 1000),
        exact.soba_directions,
    ),
    AlgorithmCase(
        "spaba-large-batch",
        _merge(bilax.SPABA, gamma=0.1, rho=0.3, rho_v=0.2, q=3, S=5, S1=9),
        _sarah_transcript(lambda a, k: bool(spaba.refreshes(k, a.q))),
        (bilax.SPABA(gamma=0.05, rho=0.3, q=10, S=256, S1=16384), 1000),
        exact.soba_directions,
    ),
    AlgorithmCase(
        "fsla",
        _merge(bilax.FSLA, gamma=0.2, rho=0.3, rho_v=0.2, theta=0.8, S=5),
        written(transcript_fsla.fsla, lambda a, d: five(d), named("gamma", "rho", "rho_v", "theta")),
        (bilax.FSLA(gamma=0.1, rho=1.0, theta=0.5, S=256), 4000),
    ),
    AlgorithmCase(
        "amigo",
        _merge(bilax.AmIGO, gamma=0.2, rho=0.3, rho_v=0.2, T=3, S=5),
        written(transcript_amigo.amigo, lambda a, d: loop_outer_loop(a.T, d), named("gamma", "rho", "rho_v", "T")),
        (bilax.AmIGO(gamma=0.05, rho=0.3, T=5, S=1024), 600),
    ),
    *(
        AlgorithmCase(
            name,
            _merge(bilax.F2SA, gamma=0.1, beta=0.3, nu=0.2, c=0.2, T=3, S=5, P=P),
            written(transcript_f2sa.f2sa, points_then_two, named("gamma", "nu", "c", "T", "P", eta="beta")),
            (bilax.F2SA(gamma=0.02, beta=0.3, nu=nu, T=10, S=1024, P=P), 800),
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
            written(
                transcript_bome.bome, lambda a, d: two(d), named("gamma", "rho", "alpha", "T", "by_value", eta="c")
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
