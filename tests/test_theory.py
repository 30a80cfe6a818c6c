"""The paper's propositions, checked numerically, and its theorems' settings."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_cases import PROBLEM_CASES

import bilax
from bilax import MRBO, VRBO, theory
from bilax.hypergrad import Exact, Neumann, hypergradient, neumann
from bilax.oracle import make_oracle
from bilax.problems import quadratic
from bilax.sampling import keys
from bilax.theory import Constants

RADIUS = 3.0
QUADRATIC = quadratic(inner_size=24, outer_size=24, seed=1)  # the one behind PROBLEM_CASES[0]


def softmax_constants(case):
    """Constants of every sample of the small hyper-cleaning problem: the largest seen at random points of the ball."""
    rng = np.random.default_rng(0)
    n, classes, features = 24, 3, 4
    p = case.problem
    join = lambda f: lambda z, b: f(z[:n], z[n:].reshape(classes, features), b)
    F, G = join(p.outer_loss), join(p.inner_loss)
    each = lambda data: jax.tree.map(lambda a: a[:, None], data)  # batches of one sample
    per = lambda f, data: jax.jit(lambda z: jax.vmap(lambda b: f(z, b))(each(data)))
    grad_F, grad_G = per(jax.grad(F), p.outer_data), per(jax.grad(G), p.inner_data)
    hess_F, hess_G = per(jax.hessian(F), p.outer_data), per(jax.hessian(G), p.inner_data)
    L = M = tau = rho = sigma = 0.0
    points = [RADIUS * rng.uniform() * z / np.linalg.norm(z) for z in rng.normal(size=(12, n + 12))]
    for z, w in pairwise(points):
        HF, HG, HGw = hess_F(z), hess_G(z), hess_G(w)
        L = max(L, *(np.linalg.norm(H, 2, axis=(1, 2)).max() for H in (HF, HG)))
        M = max(M, np.linalg.norm(grad_F(z), axis=1).max())
        g = np.asarray(grad_G(z))
        sigma = max(sigma, np.sqrt(((g - g.mean(0)) ** 2).sum(1).mean()))
        d = np.linalg.norm(z - w)
        tau = max(tau, np.linalg.norm((HG - HGw)[:, :n, n:], 2, axis=(1, 2)).max() / d)
        rho = max(rho, np.linalg.norm((HG - HGw)[:, n:, n:], 2, axis=(1, 2)).max() / d)
    return Constants(float(L), 2 * 0.05, float(M), float(tau), float(rho), float(sigma), RADIUS)


@cache
def constants_of(name):
    quadratic, softmax = PROBLEM_CASES
    return QUADRATIC.constants(RADIUS) if name == quadratic.name else softmax_constants(softmax)


@pytest.fixture
def c(case):
    return constants_of(case.name)


both_problems = pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda case: case.name)


def points(case, number=6):
    rng = np.random.default_rng(1)
    nx, ny = case.x0.size, case.y0.size
    for z in rng.normal(size=(number, nx + ny)):
        z *= RADIUS * rng.uniform() / np.linalg.norm(z)
        yield jnp.asarray(z[:nx]), jnp.asarray(z[nx:].reshape(case.y0.shape))


@both_problems
@pytest.mark.parametrize("Q", [1, 5, 20])
def test_bias_is_at_most_C_Q(case, c, Q):
    """At any y, the mean of the estimator is within C_Q of its limit (Proposition 2)."""
    eta = 0.9 / c.L
    bound = theory.derived(c, Q, eta).C_Q
    biases = []
    for x, y in points(case):
        mean = hypergradient(case.problem, x, y, Neumann(Q=Q, eta=eta)).value
        limit = hypergradient(case.problem, x, y, Exact()).value
        biases.append(float(jnp.linalg.norm(mean - limit)))
    assert 0 < max(biases) <= bound


@pytest.mark.slow
@both_problems
@pytest.mark.parametrize("S", [1, 4])
def test_variance_is_at_most_G2(case, c, S):
    """Of equation 4 (Proposition 1) and of one chain of equation 5 (Proposition 3), over 2,000 draws at each point."""
    Q, eta = 3, 0.9 / c.L
    own = theory.derived(c, Q, eta)
    oracle = make_oracle(case.problem)
    for x, y in points(case, 3):
        mean = hypergradient(case.problem, x, y, Neumann(Q=Q, eta=eta)).value
        for per_sample, bound in ((False, own.G2(c, Q, eta, S)), (True, own.sigma_prime**2 / S)):
            method = Neumann(Q=Q, eta=eta, S=S, per_sample=per_sample)
            draw = jax.jit(
                jax.vmap(lambda k, m=method, x=x, y=y: m.estimate(oracle, keys.at(keys.root(2), k), x, y).value)
            )
            values = draw(jnp.arange(2000))
            variance = float(jnp.mean(jnp.sum((values - mean) ** 2, axis=1)))
            assert 0 < variance <= bound


@both_problems
def test_lipschitz_constant_is_at_most_L_Q(case, c):
    Q, eta = 3, 0.9 / c.L
    L_Q = theory.derived(c, Q, eta).L_Q
    oracle = make_oracle(case.problem)
    value = jax.jit(
        lambda k, x, y: neumann.hypergrad(oracle, x, y, neumann.draw(oracle, keys.at(keys.root(0), k), 1, Q), eta).value
    )
    pts = list(points(case, 8))
    slopes = []
    for (x, y), (xx, yy) in pairwise(pts):
        distance = float(jnp.sqrt(jnp.sum((x - xx) ** 2) + jnp.sum((y - yy) ** 2)))
        slopes += [float(jnp.linalg.norm(value(k, x, y) - value(k, xx, yy))) / distance for k in range(20)]
    assert 0 < max(slopes) <= L_Q


def test_gradient_of_Phi_is_L_Phi_lipschitz():
    c = QUADRATIC.constants(RADIUS)
    hessian = np.stack([QUADRATIC.gradient(e) - QUADRATIC.gradient(np.zeros(3)) for e in np.eye(3)])
    assert np.linalg.norm(hessian, 2) <= theory.derived(c, 3, 0.5 / c.L).L_Phi


def test_error_of_the_hypergradient_is_at_most_L_prime_times_that_of_y():
    c = QUADRATIC.constants(RADIUS)
    bound = theory.derived(c, 3, 0.5 / c.L).L_prime
    for x, y in points(PROBLEM_CASES[0]):
        here = hypergradient(QUADRATIC.problem, x, y, Exact()).value
        y_star = QUADRATIC.y_star(np.asarray(x))
        assert np.linalg.norm(here - QUADRATIC.gradient(np.asarray(x))) <= bound * np.linalg.norm(y - y_star)


@both_problems
@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_the_theorems_settings_satisfy_their_conditions(case, c, eps):
    for algorithm, K in (theory.theorem1(c, eps), theory.theorem2(c, eps)):
        conditions = theory.explain(algorithm, c)
        assert all(condition.holds for condition in conditions), [str(x) for x in conditions if not x.holds]
        assert theory.derived(c, algorithm.Q, float(algorithm.eta)).C_Q ** 2 <= eps
        assert K >= 1 / eps
    mrbo, _ = theory.theorem1(c, eps)
    for change in ({"gamma": 10 * mrbo.gamma}, {"lam": 2 * mrbo.lam}, {"eta": 1.1 / c.L}, {"m": mrbo.m / 2}):
        assert not all(x.holds for x in theory.explain(replace(mrbo, **change), c))


def test_rates_of_the_corollaries():
    c = QUADRATIC.constants(RADIUS)
    (_, K), (_, K_finer) = theory.theorem1(c, 1e-2), theory.theorem1(c, 1e-4)
    assert K_finer / K == pytest.approx(1000, rel=0.01)
    (v, K), (v_finer, K_finer) = theory.theorem2(c, 1e-2), theory.theorem2(c, 1e-4)
    assert K_finer / K == pytest.approx(100)
    assert v_finer.S1 / v.S1 == pytest.approx(100)
    assert v_finer.S2 / v.S2 <= 10.1


def test_explain_names_what_fails():
    c = QUADRATIC.constants(RADIUS)
    failing = [x.statement for x in theory.explain(MRBO(gamma=0.1, lam=0.1, eta=2.0 / c.L), c) if not x.holds]
    assert "eta < 1/L" in failing
    assert str(theory.explain(MRBO(), c)[0]).startswith("holds eta < 1/L")  # auto
    assert not all(x.holds for x in theory.explain(VRBO(), c))
    with pytest.raises(TypeError, match="theorems for MRBO and VRBO; got SEMA"):
        theory.explain(bilax.SEMA(), c)
    with pytest.raises(ValueError, match=r"eps, the target of \|grad Phi\|\^2, must be a finite number > 0; got 0"):
        theory.theorem1(c, 0)


def test_estimate_finds_the_constants_of_the_quadratic():
    q = quadratic(q=6, seed=4)
    c = theory.estimate(q.problem, np.ones(3), np.zeros(6), samples=512)
    eigenvalues = np.linalg.eigvalsh(q._mean["A"])
    assert c.L == pytest.approx(eigenvalues[-1], rel=1e-3)
    assert c.mu == pytest.approx(eigenvalues[0], rel=0.02)
    assert c.tau == pytest.approx(0, abs=1e-9)
    assert c.rho == pytest.approx(0, abs=1e-9)
    exact = q.constants(radius=np.sqrt(3))
    assert 0.3 * exact.M < c.M <= exact.M
    assert 0.2 * exact.sigma < c.sigma <= exact.sigma * 1.1


def test_estimate_sees_curvature_that_changes():
    case = PROBLEM_CASES[1]
    c = theory.estimate(case.problem, case.x0, case.y0)
    assert c.rho > 0
    assert c.tau > 0
    assert 2 * 0.05 <= c.mu * (1 + 1e-3)
    assert c.mu < c.L
