"""What losses read but no step moves: batch statistics, moving averages. Renewed once in a step, never differentiated."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import METHOD_CASES

import bilax
from bilax import Problem, iterate, make_oracle, solve
from bilax.running.loop import CARRYING
from bilax.sampling import keys
from bilax.storage.trees import without_memory

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(24, 3))


def outer(x, y, b, carried):
    return 0.2 * (jnp.mean((b @ y - carried["mean"]) ** 2) + jnp.sum(x["a"] ** 2))


def inner(x, y, b, carried):
    return 0.2 * (jnp.mean((b @ y - x["a"] - carried["mean"]) ** 2) + jnp.exp(x["c"]) * jnp.sum(y**2))


def carry(carried, x, y, b):
    return {"mean": 0.5 * carried["mean"] + 0.5 * jnp.mean(b @ y) + x["c"], "steps": carried["steps"] + 1}


X0, Y0 = {"a": jnp.array(0.3), "c": jnp.array(-0.5)}, jnp.asarray(RNG.normal(size=3))
CARRIED = {"mean": np.array(0.2), "steps": 0}
PROBLEM = Problem(outer, inner, DATA, DATA, x0=X0, y0=Y0, carried=CARRIED, carry=carry, carry_batch=5)

QUICK = ("mrbo",)  # the other methods are in the slow set


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in METHOD_CASES], ids=str
)
def test_each_step_is_one_of_the_problem_in_which_it_is_a_constant(case):
    algorithm = case.make(eta=0.05)
    found = iterate(PROBLEM, algorithm, steps=3, seed=4)
    carried, stream = CARRIED, keys.root(4)
    state = algorithm.init(make_oracle(PROBLEM), X0, Y0)
    for k in range(3):
        oracle, key = make_oracle(replace(PROBLEM, carried=carried)), keys.at(stream, jnp.asarray(k))
        state, _ = algorithm.step(oracle, key, state)
        batch = DATA[np.asarray(oracle.numbers_G(jax.random.fold_in(key, CARRYING), 5))]
        mean = 0.5 * carried["mean"] + 0.5 * np.mean(batch @ np.asarray(state.y)) + np.asarray(state.x["c"])
        carried = {"mean": mean, "steps": carried["steps"] + 1}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), without_memory(found.state)[0], state)
    np.testing.assert_allclose(found.carried["mean"], carried["mean"], rtol=1e-9)
    assert found.carried["steps"] == 3


def same(one, other, rtol=0.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), one, other)


def test_all_ways_to_run_carry_it_alike(tmp_path):
    algorithm = bilax.MRBO(gamma=0.3, lam=0.3, S=4, Q=2)  # eta="auto": L is measured with what is carried then
    whole = solve(PROBLEM, algorithm, steps=6)
    assert int(whole.carried["steps"]) == 6
    np.testing.assert_array_equal(whole.history.column("samples")[1], algorithm.draws().F + algorithm.draws().G + 5)
    begun = solve(PROBLEM, algorithm, steps=2, checkpoint_dir=tmp_path)
    same(solve(PROBLEM, algorithm, state=begun.state, steps=4).carried, whole.carried)
    again = solve(PROBLEM, algorithm, steps=6, checkpoint_dir=tmp_path)
    same((again.x, again.carried), (whole.x, whole.carried))
    same(iterate(PROBLEM, algorithm, steps=6).carried, whole.carried, rtol=1e-9)
    swept = bilax.sweep(PROBLEM, [algorithm, algorithm], steps=6)
    same(jax.tree.map(lambda leaf: leaf[1, 0], swept.carried), whole.carried, rtol=1e-9)
    begun.save(tmp_path / "result")
    same(bilax.results.load(tmp_path / "result").carried, begun.carried)


def test_from_a_source_it_is_the_same():
    from bilax.sources import Arrays

    source = replace(PROBLEM, inner_data=Arrays(DATA))
    algorithm = bilax.SOBA(S=4)
    same(solve(source, algorithm, steps=5).carried, solve(PROBLEM, algorithm, steps=5).carried)


def test_losses_metrics_and_the_verdict_read_it_as_it_is_now():
    result = solve(
        PROBLEM, bilax.SOBA(S=4), steps=4, every=4, metrics=lambda x, y, carried: {"mean": carried["mean"]}, tol=1e-9
    )
    row = result.history[-1]
    assert row["mean"] == result.carried["mean"] != CARRIED["mean"]
    np.testing.assert_allclose(row["outer_loss"], outer(result.x, result.y, DATA, result.carried), rtol=1e-12)
    np.testing.assert_allclose(row["inner_loss"], inner(result.x, result.y, DATA, result.carried), rtol=1e-12)


def test_a_hypergradient_holds_it_constant():
    now = {"mean": np.array(1.7), "steps": 0}
    found = bilax.hypergradient(replace(PROBLEM, carried=now), X0, Y0, bilax.hypergrad.Exact(S=24), sampler="full")
    plain = Problem(lambda x, y, b: outer(x, y, b, now), lambda x, y, b: inner(x, y, b, now), DATA, DATA)
    expected = bilax.hypergradient(plain, X0, Y0, bilax.hypergrad.Exact(S=24), sampler="full")
    same(found.value, expected.value, rtol=1e-12)


def test_together_with_a_key_a_frozen_part_and_gauss_newton():
    def outputs(x, y, b, carried, key):
        return jnp.tanh(b @ y["W"] + y["s"]) + carried["mean"] + (0 if key is None else 0.1 * jax.random.normal(key))

    model = bilax.GaussNewton(outputs, lambda x, y, z, b: jnp.mean((z - x) ** 2) + jnp.sum(y["W"] ** 2))
    problem = Problem(
        outer_loss=lambda x, y, b: jnp.mean((b @ y["W"] - x) ** 2),
        inner_loss=model.inner_loss,
        outer_data=DATA,
        inner_data=DATA,
        x0=jnp.array(0.1),
        y0={"W": Y0, "s": jnp.array(0.3)},
        second_derivatives=model,
        damping=0.1,
        frozen_y={"W": False, "s": True},
        prepare=lambda b: 2.0 * b,
        carried={"mean": 0.0},
        carry=lambda carried, x, y, b: {"mean": 0.9 * carried["mean"] + 0.1 * jnp.mean(b)},
    )
    result = solve(problem, bilax.AIDCG(S=8), steps=3, seed=2)
    assert result.y["s"] == 0.3
    expected, stream = 0.0, keys.root(2)
    for k in range(3):
        key = jax.random.fold_in(keys.at(stream, jnp.asarray(k)), CARRYING)
        batch = 2 * DATA[np.asarray(make_oracle(problem).numbers_G(key, 64))]
        expected = 0.9 * expected + 0.1 * batch.mean()
    np.testing.assert_allclose(result.carried["mean"], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"carried": None, "carry": None}, ValueError, "outer_loss and inner_loss take carried, and there is nothing"),
        ({"carry": None}, ValueError, "carried and carry belong together"),
        ({"carry": lambda carried: carried}, TypeError, r"carry must be a function of \(carried, x, y, batch\)"),
        ({"carry_batch": 0}, ValueError, "carry_batch must be an integer >= 1; got 0"),
        ({"carried": {"mean": np.nan, "steps": 0}}, ValueError, r"carried\['mean'\] holds nan"),
        ({"carried": {"mean": "none", "steps": 0}}, TypeError, r"carried\['mean'\] is a str"),
    ],
)
def test_mistakes_are_told(changes, error, words):
    with pytest.raises(error, match=words):
        replace(PROBLEM, **changes)


def test_what_carry_returns_must_be_alike():
    with pytest.raises(TypeError, match="carry must return a pytree like its argument"):
        solve(replace(PROBLEM, carry=lambda carried, x, y, b: {"mean": y, "steps": 0}), bilax.SOBA(), steps=1)
    plain = replace(PROBLEM, carried={"mean": CARRIED["mean"]}, carry=lambda c, x, y, b: c)
    state = solve(PROBLEM, bilax.SOBA(), steps=1).state
    with pytest.raises(ValueError, match=r"this state carries .* and the problem"):
        solve(plain, bilax.SOBA(), state=state, steps=1)


def test_what_is_carried_and_not_finite_is_no_result():
    def grows(carried, x, y, b):
        return {"mean": carried["mean"], "steps": carried["steps"] * 1e200}

    problem = replace(PROBLEM, carried={"mean": np.array(0.2), "steps": 1.0}, carry=grows)  # no loss reads it
    result = solve(problem, bilax.SOBA(S=4), steps=5)
    assert result.status == "diverged"
    assert int(result.state.k) == 1
    assert np.isfinite(result.carried["steps"])
    assert "carried" in result.message
    with pytest.warns(bilax.Doubtful, match="not finite"):
        found = iterate(problem, bilax.SOBA(S=4), steps=5)
    assert found.status.names == "diverged"
