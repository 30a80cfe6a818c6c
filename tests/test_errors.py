"""Bad input gets a message that says what was given and what is allowed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bilax import MRBO, VRBO, Problem, hypergradient, iterate, solve
from bilax.hypergrad import Neumann
from bilax.problems import corrupt_labels, quadratic

PROBLEM = quadratic().problem
mean_square = lambda x, y, b: jnp.mean((y - x - b) ** 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MRBO(gamma=-0.1),
            r"MRBO: gamma \(outer step size\) must be a finite number >= 0, or an optimiser such as optax.adam\(1e-2\); got -0.1",
        ),
        (
            lambda: MRBO(lam=float("nan")),
            r"lam .* must be a finite number >= 0, or an optimiser such as optax.adam\(1e-2\); got nan",
        ),
        (
            lambda: MRBO(lam="0.1"),
            r"lam .* must be a finite number >= 0, or an optimiser such as optax.adam\(1e-2\); got '0.1'",
        ),
        (
            lambda: MRBO(gamma=None),
            r"gamma .* must be a finite number >= 0, or an optimiser such as optax.adam\(1e-2\); got None",
        ),
        (lambda: MRBO(gamma=jnp.array([0.1, -1.0])), r"gamma .* must be a finite number >= 0"),
        (lambda: MRBO(d=0), r"d .* must be a finite number > 0; got 0"),
        (lambda: MRBO(m=float("inf")), r"m .* must be a finite number > 0; got inf"),
        (lambda: MRBO(Q=0), r"Q \(Hessian-vector products per hypergradient\) must be an integer >= 1; got 0"),
        (lambda: MRBO(Q=2.0), r"Q .* must be an integer >= 1; got 2.0"),
        (lambda: MRBO(Q=True), r"Q .* must be an integer >= 1; got True"),
        (lambda: MRBO(S=0), r"S .* must be an integer >= 1; got 0"),
        (lambda: MRBO(eta=0), r'eta .* must be a finite number > 0, or "auto"; got 0'),
        (lambda: MRBO(eta="automatic"), r'eta .* must be a finite number > 0, or "auto"; got \'automatic\''),
        (lambda: VRBO(m=-1), r"VRBO: m .* must be an integer >= 0; got -1"),
        (lambda: VRBO(q=0), r"q .* must be an integer >= 1; got 0"),
        (lambda: VRBO(per_sample="yes"), r"per_sample .* must be True or False; got 'yes'"),
    ],
)
def test_hyperparameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("value", [lambda k: 0.1, 1j, np.complex64(1), {1}, object(), [0.1], np.array(["a"])])
def test_hyperparameters_that_are_not_numbers(value):
    with pytest.raises(
        ValueError,
        match=r"gamma \(outer step size\) must be a finite number >= 0, or an optimiser such as optax.adam\(1e-2\); got",
    ):
        MRBO(gamma=value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: solve(MRBO(), PROBLEM, steps=1), TypeError, r"first argument must be a bilax.Problem; got MRBO"),
        (lambda: solve(PROBLEM, MRBO, steps=1), TypeError, r"algorithm must be an instance: write MRBO\(\)"),
        (lambda: solve(PROBLEM, "mrbo", steps=1), TypeError, r"must have init, step and cost.*got 'mrbo'"),
        (
            lambda: solve(PROBLEM, MRBO(gamma=jnp.ones(2)), steps=1),
            ValueError,
            r"gamma has the shape \(2,\).*bilax.sweep",
        ),
        (lambda: solve(PROBLEM, MRBO(), steps=1, sampler=["iid"]), ValueError, r"unknown sampler \['iid'\]"),
        (lambda: iterate(PROBLEM, MRBO(), steps=-1), ValueError, r"steps must be an integer >= 1; got -1"),
        (
            lambda: hypergradient(PROBLEM, jnp.ones(3), jnp.ones(4), Neumann),
            TypeError,
            r"such as bilax.hypergrad.Neumann\(Q=10\)",
        ),
        (
            lambda: solve(PROBLEM, MRBO(), steps=1, metrics=lambda x, y: {"F": 1.0}),
            ValueError,
            r"metrics may not return 'F'",
        ),
        (
            lambda: solve(PROBLEM, MRBO(), steps=1, metrics=lambda x, y: {"a": x}),
            TypeError,
            r"'a' has the shape \(3,\)",
        ),
        (
            lambda: solve(PROBLEM, MRBO(), steps=1, metrics=lambda x, y: 1.0),
            TypeError,
            r"a dictionary of names and numbers",
        ),
    ],
)
def test_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_integers_that_jax_would_cut_off():
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"inner_data holds integers beyond int32"):
        Problem(mean_square, mean_square, np.ones(3), np.array([1, 2, 2**40]))


def test_data_that_are_not_finite():
    data = np.array([1.0, np.nan, 2.0])
    with pytest.raises(ValueError, match=r"inner_data\['a'\] holds nan at \[1\], the first of 1 of 3 numbers"):
        Problem(mean_square, mean_square, data[:1], {"a": data})
    with pytest.raises(ValueError, match=r"x0\[1\] holds inf at \[0\]"):
        solve(Problem(mean_square, mean_square, data[:1], data[:1]), MRBO(), (0.0, np.array([np.inf])), 0.0, steps=5)
    problem = Problem(mean_square, mean_square, data, data, check_finite=False)
    result = solve(problem, MRBO(S=8, eta=0.1), 0.0, 0.0, steps=5)
    assert result.status == "diverged"
    assert "became NaN or infinite, although no number was larger than 1 before" in result.message


def test_unknown_hyperparameter():
    with pytest.raises(TypeError, match="learning_rate"):
        MRBO(learning_rate=0.1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"a": np.ones((5, 2)), "b": np.ones(4)},
            r"the arrays in inner_data must share their leading axis.*inner_data\['a'\] has 5, inner_data\['b'\] has 4",
        ),
        ({"a": np.ones(5), "b": 3.0}, r"inner_data\['b'\] is a scalar"),
        ({}, r"inner_data holds no arrays"),
        (np.ones((0, 3)), r"inner_data has no samples"),
    ],
)
def test_data(data, message):
    with pytest.raises(ValueError, match=message):
        Problem(mean_square, mean_square, np.ones(3), data)


def test_losses_must_be_functions():
    with pytest.raises(TypeError, match=r"outer_loss must be a function of \(x, y, batch\).*got float"):
        Problem(1.0, mean_square, np.ones(3), np.ones(3))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x, y, b: (y - x - b) ** 2, r"inner_loss must return one scalar.*an array of shape \(3,\).*jnp.mean"),
        (lambda x, y, b: (jnp.mean(b), 1.0), r"inner_loss must return one scalar.*it returned"),
        (lambda x, y, b: jnp.sum(b > 0), r"inner_loss must return a floating-point scalar; it returned dtype int"),
    ],
)
def test_losses_must_return_scalars(loss, message):
    problem = Problem(mean_square, loss, np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match=message):
        solve(problem, MRBO(S=3), jnp.zeros(()), jnp.zeros(()), steps=2)


@pytest.mark.parametrize(
    ("x0", "error", "message"),
    [
        (jnp.zeros(3, int), TypeError, r"x0 has dtype int64; x0 must hold floating-point arrays.*astype\(float\)"),
        ({"a": jnp.zeros(2), "b": 1}, TypeError, r"x0\['b'\] has dtype int"),
        ({}, ValueError, r"x0 is empty"),
        (jnp.zeros((0, 3)), ValueError, r"x0 has shape \(0, 3\), which holds no numbers"),
        ("zero", TypeError, r"x0 is a str; x0 must hold floating-point arrays"),
    ],
)
def test_starting_points(x0, error, message):
    with pytest.raises(error, match=message):
        solve(PROBLEM, MRBO(), x0, jnp.zeros(4), steps=2)


def test_no_starting_point_anywhere():
    problem = Problem(mean_square, mean_square, np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match=r"x0 is empty; give a pytree .* \(or set it on the problem\)"):
        solve(problem, MRBO(), steps=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, r"steps must be an integer >= 1; got 0"),
        ({"steps": 2.5}, r"steps must be an integer >= 1; got 2.5"),
        ({"steps": 5, "every": 0}, r"every .* must be an integer >= 1; got 0"),
        ({"steps": 5, "seed": -1}, r"seed must be an integer from 0 to 2\*\*32 - 1; got -1"),
        ({"steps": 5, "time_limit": -1}, r"time_limit must be a number > 0; got -1"),
        ({"steps": 5, "tol": "small"}, r"tol must be a number > 0; got 'small'"),
        ({"steps": 5, "sampler": "bootstrap"}, r"unknown sampler 'bootstrap'"),
    ],
)
def test_options_of_solve(options, message):
    with pytest.raises(ValueError, match=message):
        solve(PROBLEM, MRBO(), **options)


def test_batch_larger_than_the_data_without_replacement():
    with pytest.raises(ValueError, match=r"a batch of 400 samples was asked for, but the data hold 384.*at most 384"):
        solve(PROBLEM, MRBO(S=400), steps=2, sampler="epoch")


def test_per_sample_chains_with_full_batches_of_unequal_data():
    with pytest.raises(ValueError, match=r"pairs outer with inner samples, but the batches hold 384 and 512"):
        solve(PROBLEM, VRBO(per_sample=True), steps=2, sampler="full")


def test_noise_rate():
    with pytest.raises(ValueError, match=r"the noise rate must be a number from 0 to 1; got 1.5"):
        corrupt_labels(np.zeros(3, int), 1.5, 10, 0)
