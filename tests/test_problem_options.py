"""What networks and tasks ask of a problem: frozen parts, a start from x in every step, samples that belong together."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import METHOD_CASES

import bilax
from bilax import Problem, iterate, make_oracle, solve
from bilax.oracle import with_one_draw
from bilax.problem import is_function
from bilax.running import loop
from bilax.sampling import keys
from bilax.testing import recording

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(24, 3))


def outer(x, y, b):
    return 0.2 * (jnp.mean((b @ y["W"] - jnp.sin(b[:, 0])) ** 2) + jnp.sum((y["s"] - x["a"]) ** 2))


def inner(x, y, b):
    fit = jnp.mean((b @ y["W"] - y["s"] * b[:, 1]) ** 2)
    return 0.2 * (fit + jnp.sum(jnp.exp(x["a"]) * y["s"] ** 2) + jnp.exp(x["c"]) * jnp.sum(y["W"] ** 2))


X0 = {"a": jnp.array(0.3), "c": jnp.array(-0.5)}
Y0 = {"W": jnp.asarray(RNG.normal(size=3)), "s": jnp.array(0.7)}
PROBLEM = Problem(outer, inner, DATA, DATA, x0=X0, y0=Y0)


def with_s_fixed():
    """The problem of what is left, if y["s"] is a constant."""
    full = lambda W: {"W": W, "s": Y0["s"]}
    return replace(
        PROBLEM,
        outer_loss=lambda x, W, b: outer(x, full(W), b),
        inner_loss=lambda x, W, b: inner(x, full(W), b),
        y0=Y0["W"],
    )


QUICK = ("mrbo", "reverse")  # the other methods are in the slow set


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in METHOD_CASES], ids=str
)
def test_frozen_parts_are_constants(case):
    """The steps are those of the problem without them, and they stay where they are."""
    algorithm = case.make(eta=0.05)
    held = iterate(replace(PROBLEM, frozen_y={"W": False, "s": True}), algorithm, steps=4).state
    left = iterate(with_s_fixed(), algorithm, steps=4).state
    np.testing.assert_allclose(held.y["W"], left.y, rtol=1e-9)
    np.testing.assert_array_equal(held.y["s"], Y0["s"])
    if case.name != "pzobo":  # its random directions have other lengths
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8), held.x, left.x)


def test_the_hypergradient_of_frozen_parts():
    held = replace(PROBLEM, frozen_y={"W": False, "s": True}, frozen_x={"a": True, "c": False})
    found = bilax.hypergradient(held, X0, Y0, bilax.hypergrad.Exact()).value
    expected = bilax.hypergradient(with_s_fixed(), X0, Y0["W"], bilax.hypergrad.Exact()).value
    np.testing.assert_allclose(found["c"], expected["c"], rtol=1e-9)
    assert found["a"] == 0


def test_whole_branches_are_frozen_and_mistakes_are_told():
    deep = replace(PROBLEM, outer_loss=lambda x, y, b: outer(x, y["top"], b), y0={"top": Y0})
    deep = replace(deep, inner_loss=lambda x, y, b: inner(x, y["top"], b), frozen_y={"top": True})
    end = solve(deep, bilax.AIDCG(alpha=0.1, beta=0.1), steps=2).y
    jax.tree.map(np.testing.assert_array_equal, end["top"], Y0)
    with pytest.raises(TypeError, match="frozen_y must be a pytree like the variable"):
        solve(replace(PROBLEM, frozen_y={"V": True}), bilax.AIDCG(), steps=1)
    with pytest.raises(TypeError, match="frozen_x must hold True and False"):
        replace(PROBLEM, frozen_x={"a": 1.0})


def test_gauss_newton_leaves_frozen_parts_out():
    outputs = lambda x, y, b: jnp.tanh(b @ y["W"]) * y["s"]
    model = bilax.GaussNewton(
        outputs, lambda x, y, z, b: jnp.mean((z - 1) ** 2) + jnp.exp(x["c"]) * jnp.sum(y["W"] ** 2)
    )
    problem = replace(PROBLEM, inner_loss=model.inner_loss, second_derivatives=model, frozen_y={"W": False, "s": True})
    oracle = make_oracle(problem)
    along = {"W": jnp.zeros(3), "s": jnp.array(1.0)}
    assert not np.asarray(oracle.hvp_G(X0, Y0, DATA, along)["W"]).any()
    assert oracle.hvp_G(X0, Y0, DATA, {"W": jnp.ones(3), "s": jnp.array(0.0)})["s"] == 0


# A start from x


def from_x(x):
    return {"W": jnp.full(3, x["c"]), "s": jnp.sin(x["a"])}


COLD = replace(PROBLEM, y0=from_x)


@pytest.mark.parametrize("beta", [0.1, optax.adam(0.05)], ids=["a number", "adam"])
def test_reverse_differentiates_the_start(beta):
    T, algorithm = 5, bilax.Reverse(alpha=0.1, beta=beta, T=5, S=24)
    result = iterate(COLD, algorithm, X0, steps=3, sampler="full").state

    def value(x):
        y, rate = from_x(x), optax.sgd(beta) if isinstance(beta, float) else beta
        memory = rate.init(y)
        for _ in range(T):
            update, memory = rate.update(jax.grad(inner, 1)(x, y, DATA), memory, y)
            y = optax.apply_updates(y, update)
        return outer(x, y, DATA), y

    x, slope = X0, jax.jit(jax.grad(value, has_aux=True))
    for _ in range(3):
        h, y = slope(x)
        x = jax.tree.map(lambda z, g: z - 0.1 * g, x, h)
    for found, expected in ((result.x, x), (result.y, y)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), found, expected)


def test_a_cold_start_forgets_where_y_was():
    algorithm = bilax.AIDCG(alpha=0.1, beta=0.1, T=4, N=3, S=24)
    states = [iterate(COLD, algorithm, steps=k, sampler="full").state for k in (1, 2)]
    again = replace(COLD, x0=states[0].x)
    second = iterate(again, algorithm, steps=1, sampler="full").state
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), states[1].y, second.y)
    result = solve(COLD, algorithm, steps=2, sampler="full")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), result.y, second.y)


def test_who_cannot_start_anew_says_so():
    for algorithm in (bilax.MRBO(), bilax.TTSA(), bilax.F2SA()):
        with pytest.raises(ValueError, match="starts anew in every step"):
            solve(COLD, algorithm, steps=1)


def test_a_network_that_can_be_called_is_no_function():
    @jax.tree_util.register_pytree_node_class
    class Network:
        def __init__(self, W):
            self.W = W

        def __call__(self, b):
            return b @ self.W

        def tree_flatten(self):
            return (self.W,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    assert is_function(from_x)
    assert not is_function(Network(jnp.ones(3)))


# Samples that belong together


@pytest.mark.parametrize("sampler", ["iid", pytest.param("epoch", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "algorithm", [bilax.AIDCG(S=5), bilax.SOBA(S=5), bilax.StocBiO(S=5)], ids=lambda a: a.about.name
)
def test_paired_batches_are_of_the_same_samples(algorithm, sampler):
    problem = Problem(lambda x, y, b: outer(x, y, b["data"]), lambda x, y, b: inner(x, y, b["data"]),
                      *({"data": DATA, "number": np.arange(24)} for _ in range(2)), paired=True)  # fmt: skip
    oracle, drawn = recording(make_oracle(problem, sampler))
    seen = []
    with bilax.testing.python_loops():
        state = algorithm.init(oracle, X0, Y0)
        memory = loop.fresh_memory(algorithm, state)
        for k in range(3):
            state, memory, _ = loop.move(oracle, algorithm, keys.at(keys.root(0), k), state, memory)
            seen.append({tuple(np.asarray(batch["number"])) for _, batch in drawn.take()})
    assert [len(batches) for batches in seen] == [1, 1, 1]
    assert len(set.union(*seen)) == 3


def test_a_hypergradient_is_paired_too_and_takes_y_as_it_is():
    method, key = bilax.hypergrad.Exact(S=5), keys.at(keys.root(0), 0)
    found = bilax.hypergradient(replace(PROBLEM, paired=True), X0, Y0, method, sampler="iid").value
    expected = method.estimate(with_one_draw(make_oracle(PROBLEM), key), key, X0, Y0).value
    apart = bilax.hypergradient(PROBLEM, X0, Y0, method, sampler="iid").value
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, expected)
    assert abs(found["c"] - apart["c"]) > 1e-6
    one, other = (
        bilax.hypergradient(p, X0, Y0, bilax.hypergrad.Unrolled(T=3), sampler="full").value for p in (COLD, PROBLEM)
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_what_cannot_be_paired_says_so():
    with pytest.raises(ValueError, match="there must be as many; outer_data has 23 and inner_data 24"):
        replace(PROBLEM, outer_data=DATA[1:], paired=True)
    with pytest.raises(TypeError, match="draws blocks of each level apart"):
        solve(replace(PROBLEM, paired=True), bilax.SABA(S=4), steps=1)
    with pytest.raises(TypeError, match="paired must be True or False"):
        replace(PROBLEM, paired=1)
