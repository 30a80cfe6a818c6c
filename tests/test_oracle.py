"""What later methods ask of the oracle: each against the plain derivative, over all data, block by block."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import METHOD_CASES
from problem_cases import PROBLEM_CASES

import bilax
from bilax import MRBO, Counts, Oracle, Problem, make_oracle, solve
from bilax.numerics.memory import bytes_of
from bilax.numerics.second_derivatives import central_differences
from bilax.oracle import traced
from bilax.problems import quadratic
from bilax.running.inspection import Inspector
from bilax.sampling import keys, passes
from bilax.testing import counting

by_name = pytest.mark.parametrize("case", PROBLEM_CASES, ids=lambda c: c.name)


def point(case, oracle):
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    r = jnp.asarray(np.random.default_rng(0).normal(size=case.y0.shape))
    return x, y, oracle.draw_G(keys.root(2), 7), r


@by_name
@pytest.mark.parametrize(
    "way",
    ["auto", "forward", "reverse", "differences", central_differences],
    ids=["auto", "forward", "reverse", "differences", "function"],
)
def test_second_derivatives_in_three_ways(case, way):
    """H r and J r against the dense matrices of the transcript, and all three together from one linearisation."""
    oracle = make_oracle(replace(case.problem, second_derivatives=way))
    x, y, zeta, r = point(case, oracle)
    tol = 1e-7 if "differences" in str(way) else 1e-11
    number, flat = np.asarray(zeta["number"]), np.asarray(r).ravel()
    H, J = (matrix(case.x0, case.y0.ravel(), number) for matrix in (case.twin.G_yy, case.twin.G_xy))
    G_y, Hr, Jr = jax.jit(oracle.linearize_G)(x, y, zeta, r)
    for got, expected in ((oracle.hvp_G(x, y, zeta, r), H @ flat), (oracle.jvp_G(x, y, zeta, r), J @ flat)):
        np.testing.assert_allclose(np.ravel(got), expected, rtol=tol, atol=tol)
    np.testing.assert_allclose(np.ravel(Hr), H @ flat, rtol=tol, atol=tol)
    np.testing.assert_allclose(np.ravel(Jr), J @ flat, rtol=tol, atol=tol)
    np.testing.assert_allclose(G_y, oracle.grad_G(x, y, zeta), rtol=1e-12, atol=1e-14)


def test_differences_of_no_direction_are_zero_and_the_radius_can_be_chosen():
    oracle = make_oracle(replace(PROBLEM_CASES[0].problem, second_derivatives="differences"))
    x, y, zeta, r = point(PROBLEM_CASES[0], oracle)
    assert not np.asarray(oracle.hvp_G(x, y, zeta, 0 * r)).any()
    wide = central_differences(PROBLEM_CASES[0].problem.inner_loss, radius=10.0)
    np.testing.assert_allclose(wide.hvp(x, y, zeta, r), oracle.hvp_G(x, y, zeta, r), rtol=1e-7)  # G is quadratic


@jax.custom_vjp
def softplus(z):
    return jnp.logaddexp(z, 0)


softplus.defvjp(lambda z: (softplus(z), z), lambda z, cotangent: (cotangent / (1 + jnp.exp(-z)),))


def inner_loss_by(softplus):
    return lambda x, y, b: jnp.mean(softplus(b @ (jnp.exp(x) * y))) + jnp.sum(y**2)


def with_a_backward_pass_of_its_own(**options):
    data = np.random.default_rng(0).normal(size=(30, 3))
    return Problem(
        outer_loss=lambda x, y, b: jnp.mean((b @ y - 1) ** 2),
        inner_loss=inner_loss_by(softplus),
        outer_data=data,
        inner_data=data,
        x0=jnp.zeros(3),
        y0=jnp.ones(3),
        **options,
    )


def test_a_loss_without_forward_mode_names_the_two_ways_out():
    alg = MRBO(S=5, gamma=0.01)
    with pytest.raises(TypeError, match=r"second_derivatives='reverse'.*second_derivatives='differences'"):
        solve(with_a_backward_pass_of_its_own(second_derivatives="forward"), alg, steps=2)
    by_reverse, by_differences = (
        solve(with_a_backward_pass_of_its_own(second_derivatives=way), alg, steps=5)
        for way in ("reverse", "differences")
    )
    np.testing.assert_allclose(by_reverse.x, by_differences.x, rtol=1e-6)
    assert by_reverse.counts == by_differences.counts
    with pytest.warns(UserWarning, match="taken by reverse over reverse") as told:
        by_itself = solve(with_a_backward_pass_of_its_own(), alg, steps=5)
    assert len({str(one.message) for one in told}) == 1
    np.testing.assert_allclose(by_itself.x, by_reverse.x, rtol=1e-12)
    with pytest.raises(ValueError, match=r"no way to take second derivatives is called 'backward'.*There are auto"):
        with_a_backward_pass_of_its_own(second_derivatives="backward")


def test_a_loss_without_second_derivatives_is_differenced():
    """Its gradient comes from a function that JAX cannot look into."""

    @jax.custom_vjp
    def square(z):
        return 0.5 * jnp.sum(z**2)

    outside = lambda z: jax.pure_callback(
        np.asarray, jax.ShapeDtypeStruct(z.shape, z.dtype), z, vmap_method="sequential"
    )
    square.defvjp(lambda z: (square(z), outside(z)), lambda g, ct: (ct * g,))

    def problem(half_square, **options):
        inner = lambda x, y, batch: half_square(y - x - batch.mean())
        outer = lambda x, y, batch: jnp.mean((y - batch.mean()) ** 2)
        data = np.arange(4.0)
        return Problem(outer, inner, data, data, x0=np.zeros(2), y0=np.ones(2), **options)

    alg = bilax.StocBiO(S=2, Q=3, D=2, eta=0.5)
    with pytest.warns(UserWarning, match="taken by central differences"):
        found = solve(problem(square), alg, steps=3)
    known = solve(problem(lambda z: 0.5 * jnp.sum(z**2)), alg, steps=3)
    np.testing.assert_allclose(found.x, known.x, rtol=1e-6)


def test_a_backward_pass_without_products_is_noticed_too():
    """What JAX cannot lower is found where the trace has no matrix product, and where nothing depends on it."""

    @jax.custom_vjp
    def half_square(z):
        return 0.5 * jnp.sum(z**2)

    half_square.defvjp(lambda z: (half_square(z), z), lambda z, ct: (ct * jax.lax.stop_gradient(z),))
    problem = Problem(
        lambda x, y, b: jnp.mean((y - 1) ** 2), lambda x, y, b: half_square(y - x), np.ones(4), np.ones(4)
    )
    with pytest.warns(UserWarning, match="taken by reverse over reverse"):
        Hr = jax.jit(make_oracle(problem).hvp_G)(jnp.zeros(2), jnp.ones(2), jnp.ones(4), jnp.ones(2))
    assert Hr.shape == (2,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = solve(problem, bilax.AIDCG(), np.zeros(2), np.ones(2), steps=2)
        by_values = solve(problem, bilax.F2SA(), np.zeros(2), np.ones(2), steps=2)
    assert "the second derivatives of inner_loss are 100 % off" in wrong.warnings[0]
    assert not by_values.warnings  # it takes none


def test_a_backward_pass_that_can_be_differentiated_raises_no_doubt():
    for dtype in (np.float32, np.float64):
        problem = with_a_backward_pass_of_its_own()
        problem = replace(problem, x0=np.zeros(3, dtype), y0=np.ones(3, dtype), inner_data=np.ones((30, 3), dtype))
        error = Inspector(traced(problem, "iid")).error_of_second_derivatives(
            SimpleNamespace(x=problem.x0, y=problem.y0)
        )
        assert 0 < error < 1e-3  # some, so it was looked at


def test_a_mistake_in_the_loss_is_not_taken_for_a_missing_rule():
    wrong = lambda x, y, batch: jnp.sum(y @ jnp.ones((7, 7)))
    problem = Problem(lambda x, y, b: jnp.sum(y), wrong, np.ones(4), np.ones(4), x0=np.zeros(2), y0=np.ones(2))
    with pytest.raises(TypeError, match="dot_general"):
        make_oracle(problem).hvp_G(jnp.zeros(2), jnp.ones(2), jnp.ones(4), jnp.ones(2))


@pytest.mark.parametrize("algorithm", METHOD_CASES, ids=str)
def test_every_method_takes_a_loss_without_forward_mode(algorithm):
    problem = with_a_backward_pass_of_its_own()
    plain = replace(problem, inner_loss=inner_loss_by(lambda z: jnp.logaddexp(z, 0)))
    runs = []
    for one in (problem, plain):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="inner_loss has a derivative rule")
            runs.append(solve(one, algorithm.make(), steps=2))
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=1e-9, atol=1e-12)


@by_name
def test_gradients_by_both_variables_and_values(case):
    oracle = make_oracle(case.problem)
    x, y, zeta, _ = point(case, oracle)
    G_x, G_y = oracle.grads_G(x, y, zeta)
    np.testing.assert_allclose(G_y, oracle.grad_G(x, y, zeta), rtol=1e-12)
    h = 1e-6
    slopes = [
        (oracle.value_G(x + h * e, y, zeta) - oracle.value_G(x - h * e, y, zeta)) / (2 * h) for e in np.eye(x.size)
    ]
    np.testing.assert_allclose(G_x, slopes, atol=1e-8)
    assert oracle.value_F(x, y, oracle.draw_F(keys.root(0), 3)) == case.problem.outer_loss(
        x, y, oracle.draw_F(keys.root(0), 3)
    )


@by_name
@pytest.mark.parametrize("chunk", [1, 5, 24])
def test_exact_passes_in_chunks(monkeypatch, case, chunk):
    """Chunks of 5 leave a short one of 4; every sample counts once, and the calls are those of all samples."""
    data = case.problem.inner_data
    monkeypatch.setattr(passes, "CHUNK_BYTES", chunk * bytes_of(data) // 24)
    oracle, tally = counting(make_oracle(case.problem))
    x, y, _, r = point(case, oracle)
    everything = jax.jit(lambda: oracle.mean_G(lambda zeta: oracle.linearize_G(x, y, zeta, r)))()
    assert tally.counts == Counts(G=24, HV=24, JV=24)
    plain = make_oracle(case.problem)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14),
        everything,
        plain.linearize_G(x, y, data, r),
    )
    outer = oracle.mean_F(lambda xi: oracle.grad_F(x, y, xi))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14),
        outer,
        plain.grad_F(x, y, case.problem.outer_data),
    )


@pytest.mark.parametrize("sampler", ["iid", "epoch", "blocks", "block-epoch", "full"])
def test_draws_can_tell_their_sample_numbers(sampler):
    oracle = make_oracle(PROBLEM_CASES[0].problem, sampler)
    for k in range(3):
        key = keys.at(keys.root(1), k)
        np.testing.assert_array_equal(oracle.numbers_G(key, 5), oracle.draw_G(key, 5)["number"])
        np.testing.assert_array_equal(oracle.numbers_F(key, 5), oracle.draw_F(key, 5)["number"])


def test_a_sampler_that_looks_into_the_data_cannot_tell():
    oracle = make_oracle(PROBLEM_CASES[0].problem, lambda data, key, size: {"number": data["number"][:size]})
    with pytest.raises(TypeError, match="cannot tell the numbers of its samples"):
        oracle.numbers_G(keys.root(0), 2)


@pytest.mark.parametrize("length", [1, 7, 8, 24, 100])
def test_blocks_have_an_identity_and_a_weight(length):
    """Weighted by their share, the blocks give the mean over all samples, the short one included; traced numbers work."""
    case = PROBLEM_CASES[1]
    oracle = make_oracle(case.problem)
    x, y = jnp.asarray(case.x0), jnp.asarray(case.y0)
    blocks = oracle.blocks_G(length)
    assert blocks.count == -(-24 // length)
    weigh = jax.jit(lambda i: (blocks.weight(i), blocks.evaluate(i, lambda zeta: oracle.grad_G(x, y, zeta))))
    parts = [weigh(i) for i in range(blocks.count)]
    assert sum(weight for weight, _ in parts) == pytest.approx(1)
    mean = sum(weight * gradient for weight, gradient in parts)
    np.testing.assert_allclose(mean, oracle.grad_G(x, y, case.problem.inner_data), rtol=1e-12, atol=1e-14)
    met = [blocks.evaluate(i, lambda zeta: zeta["number"].sum()) for i in range(blocks.count)]
    assert sum(met) == np.arange(24).sum()


def test_passes_and_blocks_of_sparse_rows(monkeypatch):
    dense = np.random.default_rng(0).normal(size=(10, 4)) * (np.arange(40).reshape(10, 4) % 3 == 0)
    loss = lambda x, y, b: jnp.mean((b @ y - x) ** 2)
    sparse = scipy.sparse.csr_array(dense)
    oracle = make_oracle(Problem(loss, loss, sparse, sparse))
    x, y = jnp.ones(()), jnp.arange(4.0)
    monkeypatch.setattr(passes, "CHUNK_BYTES", bytes_of(oracle.draw_G(keys.root(0), 10)) // 3)
    expected = jax.grad(loss, argnums=1)(x, y, jnp.asarray(dense))
    np.testing.assert_allclose(oracle.mean_G(lambda b: oracle.grad_G(x, y, b)), expected, rtol=1e-12)
    sums = [oracle.blocks_G(4).evaluate(i, lambda b: jnp.sum(b @ jnp.eye(4), axis=0)) for i in range(3)]
    np.testing.assert_allclose(sums, [dense[:4].sum(0), dense[4:8].sum(0), dense[8:].sum(0)], atol=1e-14)


# ---------------------------------------------------------------- an oracle of one's own

Q = quadratic(seed=1)


def own_oracle(problem):
    """The quadratic's oracle by hand; its data are in Partials, so programs do not hold them."""

    def draw(data, key, size):
        index = jax.random.randint(key, (size,), 0, 8)
        return jax.tree.map(lambda leaf: leaf[index], data)

    made = make_oracle(problem)
    return Oracle(
        draw_F=jax.tree_util.Partial(draw, problem.outer_data),
        draw_G=jax.tree_util.Partial(draw, problem.inner_data),
        grad_F=made.grad_F,
        grad_G=made.grad_G,
        hvp_G=made.hvp_G,
        jvp_G=made.jvp_G,
    )


def test_solve_takes_an_oracle_of_ones_own(compiled):
    alg = MRBO(S=4, gamma=0.05, lam=0.2)
    oracle = own_oracle(Q.problem)

    def sampler(data, key, size):
        index = jax.random.randint(key, (size,), 0, 8)
        return jax.tree.map(lambda leaf: leaf[index], data)

    expected = solve(Q.problem, alg, steps=6, sampler=sampler, metrics=lambda x, y: {})
    result = solve(oracle, alg, Q.problem.x0, Q.problem.y0, steps=6)
    np.testing.assert_allclose(result.x, expected.x, rtol=1e-12)
    assert result.counts == expected.counts
    before = compiled.count("jit(advance)")
    solve(oracle, alg, Q.problem.x0, Q.problem.y0, steps=3)
    assert compiled.count("jit(advance)") == before
    found = bilax.sweep(oracle, [alg], Q.problem.x0, Q.problem.y0, steps=6)
    np.testing.assert_allclose(found.state.x[0, 0], result.x, rtol=1e-12)


def test_data_of_ones_own_oracle_are_not_in_the_program():
    from bilax.oracle import traced

    leaves = jax.tree.leaves(traced(own_oracle(Q.problem), "iid"))
    assert {leaf.shape[0] for leaf in leaves} == {Q.problem.inner_size, Q.problem.outer_size}


def test_what_ones_own_oracle_lacks_is_named():
    oracle = own_oracle(Q.problem)
    with pytest.raises(NotImplementedError, match=r"the method asks for mean_G, .*Oracle\(..., mean_G=...\)"):
        oracle.mean_G(lambda batch: batch)
    with pytest.raises(ValueError, match="x0 is empty"):
        solve(oracle, MRBO(), steps=1)
