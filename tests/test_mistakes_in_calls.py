"""Mistakes in calls, but for the options of solve."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mistakes import ONES, PROBLEM, QUICK, loss, problem, refused, row, run

import bilax
from bilax import MRBO, SOBA, VRBO, hypergrad, hypergradient, iterate, solve, sweep


def other_state():
    return SOBA(S=2).init(bilax.make_oracle(PROBLEM), jnp.zeros(()), jnp.zeros(()))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: solve(PROBLEM, QUICK),
            TypeError,
            r"missing 1 required keyword-only argument: 'steps'",
            id="no steps",
        ),
        row(
            lambda: solve(QUICK, PROBLEM, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="swapped",
        ),
        row(
            lambda: solve(loss, QUICK, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got function",
            id="a loss",
        ),
        row(
            lambda: run(None),
            TypeError,
            r"must have init, step and cost, like bilax\.MRBO\(\).*got None",
            id="no algorithm",
        ),
        row(lambda: run([QUICK]), TypeError, r"must have init, step and cost.*got \[MRBO", id="a list of algorithms"),
        row(lambda: run(optax.adam(0.1)), TypeError, r"must have init, step and cost", id="an optimiser"),
        row(
            lambda: run(hypergrad.Neumann()),
            TypeError,
            r"must have init, step and cost.*got Neumann\(",
            id="an estimator",
        ),
        row(lambda: run(SOBA), TypeError, r"algorithm must be an instance: write SOBA\(\)", id="a class"),
        row(
            lambda: run(state=other_state()),
            ValueError,
            r"this state is not one of MRBO with these settings",
            id="the state of another method",
        ),
        row(
            lambda: run(state=other_state(), x0=0.0),
            ValueError,
            r"state says where to go on; leave x0 and y0 out",
            id="a state and a start",
        ),
        row(
            lambda: run(SOBA(S=2), state=other_state()._replace(k=jnp.zeros(()))),
            TypeError,
            r"SOBA: k must be one int32 number",
            id="a state with another k",
        ),
        row(lambda: run(state=run()), TypeError, r"result\.state", id="a result as a state"),
        row(
            lambda: jax.jit(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(0.1),
            TypeError,
            r"solve .*jax\.jit.*bilax\.iterate",
            id="solve under jit",
        ),
        row(
            lambda: jax.vmap(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(jnp.ones(2)),
            TypeError,
            r"solve .*jax\.vmap.*bilax\.iterate",
            id="solve under vmap",
        ),
        row(
            lambda: jax.grad(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(0.1),
            TypeError,
            r"solve .*jax\.grad.*bilax\.iterate",
            id="solve under grad",
        ),
        row(
            lambda: jax.jit(lambda x0: run(x0=x0).x)(0.0),
            TypeError,
            r"solve .*bilax\.iterate",
            id="solve under jit, with a traced x0",
        ),
        row(
            lambda: jax.jit(lambda b: run(of=problem(inner_data=b)).x)(ONES),
            TypeError,
            r"solve .*bilax\.iterate",
            id="solve under jit, with traced data",
        ),
        row(
            lambda: run(VRBO(eta=0.1, S1=2, S2=400), sampler="epoch"),
            ValueError,
            r"a batch of 400 samples was asked for, but the data hold 6",
            id="a batch larger than the data",
        ),
        row(
            lambda: iterate(PROBLEM, MRBO, steps=1),
            TypeError,
            r"algorithm must be an instance: write MRBO\(\)",
            id="iterate: a class",
        ),
        row(
            lambda: iterate(PROBLEM, "mrbo", steps=1),
            TypeError,
            r"must have init, step and cost.*got 'mrbo'",
            id="iterate: a name",
        ),
        row(
            lambda: iterate(QUICK, PROBLEM, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="iterate: swapped",
        ),
        row(
            lambda: iterate(None, QUICK, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got NoneType",
            id="iterate: no problem",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=2.0),
            ValueError,
            r"steps must be an integer >= 1; got 2\.0",
            id="iterate: steps a float",
        ),
        row(
            lambda: jax.jit(lambda n: iterate(PROBLEM, QUICK, steps=n))(3),
            TypeError,
            r"steps must be .*static",
            id="iterate: steps traced",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=-1),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="iterate: seed negative",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=0.5),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 0\.5",
            id="iterate: seed a float",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=2**32),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 4294967296",
            id="iterate: seed 2**32",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=None),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got None",
            id="iterate: seed None",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed="0"),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'",
            id="iterate: seed text",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, sampler="random"),
            ValueError,
            r"unknown sampler 'random'; choose one of",
            id="iterate: sampler",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, "zero", steps=1),
            TypeError,
            r"x0 is a str; x0 must hold floating-point arrays",
            id="iterate: x0 text",
        ),
        row(
            lambda: iterate(PROBLEM, MRBO(gamma=jnp.ones(2), eta=0.1, S=2), steps=1),
            ValueError,
            r"gamma has the shape \(2,\).*(vmap|sweep)",
            id="iterate: a grid in one setting",
        ),
        row(
            lambda: sweep(PROBLEM, [], steps=1),
            ValueError,
            r"there are no settings to run; give at least one, like \[bilax\.MRBO\(\)\]",
            id="sweep: no settings",
        ),
        row(
            lambda: sweep(PROBLEM, None, steps=1),
            TypeError,
            r"algorithms must be .*list of settings.*got None",
            id="sweep: None",
        ),
        row(lambda: sweep(PROBLEM, "mrbo", steps=1), TypeError, r"got 'mrbo'", id="sweep: a name"),
        row(
            lambda: sweep(PROBLEM, MRBO, steps=1),
            TypeError,
            r"algorithm must be an instance: write MRBO\(\)",
            id="sweep: a class",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, SOBA(S=2)], steps=1),
            ValueError,
            r"may differ in real numbers only.*methods, whole numbers.*need one call each",
            id="sweep: mixed methods",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, MRBO(eta=0.1, S=3, Q=1)], steps=1),
            ValueError,
            r"may differ in real numbers only.*batch sizes",
            id="sweep: mixed batch sizes",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, MRBO(S=2, Q=1)], steps=1),
            ValueError,
            r"may differ in real numbers only.*eta='auto'",
            id="sweep: eta mixed with auto",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, 5], steps=1),
            TypeError,
            r"must have init, step and cost.*got 5",
            id="sweep: a number among the settings",
        ),
        row(
            lambda: sweep(QUICK, [QUICK], steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="sweep: no problem",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=0),
            ValueError,
            r"steps must be an integer >= 1; got 0",
            id="sweep: steps 0",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=[]),
            ValueError,
            r"seeds is empty; give at least one, like seeds=\[0\]",
            id="sweep: no seeds",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=5),
            TypeError,
            r"seeds must be .*like seeds=\[0\].*got 5",
            id="sweep: one seed",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=None),
            TypeError,
            r"seeds must be .*like seeds=\[0\].*got None",
            id="sweep: seeds None",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=[0, -1]),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="sweep: a negative seed",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds="01"),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'",
            id="sweep: seeds text",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, progress="bar"),
            (TypeError, ValueError),
            r"progress must be True, False or None; got 'bar'",
            id="sweep: progress text",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], {}, steps=1),
            ValueError,
            r"x0 is empty; give a pytree",
            id="sweep: x0 empty",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, hypergrad.Exact),
            TypeError,
            r"such as bilax\.hypergrad\.Neumann\(Q=10\); got <class",
            id="hypergradient: a class",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, "neumann"),
            TypeError,
            r"such as bilax\.hypergrad\.Neumann\(Q=10\); got 'neumann'",
            id="hypergradient: a name",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, QUICK),
            TypeError,
            r"method must be an estimator.*got MRBO\(",
            id="hypergradient: an algorithm",
        ),
        row(
            lambda: hypergradient(loss, 0.0, 0.0),
            TypeError,
            r"first argument must be a bilax\.Problem; got function",
            id="hypergradient: no problem",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0, 0.0),
            TypeError,
            r"x has dtype int64; x must hold floating-point arrays",
            id="hypergradient: x an integer",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, None),
            ValueError,
            r"y is empty; give a pytree",
            id="hypergradient: no y",
        ),
        row(lambda: hypergradient(PROBLEM, 0.0, np.nan), ValueError, r"y holds nan", id="hypergradient: y NaN"),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, seed=-1),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="hypergradient: seed negative",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, seed=0.5),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 0\.5",
            id="hypergradient: seed a float",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, sampler="all"),
            ValueError,
            r"unknown sampler 'all'; choose one of",
            id="hypergradient: sampler",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, jnp.zeros(10**6)),
            (ValueError, MemoryError),
            r"the exact hypergradient.*(ConjugateGradient|Neumann)",
            id="hypergradient: too large",
        ),
        row(
            lambda: bilax.make_oracle(loss),
            TypeError,
            r"must be a bilax\.Problem; got function",
            id="make_oracle: no problem",
        ),
        row(
            lambda: run().history.column("los"),
            KeyError,
            r"no quantity 'los' was measured; there are k, seconds",
            id="a column that was not measured",
        ),
    ],
)
def test_calls(call, error, message):
    refused(call, error, message)
