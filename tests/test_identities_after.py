"""What holds exactly of the methods after the paper: when they coincide, and how their errors fall."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_cases import PROBLEM_CASES, final_state

import bilax
from bilax import Problem, hypergradient, solve
from bilax.algorithms import pzobo, saba, spaba
from bilax.hypergrad import Exact, Unrolled
from bilax.oracle import Counts, make_oracle, traced
from bilax.problems import quadratic
from bilax.running import loop
from bilax.running.checks import first_state
from bilax.sampling import keys

STEPS = 9
SAME = dict(gamma=0.1, rho=0.3, rho_v=0.2, S=5)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_the_soba_family_is_one_method_on_full_batches(case):
    """SOBA = SABA with one block = SRBA with q = 1 = SPABA with chance 1, and SRBA for any q."""
    expected = final_state(case, bilax.SOBA(a=0.0, b=0.0, **SAME), STEPS, sampler="full")
    others = (bilax.SABA(**SAME), *(bilax.SRBA(q=q, **SAME) for q in (1, 4)), bilax.SPABA(q=1, **SAME))
    for other in others:
        state = final_state(case, other, STEPS, sampler="full")
        for name in ("x", "y", "v"):
            np.testing.assert_allclose(getattr(state, name), getattr(expected, name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_an_average_of_one_is_soba_with_x_one_step_late(case):
    """MA-SOBA moves x along the average from before its sample: with theta = 1, along the last direction."""
    oracle = make_oracle(case.problem, "full")
    alg = bilax.MASOBA(alpha=0.1, beta=0.3, nu=0.2, theta=1.0, S=5)
    soba = bilax.SOBA(gamma=0.1, rho=0.3, rho_v=0.2, a=0.0, b=0.0, S=5)
    state = alg.init(oracle, jnp.asarray(case.x0), jnp.asarray(case.y0))
    for k in range(4):
        key = keys.at(keys.root(0), k)
        like = soba.init(oracle, state.x, state.y)._replace(v=state.v)
        after, _ = soba.step(oracle, key, like)
        direction = (state.x - after.x) / soba.gamma  # of SOBA, from here
        before = state
        state, _ = alg.step(oracle, key, state)
        np.testing.assert_allclose(state.h, direction, atol=1e-12)
        np.testing.assert_allclose(state.x, before.x - alg.alpha * before.h, atol=1e-12)
        np.testing.assert_allclose(state.y, after.y, atol=1e-12)


def test_with_x_held_saba_solves_both_inner_problems():
    """gamma = 0: y is SAGA's and converges linearly, and so does v; SOBA with the same constant steps does not."""
    q = quadratic(inner_size=60, outer_size=60, seed=3)
    x = jnp.asarray(q.problem.x0)
    y, v = q.y_star(x), None
    oracle = make_oracle(q.problem, "full")
    (_, F_y), H = (
        oracle.grad_F(x, y, q.problem.outer_data),
        jax.jacfwd(lambda z: oracle.grad_G(x, z, q.problem.inner_data)),
    )
    v = jnp.linalg.solve(H(y), F_y)
    errors = {}
    for method in (
        bilax.SABA(gamma=0.0, rho=0.3, rho_v=0.3, S=8),
        bilax.SOBA(gamma=0.0, rho=0.3, rho_v=0.3, a=0, b=0, S=8),
    ):
        state = solve(q.problem, method, steps=4000).state
        errors[method.about.name] = max(np.abs(state.y - y).max(), np.abs(state.v - v).max())
    assert errors["saba"] < 1e-4 < 1e-2 < errors["soba"]


@pytest.mark.parametrize(("P", "factor"), [(1, 2), (2, 4), (4, 16)])
def test_halving_nu_divides_the_error_by_2_4_16(P, factor):
    q = quadratic(inner_size=24, outer_size=24, seed=1)
    x = jnp.asarray(q.problem.x0) + 0.5
    exact = hypergradient(q.problem, x, q.y_star(x), Exact()).value
    oracle = make_oracle(q.problem, "full")

    def error(nu):
        method = bilax.F2SA(gamma=1.0, beta=0.9, nu=nu, T=3000, P=P)
        state, told = jax.jit(
            lambda: method.step(oracle, keys.root(0), method.init(oracle, x, jnp.asarray(q.problem.y0)))
        )()
        assert told.convex == 1
        return np.linalg.norm(x - state.x - exact)

    large, small = error(0.08), error(0.04)
    assert large > 1e-7
    assert large / small == pytest.approx(factor, rel=0.25)


def test_too_large_a_nu_is_noticed_and_x_waits():
    """g - nu f is not convex for nu beyond the smallest curvature of g over that of f."""
    q = quadratic(inner_size=24, outer_size=24, seed=1)
    method = bilax.F2SA(gamma=0.1, beta=0.1, nu=50.0, T=5, S=24)
    with pytest.warns(bilax.Doubtful, match="x waited at 3 of 3 measurements.*Take a smaller nu, or order P = 1"):
        state = solve(q.problem, method, steps=3, sampler="full").state
    np.testing.assert_array_equal(state.x, q.problem.x0)
    for point in state.points:
        np.testing.assert_array_equal(point, state.points[0])


def test_as_many_directions_as_variables_are_unrolled_differentiation(monkeypatch):
    q = quadratic(inner_size=24, outer_size=24, seed=1)
    x, y = jnp.asarray(q.problem.x0) + 0.3, jnp.asarray(q.problem.y0)
    d = x.size
    monkeypatch.setattr(pzobo, "directions", lambda key, x, R: jnp.sqrt(d) * jnp.eye(d))
    method = bilax.PZOBO(gamma=1.0, beta=0.2, mu=0.1, N=7, R=d)
    oracle = make_oracle(q.problem, "full")
    state, _ = method.step(oracle, keys.root(0), method.init(oracle, x, y))
    expected = hypergradient(q.problem, x, y, Unrolled(step=0.2, T=7)).value
    np.testing.assert_allclose(x - state.x, expected, rtol=1e-9)


def test_the_coin_does_not_depend_on_the_seed():
    q = quadratic(inner_size=24, outer_size=24, seed=1)
    tosses = [bool(spaba.refreshes(k, 4)) for k in range(400)]
    assert tosses[0]
    assert 60 < sum(tosses) < 140
    calls = {solve(q.problem, bilax.SPABA(q=4, S=2, rho_v=0.2), steps=30, seed=seed).counts for seed in (0, 1)}
    refreshed = sum(tosses[:30])
    each = refreshed * 24 + (30 - refreshed) * 2 * 2
    assert calls == {Counts(F=each, G=each, JV=each, HV=each)}


def test_passes_over_all_data_count_as_samples():
    q = quadratic(inner_size=30, outer_size=20, seed=1)
    result = solve(q.problem, bilax.SRBA(q=4, S=2, rho_v=0.2), steps=8)
    assert result.counts == 2 * Counts(F=20, G=30, JV=30, HV=30) + 6 * 2 * Counts(F=2, G=2, JV=2, HV=2)
    assert result.history[-1]["samples"] == pytest.approx(2 * 50 + 6 * 4)


def test_saba_keeps_no_table_of_a_gradient_that_is_zero():
    quadratic_case, softmax_case = PROBLEM_CASES
    for case, kept in ((quadratic_case, 2), (softmax_case, 1)):  # cleaning's outer loss does not look at x
        method, oracle = bilax.SABA(S=5), make_oracle(case.problem)
        state = method.init(oracle, jnp.asarray(case.x0), jnp.asarray(case.y0))
        assert len(state.outer.rows) == kept


def test_saba_refuses_tables_that_do_not_fit(monkeypatch):
    from bilax.numerics import memory

    case = PROBLEM_CASES[1]
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(MemoryError, match=r"saba's tables, of 5 inner and 5 outer blocks.*larger blocks \(S\)"):
        solve(case.problem, bilax.SABA(S=5), case.x0, case.y0, steps=1)


def test_blocks_are_drawn_evenly():
    found = jax.vmap(lambda key: jnp.stack(saba.chosen(key, 3, 4)))(keys.for_loop(keys.root(0), 3000))
    assert np.bincount(found[:, 0], minlength=3).min() > 900
    assert np.bincount(found[:, 1], minlength=4).min() > 650


def test_a_table_is_not_copied_in_every_step():
    """The compiled loop writes a row where it lies; the whole table is copied before the loop or after it alone."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(120, 3))
    fit = lambda x, y, batch: jnp.mean((batch @ y[:3] - jnp.sum(x[:3])) ** 2) + jnp.sum((y - jnp.tanh(x)) ** 2)
    problem = Problem(fit, fit, data, data, x0=jnp.zeros(50), y0=jnp.zeros(50))
    algorithm, parts = bilax.SABA(S=7, rho_v=0.1), traced(problem, "iid")
    state = first_state(problem, parts, algorithm, None, None)
    memory = loop.fresh_memory(algorithm, state, None)
    text = jax.jit(loop.repeat).lower(parts, algorithm, keys.root(0), state, memory, 9).compile().as_text()
    bodies = {name: re.search(rf"^%{re.escape(name)} .*?^}}", text, re.DOTALL | re.MULTILINE) for name in _bodies(text)}
    (loop_body,) = (found[0] for found in bodies.values() if "f64[18,50]" in found[0])  # of 18 blocks
    assert not re.search(r"f64\[18,50\]\S* copy\(", loop_body)


def _bodies(text):
    return re.findall(r"while\(.*body=%([\w.-]+)", text)
