"""What holds exactly: full-batch identities at every k, and the limits of the hyper-parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES, PROBLEM_CASES, final_state

from bilax import MRBO, keys
from bilax.hypergrad import neumann
from bilax.oracle import make_oracle

STEPS = 9


def close(actual, expected, tol=1e-11):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tol, atol=tol), actual, expected)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("algorithm", [c for c in ALGORITHM_CASES if c.exact], ids=str)
def test_recursions_are_exact_when_every_batch_is_all_data(algorithm, case):
    """No noise, no error: what a state tracks is exact at the point it belongs to, at every k."""
    alg = algorithm.make(eta=case.eta, mu=1e-6, C=1e6)  # projections that change nothing
    oracle = make_oracle(case.problem, "full")
    step = jax.jit(lambda k, s: alg.step(oracle, keys.at(keys.root(0), k), s)[0])
    pairs = jax.jit(lambda s: algorithm.exact(alg, oracle, s))
    state = alg.init(jnp.asarray(case.x0), jnp.asarray(case.y0))
    for k in range(STEPS):
        state = step(k, state)
        for tracked, exact in pairs(state):
            close(tracked, exact)


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_vrbo_is_exact_at_every_inner_t(case):
    """Stopping the inner loop after any number of passes leaves exact directions, so each u~_t and v~_t is exact."""
    algorithm = next(c for c in ALGORITHM_CASES if c.name == "vrbo")
    oracle = make_oracle(case.problem, "full")
    for m in range(4):
        alg = algorithm.make(eta=case.eta, m=m, q=100)
        state = final_state(case, alg, 3, sampler="full")
        B = neumann.draw(oracle, keys.root(0), 1, alg.Q)
        close(state.v, neumann.hypergrad(oracle, state.x, state.y, B, alg.eta).value)
        close(state.u, oracle.grad_G(state.x, state.y, oracle.draw_G(keys.root(0), 1)))


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_mrbo_with_alpha_beta_one_is_sgd(case):
    """c1, c2 so large that alpha = beta = 1 (clipped): plain SGD on both levels with decreasing steps."""
    alg = MRBO(gamma=0.3, lam=0.4, c1=1e9, c2=1e9, d=0.9, m=3.0, Q=2, eta=case.eta, S=5)
    oracle = make_oracle(case.problem)
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)

    @jax.jit
    def sgd(k, x, y):
        key_y, key_x, _ = jax.random.split(keys.at(keys.root(3), k), 3)
        v = neumann.hypergrad(oracle, x, y, neumann.draw(oracle, key_x, 5, 2), case.eta).value
        u = oracle.grad_G(x, y, oracle.draw_G(key_y, 5))
        eta_k = 0.9 / (3.0 + k) ** (1 / 3)
        return x - 0.3 * eta_k * v, y - 0.4 * eta_k * u

    for k in range(STEPS):
        x, y = sgd(k, x, y)
    state = final_state(case, alg, STEPS, seed=3)
    close((state.x, state.y), (x, y))


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_mrbo_with_c_zero_is_sarah(case):
    """alpha = beta = 0 from the second step on: differences on fresh batches are summed, nothing is forgotten."""
    alg = MRBO(gamma=0.3, lam=0.4, c1=0.0, c2=0.0, d=0.9, m=3.0, Q=2, eta=case.eta, S=5)
    oracle = make_oracle(case.problem)
    state = alg.init(jnp.asarray(case.x0), jnp.asarray(case.y0))
    step = jax.jit(lambda k, s: alg.step(oracle, keys.at(keys.root(3), k), s)[0])

    @jax.jit
    def at(k, x, y):
        key_y, key_x, _ = jax.random.split(keys.at(keys.root(3), k), 3)
        B_x, B_y = neumann.draw(oracle, key_x, 5, 2), oracle.draw_G(key_y, 5)
        return neumann.hypergrad(oracle, x, y, B_x, case.eta).value, oracle.grad_G(x, y, B_y)

    v = u = None
    for k in range(STEPS):
        new = step(k, state)
        here, before = at(k, state.x, state.y), at(k, state.x_prev, state.y_prev)
        v = here[0] if v is None else v + here[0] - before[0]
        u = here[1] if u is None else u + here[1] - before[1]
        close((new.v, new.u), (v, u))
        state = new


@pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)
def test_many_terms_give_the_exact_hypergradient(case):
    oracle = make_oracle(case.problem, "full")
    everything = np.arange(24)
    flat = case.y0.ravel()
    H, J = case.twin.G_yy(case.x0, flat, everything), case.twin.G_xy(case.x0, flat, everything)
    F_x, F_y = case.twin.F_x(case.x0, flat, everything), case.twin.F_y(case.x0, flat, everything)
    exact = F_x - J @ np.linalg.solve(H, F_y)
    errors = []
    for Q in (1, 10, 2000):
        B = neumann.draw(oracle, keys.root(0), 1, Q)
        estimate = jax.jit(lambda B: neumann.hypergrad(oracle, case.x0, jnp.asarray(case.y0), B, case.eta))(
            B._replace(S=1)
        )
        errors.append(np.abs(estimate.value - exact).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-12
