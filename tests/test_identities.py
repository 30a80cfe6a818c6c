"""What holds exactly: full-batch identities at every k, and the limits of the hyper-parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES
from problem_cases import PROBLEM_CASES, final_state

import bilax
from bilax import MRBO, iterate
from bilax.hypergrad import dense, neumann, random_neumann
from bilax.oracle import make_oracle
from bilax.problems import quadratic
from bilax.sampling import keys

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
    state = alg.init(oracle, jnp.asarray(case.x0), jnp.asarray(case.y0))
    for k in range(STEPS):
        state = step(k, state)
        for tracked, exact in pairs(state):
            close(tracked, exact)


@pytest.mark.slow
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
    state = alg.init(oracle, jnp.asarray(case.x0), jnp.asarray(case.y0))
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


# ---------------------------------------------------------------- one method is another in a limit

by_case = pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)


def same_iterates(case, one, other, steps=STEPS, **options):
    a, b = (final_state(case, alg, steps, seed=3, **options) for alg in (one, other))
    close((a.x, a.y), (b.x, b.y), tol=1e-10)
    assert np.abs(a.x - case.x0).max() > 1e-6


@by_case
@pytest.mark.parametrize("sampler", ["iid", "epoch"])
def test_mrbo_d_with_one_inner_update_is_mrbo(case, sampler):
    settings = dict(gamma=0.3, lam=0.4, c1=0.9, c2=1.1, d=0.9, m=3.0, Q=2, eta=case.eta, S=5)
    same_iterates(case, MRBO(**settings), bilax.MRBOD(N=1, **settings), sampler=sampler)


@by_case
def test_mrbo_with_single_samples_and_a_random_series_is_sustain(case, monkeypatch):
    """The paper says so. The schedules map as gamma = c, lam = c_b c, c1 = c_f c^2, c2 = c_g c^2, d = 1, m = w."""
    c, c_b, c_f, c_g, w = 0.3, 0.9, 3.0, 4.0, 5.0
    sustain = final_state(case, bilax.SUSTAIN(c, c_b, c_f, c_g, w, Q=3, eta=case.eta, S=1), STEPS, seed=3)
    for name in ("draw", "hypergrad"):
        monkeypatch.setattr(neumann, name, getattr(random_neumann, name))
    same = MRBO(gamma=c, lam=c_b * c, c1=c_f * c**2, c2=c_g * c**2, d=1.0, m=w, Q=3, eta=case.eta, S=1)
    mrbo = final_state(case, same, STEPS, seed=3)
    close((mrbo.x, mrbo.y, mrbo.v, mrbo.u), (sustain.x, sustain.y, sustain.v, sustain.u))


@by_case
def test_sustain_with_momentum_one_is_sgd(case):
    alg = bilax.SUSTAIN(c=0.3, c_b=0.9, c_f=1e9, c_g=1e9, w=3.0, Q=2, eta=case.eta, S=2)
    oracle = make_oracle(case.problem)
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)

    @jax.jit
    def sgd(k, x, y):
        key_y, key_x, _ = jax.random.split(keys.at(keys.root(3), k), 3)
        v = random_neumann.hypergrad(oracle, x, y, random_neumann.draw(oracle, key_x, 2, 2), case.eta).value
        step = 0.3 / (3.0 + k) ** (1 / 3)
        return x - step * v, y - 0.9 * step * oracle.grad_G(x, y, oracle.draw_G(key_y, 2))

    for k in range(STEPS):
        x, y = sgd(k, x, y)
    state = final_state(case, alg, STEPS, seed=3)
    close((state.x, state.y), (x, y))


@by_case
def test_mstsa_with_momentum_one_is_ttsa_with_equal_exponents(case):
    steps = dict(alpha=0.2, beta=0.3, Q=3, eta=case.eta, S=2)
    same_iterates(case, bilax.MSTSA(c=1e9, **steps), bilax.TTSA(a=0.5, b=0.5, **steps))


@by_case
def test_bsa_with_one_inner_step_is_ttsa_with_a_constant_inner_step(case):
    steps = dict(alpha=0.2, beta=0.3, Q=3, eta=case.eta, S=2, a=0.6)
    same_iterates(case, bilax.BSA(T=1, b=0.7, **steps), bilax.TTSA(b=0.0, **steps))


@by_case
def test_stocbio_is_aid_fp_on_full_batches(case):
    """Q + 1 terms of the series are Q + 1 fixed-point iterations when all batches are the same."""
    one = bilax.StocBiO(alpha=0.3, beta=0.2, D=4, Q=5, eta=case.eta)
    same_iterates(case, one, bilax.AIDFP(alpha=0.2, beta=0.3, T=4, N=6, eta=case.eta), sampler="full")


@by_case
def test_aid_fp_and_aid_cg_agree_when_the_systems_are_solved(case):
    steps = dict(alpha=0.2, beta=0.3, T=4, S=12)
    same_iterates(case, bilax.AIDFP(N=3000, eta=case.eta, **steps), bilax.AIDCG(N=14, **steps), steps=3)


@by_case
def test_sema_with_weights_one_is_plain_sgd(case):
    alg = bilax.SEMA(gamma=0.2, tau=0.3, alpha=1.0, beta=1.0, Q=2, eta=case.eta, S=4)
    oracle = make_oracle(case.problem)
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)

    @jax.jit
    def sgd(k, x, y):
        key_y, key_x, _ = jax.random.split(keys.at(keys.root(3), k), 3)
        v = neumann.hypergrad(oracle, x, y, neumann.draw(oracle, key_x, 4, 2), case.eta).value
        return x - 0.2 * v, y - 0.3 * oracle.grad_G(x, y, oracle.draw_G(key_y, 4))

    for k in range(STEPS):
        x, y = sgd(k, x, y)
    state = final_state(case, alg, STEPS, seed=3)
    close((state.x, state.y), (x, y))


@by_case
def test_stable_and_rsvrb_move_along_the_exact_hypergradient_on_full_batches(case):
    oracle = make_oracle(case.problem, "full")
    for alg, step in ((bilax.STABLE(alpha=0.1, mu=1e-6, C=1e6), 0.1), (bilax.RSVRB(gamma=0.2, mu=1e-6, C=1e6), 0.2)):
        before = final_state(case, alg, 4, sampler="full")
        after = final_state(case, alg, 5, sampler="full")
        data = case.problem.outer_data, case.problem.inner_data
        exact = dense.hypergrad(oracle, before.x, before.y, *data).value
        close((before.x - after.x) / step, exact, tol=1e-9)


def test_stable_follows_y_star_on_a_quadratic():
    """Full batches, y at the solution: the correction keeps it there whatever x does."""
    q = quadratic(seed=2)
    x0 = np.array([1.0, -1.0, 0.5])
    state, *_ = iterate(q.problem, bilax.STABLE(alpha=0.05, mu=1e-6), x0, q.y_star(x0), steps=20, sampler="full")
    close(state.y, q.y_star(np.asarray(state.x)), tol=1e-9)
    assert np.abs(state.x - x0).max() > 0.1


@by_case
def test_reverse_truncated_to_all_steps_is_reverse(case):
    same_iterates(case, bilax.Reverse(alpha=0.2, beta=0.3, T=6), bilax.Reverse(alpha=0.2, beta=0.3, T=6, K=6))


@by_case
def test_soba_with_x_and_y_at_rest_sums_the_series(case):
    """K steps of the linear system from 0, on full batches, are the K terms of equation 4 with Q = K - 1."""
    K = 6
    alg = bilax.SOBA(gamma=0.0, rho=0.0, rho_v=case.eta, b=0.0)
    state = final_state(case, alg, K, sampler="full")
    oracle = make_oracle(case.problem, "full")
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    close((state.x, state.y), (x, y))
    F_x, _ = oracle.grad_F(x, y, case.problem.outer_data)
    series = neumann.hypergrad(oracle, x, y, neumann.draw(oracle, keys.root(0), 1, K - 1), case.eta)
    close(F_x - oracle.jvp_G(x, y, case.problem.inner_data, state.v), series.value)
