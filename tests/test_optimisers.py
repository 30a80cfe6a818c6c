"""Steps by an optimiser: sgd is the number, its state is carried, rates can be swept, projections come after."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import METHOD_CASES
from problem_cases import PROBLEM_CASES

import bilax
from bilax import MRBO, SUSTAIN, solve, sweep
from bilax.hypergrad import Unrolled, hypergradient
from bilax.hyperparameters import names_of
from bilax.oracle import traced
from bilax.problems import quadratic
from bilax.running import loop
from bilax.running.iterate import iterate
from bilax.sampling import keys

CASE = PROBLEM_CASES[0]
PROBLEM = quadratic().problem
STEPS = 3


def steps_of(alg):
    (outer,), (inner,) = names_of("outer_step", alg), names_of("inner_step", alg)
    return outer, inner


@jax.jit
def final(problem, alg):
    state = alg.init(problem.oracle(), jnp.asarray(CASE.x0), jnp.asarray(CASE.y0))
    return loop.record(problem, alg, keys.root(1), state, STEPS)[0]


@pytest.mark.parametrize("algorithm", METHOD_CASES, ids=str)
def test_sgd_is_the_number_and_every_update_is_counted(algorithm):
    """On both levels. The counter of the optimiser tells how many updates of x and of y were kept."""
    number = algorithm.make(eta=0.2)
    outer, inner = steps_of(number)
    sgd = optax.inject_hyperparams(optax.sgd)
    by_optimiser = replace(number, **{name: sgd(getattr(number, name)) for name in (outer, inner)})
    problem = traced(CASE.problem, "iid")
    expected, state = final(problem, number), final(problem, by_optimiser)
    for name in ("x", "y"):
        np.testing.assert_allclose(getattr(state, name), getattr(expected, name), rtol=1e-14, atol=1e-15)
    per_step = {
        "vrbo": "m + 1",
        "mrbo-d": "N",
        "stocbio": "D",
        "bsa": "T",
        "aid-fp": "T",
        "aid-cg": "T",
        "reverse": "T",
        "amigo": "T",
        "f2sa": "T",
        "pzobo": "N",
    }
    kept = eval(per_step.get(algorithm.name, "1"), {}, vars(number))
    assert state.x_memory.count == STEPS
    memory = state.y_memory[0] if algorithm.name == "f2sa" else state.y_memory  # that of the first of its points
    assert memory.count == STEPS * kept


def test_plain_sgd_is_the_number_too():
    settings = dict(S=5, eta=0.2)
    a = solve(PROBLEM, MRBO(gamma=0.3, lam=0.2, **settings), steps=20)
    b = solve(PROBLEM, MRBO(gamma=optax.sgd(0.3), lam=optax.sgd(0.2), **settings), steps=20)
    np.testing.assert_allclose(a.x, b.x, rtol=1e-14)
    assert a.counts == b.counts


def test_momentum_and_adam_by_hand():
    """stocBiO on full batches, with heavy ball inside, carried from one inner loop to the next, and Adam outside."""
    outer, inner = optax.adam(0.05), optax.sgd(0.1, momentum=0.9)
    alg = bilax.StocBiO(alpha=inner, beta=outer, D=3, Q=4, eta=0.5)
    result = solve(PROBLEM, alg, steps=4, sampler="full")
    x, y = (jnp.asarray(z) for z in (PROBLEM.x0, PROBLEM.y0))
    at_x, at_y = outer.init(x), inner.init(y)
    gradient = jax.grad(PROBLEM.inner_loss, argnums=1)
    for _ in range(4):
        for _ in range(3):
            update, at_y = inner.update(gradient(x, y, PROBLEM.inner_data), at_y, y)
            y = y + update
        estimate = hypergradient(PROBLEM, x, y, bilax.hypergrad.Neumann(Q=4, eta=0.5))
        update, at_x = outer.update(estimate.value, at_x, x)
        x = x + update
    np.testing.assert_allclose(result.x, x, rtol=1e-12)
    np.testing.assert_allclose(result.y, y, rtol=1e-12)


def test_the_schedule_of_the_method_multiplies_the_update():
    """sign descent: every step of MRBO is eta_k long, whatever the gradient."""
    alg = MRBO(gamma=optax.sign_sgd(0.5), lam=0.1, S=5, eta=0.2, d=1.0, m=8.0)
    states = [solve(PROBLEM, alg, steps=k).x for k in (1, 2)]
    np.testing.assert_allclose(np.abs(states[1] - states[0]), 0.5 / (8 + 1) ** (1 / 3), rtol=1e-12)


def test_projections_come_after_the_step():
    problem = replace(PROBLEM, project_x=lambda x: jnp.clip(x, 0, 0.05), project_y=lambda y: jnp.clip(y, -0.01, 0.02))
    result = solve(problem, MRBO(gamma=optax.adam(1.0), lam=optax.adam(1.0), S=5, eta=0.2), steps=5)
    assert 0 <= result.x.min() <= result.x.max() <= 0.05
    assert -0.01 <= result.y.min() <= result.y.max() <= 0.02


def test_rates_are_traced_and_can_be_swept(compiled):
    rates = (0.001, 0.01, 0.1)
    adam = optax.inject_hyperparams(optax.adam)
    settings = [MRBO(gamma=adam(learning_rate=rate), lam=0.3, S=6, eta=0.2) for rate in rates]
    found = sweep(PROBLEM, settings, steps=5)
    assert compiled.count("jit(_program)") == 1
    before = None
    for i, setting in enumerate(settings):
        alone = solve(PROBLEM, setting, steps=5)
        np.testing.assert_allclose(found.state.x[i, 0], alone.x, rtol=1e-10)
        assert before is None or np.abs(alone.x - before).max() > 1e-4
        before = alone.x
    assert compiled.count("jit(advance)") == 1
    # chained, and over a schedule, too
    clipped = [optax.chain(optax.clip(1.0), adam(learning_rate=rate)) for rate in rates]
    found = sweep(PROBLEM, [MRBO(gamma=each, lam=0.3, S=6, eta=0.2) for each in clipped], steps=5)
    assert len(np.unique(np.asarray(found.state.x)[:, 0, 0])) == 3


def test_optimisers_made_alike_share_a_program(compiled):
    for rate in (0.01, 0.01, 0.02):
        solve(PROBLEM, MRBO(gamma=optax.adam(rate), lam=0.3, S=7, eta=0.2), steps=2)
    assert compiled.count("jit(advance)") == 2
    one, same, other = (MRBO(gamma=optax.adam(rate)) for rate in (0.01, 0.01, 0.02))
    assert one == same
    assert one != other
    assert jax.tree.structure(one) != jax.tree.structure(other)


RATE = 0.1


def shrink(size):
    """An optimiser written by hand, over whatever tells its rate."""
    return optax.GradientTransformation(
        lambda z: (), lambda g, memory, z=None: (jax.tree.map(lambda leaf: -size() * leaf, g), memory)
    )


def test_what_changed_behind_an_optimiser_is_seen_when_it_is_made_again(monkeypatch):
    """A global, an attribute of an object, an entry of a list, a function defined anew: no old program is taken."""
    box = type("Box", (), {"rate": 0.1})()
    rates, numbers = [0.1], np.full(2000, 0.1)

    def after(make):
        return float(solve(PROBLEM, MRBO(gamma=make(), S=4, eta=0.2), steps=3).x[0])

    for make, change in (
        (lambda: shrink(lambda: RATE), lambda: monkeypatch.setitem(globals(), "RATE", 0.4)),
        (lambda: shrink(lambda: box.rate), lambda: setattr(box, "rate", 0.4)),
        (lambda: shrink(lambda: rates[0]), lambda: rates.__setitem__(0, 0.4)),
        (lambda: shrink(lambda: numbers[1999]), lambda: numbers.fill(0.4)),
    ):
        before = after(make)
        change()
        np.testing.assert_allclose([before, after(make)], [after(lambda: 0.1), after(lambda: 0.4)], rtol=1e-12)


def test_going_on_takes_the_optimisers_memory_along():
    alg = MRBO(gamma=optax.adam(0.05), lam=optax.sgd(0.1, momentum=0.9), S=5)
    whole = solve(PROBLEM, alg, steps=9)
    first = solve(PROBLEM, alg, steps=4)
    rest = solve(PROBLEM, alg, steps=5, state=first.state)
    jax.tree.map(np.testing.assert_array_equal, rest.state, whole.state)


@pytest.mark.parametrize("optimiser", [optax.adam(0.1), optax.sgd(0.1, momentum=0.9), optax.sgd(0.3)], ids=range(3))
@pytest.mark.parametrize("K", [0, 3])
def test_reverse_differentiates_through_the_optimiser(optimiser, K):
    """Against JAX's own derivative of the loop, what the optimiser remembers included."""
    T, x, y = 7, jnp.asarray(PROBLEM.x0), jnp.asarray(PROBLEM.y0)
    estimate = hypergradient(PROBLEM, x, y, Unrolled(step=optimiser, T=T, K=K))

    def end(x):
        z, memory = y, optimiser.init(y)
        for t in range(T):
            update, memory = optimiser.update(jax.grad(PROBLEM.inner_loss, 1)(x, z, PROBLEM.inner_data), memory, z)
            z = z + update
            if K and t == T - K - 1:
                z, memory = jax.lax.stop_gradient((z, memory))
        return PROBLEM.outer_loss(x, z, PROBLEM.outer_data)

    np.testing.assert_allclose(estimate.value, jax.grad(end)(x), rtol=1e-10)


def test_what_is_no_optimiser_is_refused():
    with pytest.raises(ValueError, match=r"gamma .* or an optimiser such as optax.adam\(1e-2\); got <function adam"):
        MRBO(gamma=optax.adam)


def test_a_method_that_needs_the_size_of_a_step_says_why():
    def only_vectors(params):
        if params.ndim == 0:
            raise TypeError("give a vector")
        return ()

    picky = optax.GradientTransformation(only_vectors, lambda u, s, p: (u, s))
    with pytest.raises(ValueError, match="uses this step size for its momentum and, relative to it, for y"):
        solve(PROBLEM, SUSTAIN(c=picky, eta=0.2), steps=1)


def test_an_optimiser_has_no_text():
    with pytest.raises(ValueError, match=r"an optimiser of optax.* cannot be written down"):
        bilax.settings.write(MRBO(gamma=optax.adam(1e-2)))


def test_under_vmap_over_rates():
    def run(rate):
        sgd = optax.inject_hyperparams(optax.sgd)(learning_rate=rate)
        return iterate(PROBLEM, MRBO(gamma=sgd, lam=0.3, S=5, eta=0.2), steps=3).state.x

    together = jax.vmap(run)(jnp.array([0.01, 0.1]))
    np.testing.assert_allclose(
        together[1], solve(PROBLEM, MRBO(gamma=0.1, lam=0.3, S=5, eta=0.2), steps=3).x, rtol=1e-12
    )


def test_a_root_that_has_no_derivative_is_named():
    """The inner gradient by the second variable is exactly 0, and Adam divides by the root of its square."""
    problem = bilax.Problem(
        lambda x, y, batch: jnp.sum((y - 1) ** 2) + 0 * jnp.sum(batch),
        lambda x, y, batch: (y[0] - x[0]) ** 2 + 0 * y[1] * x[0] + 0 * jnp.sum(batch),
        np.ones(4), np.ones(4), np.ones(1), np.zeros(2),
    )  # fmt: skip
    ended = bilax.solve(problem, bilax.Reverse(beta=optax.adam(0.1), T=2, S=2), steps=3)
    assert ended.status == "diverged"
    assert "eps_root=1e-8" in ended.message
    cured = bilax.solve(problem, bilax.Reverse(beta=optax.adam(0.1, eps_root=1e-8), T=2, S=2), steps=3)
    assert cured.status == "done"
