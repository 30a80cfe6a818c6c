"""Mistakes in hyper-parameters, and numbers of the theory that no problem has."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mistakes import NUMBER, PROBLEM, loss, problem, refused, row, run

import bilax
from bilax import MRBO, SOBA, VRBO, hypergrad, theory


@pytest.mark.parametrize(
    ("make", "message"),
    [
        row(
            lambda: MRBO(gamma=10**400),
            rf"gamma \(outer step size\) must be {NUMBER}; got 10",
            id="a number beyond floats",
        ),
        row(lambda: MRBO(gamma=np.array([])), rf"gamma .* must be {NUMBER}; got ", id="an empty array"),
        row(lambda: MRBO(gamma=True), rf"gamma .* must be {NUMBER}; got True", id="step: a truth value"),
        row(
            lambda: MRBO(gamma=optax.adam),
            rf"gamma .* must be {NUMBER}; got <function adam",
            id="step: an optimiser not called",
        ),
        row(
            lambda: SOBA(rho=(0.1, 0.2)),
            rf"SOBA: rho \(inner step size\) must be {NUMBER}; got \(0\.1, 0\.2\)",
            id="step: a tuple",
        ),
        row(
            lambda: VRBO(alpha=np.float32("nan")),
            rf"VRBO: alpha .* must be {NUMBER}; got .*nan",
            id="step: NaN of NumPy",
        ),
        row(
            lambda: hypergrad.Unrolled(step=-1),
            rf"Unrolled: step \(inner step size\) must be {NUMBER}; got -1",
            id="step of an estimator",
        ),
        row(
            lambda: bilax.ALGORITHMS["rsvrb"](beta=1.5),
            r"beta \(weight of the new pieces\) must be a number from 0 to 1; got 1\.5",
            id="weight: 1.5",
        ),
        row(
            lambda: bilax.ALGORITHMS["sema"](alpha=-0.1),
            r"alpha \(weight of the new hypergradient in its average\) must be a number from 0 to 1; got -0\.1",
            id="weight: negative",
        ),
        row(
            lambda: bilax.ALGORITHMS["stable"](tau="0.5"),
            r"tau .* must be a number from 0 to 1; got '0\.5'",
            id="weight: text",
        ),
        row(
            lambda: bilax.ALGORITHMS["sema"](beta=float("nan")),
            r"beta .* must be a number from 0 to 1; got nan",
            id="weight: NaN",
        ),
        row(
            lambda: bilax.ALGORITHMS["sustain"](w=0),
            r"w \(delay.* must be a finite number > 0; got 0",
            id="positive: 0",
        ),
        row(
            lambda: bilax.ALGORITHMS["mstsa"](w=-1.0),
            r"w \(delay.* must be a finite number > 0; got -1\.0",
            id="positive: negative",
        ),
        row(
            lambda: bilax.ALGORITHMS["stable"](mu=None),
            r"mu .* must be a finite number > 0; got None",
            id="positive: None",
        ),
        row(
            lambda: MRBO(d=optax.sgd(0.1)),
            r"d \(scale.* must be a finite number > 0; got ",
            id="positive: an optimiser",
        ),
        row(
            lambda: MRBO(c1=-1),
            r"c1 \(outer momentum.* must be a finite number >= 0; got -1",
            id="nonnegative: negative",
        ),
        row(
            lambda: SOBA(a=float("inf")),
            r"a \(exponent.* must be a finite number >= 0; got inf",
            id="nonnegative: infinite",
        ),
        row(
            lambda: SOBA(rho_v="Auto"),
            r"rho_v \(step of the linear system.* must be a finite number > 0, or \"auto\"; got 'Auto'",
            id="series step: a word",
        ),
        row(
            lambda: MRBO(eta=True),
            r"eta .* must be a finite number > 0, or \"auto\"; got True",
            id="series step: a truth value",
        ),
        row(
            lambda: MRBO(eta=None), r"eta .* must be a finite number > 0, or \"auto\"; got None", id="series step: None"
        ),
        row(
            lambda: hypergrad.Neumann(eta=-0.1),
            r"Neumann: eta .* must be a finite number > 0, or \"auto\"; got -0\.1",
            id="series step: negative",
        ),
        row(lambda: MRBO(Q="3"), r"Q .* must be an integer >= 1; got '3'", id="count: text"),
        row(lambda: VRBO(m=1.0), r"m .* must be an integer >= 0; got 1\.0", id="count: a float"),
        row(lambda: bilax.ALGORITHMS["reverse"](K=-1), r"K .* must be an integer >= 0; got -1", id="count: negative"),
        row(lambda: bilax.ALGORITHMS["aid-cg"](N=None), r"N .* must be an integer >= 1; got None", id="count: None"),
        row(
            lambda: MRBO(Q=2**31),
            r"Q .* must be an integer .*at most 2147483647\); got 2147483648",
            id="count: beyond int32",
        ),
        row(
            lambda: MRBO(S=2**31),
            r"S .* must be an integer .*at most 2147483647\); got 2147483648",
            id="batch size: beyond int32",
        ),
        row(
            lambda: MRBO(S=-64),
            r"S \(size of every batch\) must be an integer >= 1; got -64",
            id="batch size: negative",
        ),
        row(lambda: VRBO(S1=np.array([8, 16])), r"S1 .* must be an integer >= 1; got ", id="batch size: an array"),
        row(
            lambda: hypergrad.Exact(S=0), r"Exact: S .* must be an integer >= 1; got 0", id="batch size of an estimator"
        ),
        row(lambda: VRBO(per_sample=1), r"per_sample .* must be True or False; got 1", id="switch: 1"),
        row(
            lambda: hypergrad.Neumann(per_sample=None),
            r"per_sample .* must be True or False; got None",
            id="switch: None",
        ),
    ],
)
def test_hyperparameters(make, message):
    refused(make, ValueError, message)


@pytest.mark.parametrize(
    "S",
    [
        row(1_000, id="thousand"),
        row(20_000_000, id="20 million"),
        row(40_000_000, id="40 million"),
    ],
)
def test_counts_do_not_run_over(S):
    """No count runs over where int32 ends: 20 S products measure L, 2 S are used in the one step."""
    empty = lambda x, y, batch: (y - x) ** 2  # of the batch only its size is needed, so nothing is drawn
    given = problem(outer_loss=empty, inner_loss=empty)
    draw = lambda data, key, size: jnp.zeros(size)
    if S > 30_000_000:
        with pytest.raises(
            ValueError, match=r"makes up to [\d,]+ oracle calls, and at most 2,147,483,647 can be counted"
        ):
            run(MRBO(Q=1, S=3 * S), given, sampler=draw)
        return
    counts = run(MRBO(Q=1, S=S), given, sampler=draw).counts
    assert counts.HV == 22 * S


GOOD = theory.Constants(L=1.0, mu=0.5, M=2.0, tau=0.0, rho=0.0, sigma=1.0, radius=1.0)


def constants(**changes):
    return GOOD._replace(**changes)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: theory.derived(constants(mu=0.0), 3, 0.5),
            ValueError,
            r"mu .*must be .*> 0.*got (mu = )?0\.0",
            id="mu 0",
        ),
        row(
            lambda: theory.derived(constants(mu=-1.0), 3, 0.5),
            ValueError,
            r"mu .*must be .*> 0.*got (mu = )?-1\.0",
            id="mu negative",
        ),
        row(
            lambda: theory.derived(constants(mu=2.0), 3, 0.5),
            ValueError,
            r"mu .*at most L.*got mu = 2(\.0)?.*L = 1",
            id="mu above L",
        ),
        row(
            lambda: theory.derived(constants(mu=float("nan")), 3, 0.5),
            ValueError,
            r"mu .*must be .*got (mu = )?nan",
            id="mu NaN",
        ),
        row(
            lambda: theory.derived(constants(L=float("nan")), 3, 0.5),
            ValueError,
            r"L .*must be .*got (L = )?nan",
            id="L NaN",
        ),
        row(
            lambda: theory.derived(constants(L=float("inf")), 3, 0.5),
            ValueError,
            r"L .*must be a finite.*got (L = )?inf",
            id="L infinite",
        ),
        row(
            lambda: theory.derived(constants(M=-1.0), 3, 0.5),
            ValueError,
            r"M .*must be .*>= 0.*got (M = )?-1\.0",
            id="M negative",
        ),
        row(
            lambda: theory.derived(constants(rho="0"), 3, 0.5),
            (TypeError, ValueError),
            r"rho .*must be a (finite )?number.*got (rho = )?'0'",
            id="rho text",
        ),
        row(
            lambda: theory.derived(GOOD, -5, 0.5),
            ValueError,
            r"Q .*must be an integer >= [01].*got -5",
            id="Q negative",
        ),
        row(
            lambda: theory.derived(GOOD, 2.5, 0.5),
            ValueError,
            r"Q .*must be an integer >= [01].*got 2\.5",
            id="Q a float",
        ),
        row(
            lambda: theory.derived(GOOD, 3, -0.5),
            ValueError,
            r"eta .*must be .*> 0.*got -0\.5",
            id="eta negative",
        ),
        row(
            lambda: theory.derived(GOOD, 3, "auto"),
            (TypeError, ValueError),
            r"eta .*must be a .*number.*got 'auto'",
            id="eta auto",
        ),
        row(
            lambda: theory.derived({"L": 1.0, "mu": 0.5}, 3, 0.5),
            TypeError,
            r"bilax\.theory\.Constants.*got dict",
            id="a dictionary",
        ),
        row(
            lambda: theory.Constants(L=1.0, mu=0.5),
            TypeError,
            r"missing 5 required positional arguments: 'M', 'tau', 'rho', 'sigma', and 'radius'",
            id="too few constants",
        ),
        row(
            lambda: theory.explain(SOBA(), GOOD),
            TypeError,
            r"the paper proves theorems for MRBO and VRBO; got SOBA",
            id="explain: another method",
        ),
        row(lambda: theory.explain(MRBO, GOOD), TypeError, r"MRBO\(\)|an instance", id="explain: a class"),
        row(
            lambda: theory.explain("mrbo", GOOD),
            TypeError,
            r"the paper proves theorems for MRBO and VRBO; got str",
            id="explain: a name",
        ),
        row(
            lambda: theory.explain(MRBO(), constants(mu=0.0)),
            ValueError,
            r"mu .*must be .*> 0",
            id="explain: mu 0",
        ),
        row(
            lambda: theory.explain(MRBO(), None),
            TypeError,
            r"bilax\.theory\.Constants.*got NoneType",
            id="explain: no constants",
        ),
        row(
            lambda: theory.explain(MRBO(gamma=optax.adam(0.1)), GOOD),
            (TypeError, ValueError),
            r"gamma .*(a number|optimiser)",
            id="explain: an optimiser",
        ),
        row(
            lambda: theory.explain(MRBO(gamma=jnp.ones(2)), GOOD),
            (TypeError, ValueError),
            r"gamma has the shape \(2,\)",
            id="explain: a grid in one setting",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0),
            ValueError,
            r"eps, the target of \|grad Phi\|\^2, must be a finite number > 0; got 0",
            id="theorem 1: eps 0",
        ),
        row(
            lambda: theory.theorem1(GOOD, float("nan")),
            ValueError,
            r"eps, .* must be a finite number > 0; got nan",
            id="theorem 1: eps NaN",
        ),
        row(
            lambda: theory.theorem1(GOOD, float("inf")),
            ValueError,
            r"eps, .* must be .*finite.*got inf",
            id="theorem 1: eps infinite",
        ),
        row(
            lambda: theory.theorem1(GOOD, "small"),
            (TypeError, ValueError),
            r"eps, .* must be .*got 'small'",
            id="theorem 1: eps text",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0.1, S=0),
            ValueError,
            r"S .* must be an integer >= 1; got 0",
            id="theorem 1: S 0",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0.1, d=0.0),
            ValueError,
            r"d .*must be .*> 0.*got 0\.0",
            id="theorem 1: d 0",
        ),
        row(
            lambda: theory.theorem1(constants(mu=0.0), 0.1),
            ValueError,
            r"mu .*must be .*> 0",
            id="theorem 1: mu 0",
        ),
        row(
            lambda: theory.theorem1(constants(mu=3.0), 0.1),
            ValueError,
            r"mu .*at most L",
            id="theorem 1: mu above L",
        ),
        row(
            lambda: theory.theorem1(constants(L=0.0), 0.1),
            ValueError,
            r"L .*must be .*> 0",
            id="theorem 1: L 0",
        ),
        row(
            lambda: theory.theorem2(GOOD, -0.1),
            ValueError,
            r"eps, .* must be a finite number > 0; got -0\.1",
            id="theorem 2: eps negative",
        ),
        row(
            lambda: theory.theorem2(constants(mu=float("nan")), 0.1),
            ValueError,
            r"mu .*must be ",
            id="theorem 2: mu NaN",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, radius=0.0),
            ValueError,
            r"radius must be .*> 0; got 0\.0",
            id="estimate: radius 0",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, radius="1"),
            (TypeError, ValueError),
            r"radius must be .*; got '1'",
            id="estimate: radius text",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, samples=0),
            ValueError,
            r"samples must be an integer >= 1; got 0",
            id="estimate: no samples",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, samples=2.5),
            ValueError,
            r"samples must be an integer >= 1; got 2\.5",
            id="estimate: samples a float",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, seed=None),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got None",
            id="estimate: seed None",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 1, 0.0),
            TypeError,
            r"x has dtype int64; x must hold floating-point arrays",
            id="estimate: x an integer",
        ),
        row(
            lambda: theory.estimate(loss, 0.0, 0.0),
            TypeError,
            r"must be a bilax\.Problem; got function",
            id="estimate: no problem",
        ),
    ],
)
def test_theory(call, error, message):
    refused(call, error, message)
