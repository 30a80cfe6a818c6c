"""Losses that compute in bfloat16, and variables that are kept in it: what has which dtype, and what it does to a run."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import METHOD_CASES
from problem_cases import PROBLEM_CASES

from bilax import MRBO, Problem, iterate, solve
from bilax.oracle import make_oracle
from bilax.sampling import keys

CASE = PROBLEM_CASES[1]
PAGE = Path(__file__).parents[1] / "docs" / "networks.md"
QUICK = ("mrbo",)  # the other methods are in the slow set


def cast(tree, dtype):
    change = lambda leaf: leaf.astype(dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.int32)
    return jax.tree.map(change, jax.tree.map(jnp.asarray, tree))


def computing_in(dtype, loss):
    """The loss of variables and data that are cast first, as a network's layers do; its value is narrow as well."""
    return lambda x, y, batch: loss(cast(x, dtype), cast(y, dtype), cast(batch, dtype))


def problem_of(variables, inside):
    p = CASE.problem
    F, G = (computing_in(inside, loss) for loss in (p.outer_loss, p.inner_loss))
    x0, y0 = cast((CASE.x0, CASE.y0), variables)
    return Problem(F, G, cast(p.outer_data, variables), cast(p.inner_data, variables), x0=x0, y0=y0)


def dtypes(algorithm, problem):
    """Return the dtypes of what a state holds: of the arrays like x or y, and of single numbers."""
    oracle = make_oracle(problem)
    state = jax.eval_shape(lambda: algorithm.init(oracle, problem.x0, problem.y0))
    after, info = jax.eval_shape(lambda s: algorithm.step(oracle, keys.at(keys.root(0), s.k), s), state)
    assert jax.tree.map(lambda a: a.dtype, after) == jax.tree.map(lambda a: a.dtype, state)
    floats = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    arrays, numbers = ({leaf.dtype.name for leaf in floats if (leaf.ndim > 0) == wide} for wide in (True, False))
    return arrays, numbers, {jnp.result_type(info.norm_v).name, jnp.result_type(info.norm_u).name}


@pytest.mark.slow
def test_the_page_says_what_keeps_which_dtype():
    """For every method; with an optimiser that remembers as well."""
    found = []
    with jax.enable_x64(False):
        for variables in (jnp.float32, jnp.bfloat16):
            problem = problem_of(variables, jnp.bfloat16)
            algorithms = [case.make(eta=0.2) for case in METHOD_CASES]
            algorithms.append(replace(algorithms[0], gamma=optax.adam(0.1), lam=optax.adam(0.1)))
            each = [dtypes(algorithm, problem) for algorithm in algorithms]
            arrays, numbers, norms = (set.union(*(one[i] for one in each)) for i in range(3))
            row = solve(problem, algorithms[0], steps=1).history[-1]
            assert np.isfinite(row["outer_loss"])
            found.append([arrays, numbers, norms])
    names = (
        "x and y, estimates, momenta, tables, matrices, what optimisers remember",
        "schedules, weights of momentum",
        "norms that a step tells",
    )
    page = PAGE.read_text()
    for name, *kinds in zip(names, *found, strict=True):
        shown = [", ".join(sorted(kind)) for kind in kinds]
        assert f"| {name} | {' | '.join(shown)} |" in page


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in METHOD_CASES], ids=str
)
def test_narrow_computing_takes_the_same_way(case):
    algorithm = case.make(eta=0.1)
    wide, narrow = (
        iterate(problem_of(jnp.float32, inside), algorithm, steps=5, sampler="full").state
        for inside in (jnp.float32, jnp.bfloat16)
    )
    for name in ("x", "y"):
        one, other = (np.asarray(getattr(state, name), float) for state in (wide, narrow))
        assert 0 < np.linalg.norm(one - other) < 0.03 * np.linalg.norm(one)


def test_narrow_variables_run():
    result = solve(problem_of(jnp.bfloat16, jnp.bfloat16), MRBO(S=5, eta=0.1), steps=5)
    assert result.status == "done"
    assert (result.x.dtype, result.y.dtype) == (jnp.bfloat16, jnp.bfloat16)
