"""Mistakes in a problem: its data, its losses, its starts."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse
from mistakes import ONES, loss, problem, refused, row, run


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        row(
            lambda: sparse.BCOO.fromdense(jnp.eye(3)),
            TypeError,
            r"inner_data is a BCOO.*scipy\.sparse",
            id="a sparse matrix of JAX",
        ),
        row(
            lambda: {"X": sparse.BCSR.fromdense(jnp.eye(3)), "t": np.ones(3)},
            TypeError,
            r"inner_data\['X'\] is a BCSR.*scipy\.sparse",
            id="a compressed sparse matrix of JAX",
        ),
        row(
            lambda: {"X": np.ones((3, 2)), "t": np.array(["cat", "dog", "cat"])},
            TypeError,
            r"inner_data\['t'\] has dtype <U3.*number.*classes",
            id="labels that are text",
        ),
        row(
            lambda: {"t": np.array(["cat", 1, None], object)},
            TypeError,
            r"inner_data\['t'\] has dtype object",
            id="labels that are objects",
        ),
        row(
            lambda: {"t": np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")},
            TypeError,
            r"inner_data\['t'\] has dtype datetime64\[D\]",
            id="dates",
        ),
        row(
            lambda: np.array([b"cat", b"dog"]),
            TypeError,
            r"inner_data has dtype \|S3",
            id="labels that are bytes",
        ),
        row(
            lambda: np.array([(1, 2.0)], [("a", int), ("b", float)]),
            TypeError,
            r"inner_data has dtype \[\('a'",
            id="a structured array",
        ),
        row(lambda: ["cat", "dog"], TypeError, r"inner_data\[0\] is a str", id="a list of text"),
        row(lambda: "train.csv", TypeError, r"inner_data is a str", id="the name of a file"),
        row(
            lambda: (float(i) for i in range(3)),
            TypeError,
            r"inner_data is a generator.*np\.(array|stack)",
            id="a generator",
        ),
        row(lambda: {1.0, 2.0}, TypeError, r"inner_data is a set", id="a set"),
        row(lambda: loss, TypeError, r"inner_data is a function", id="a function"),
        row(
            lambda: [1.0, 2.0, 3.0],
            ValueError,
            r"inner_data\[0\] is a scalar.*np\.array",
            id="a list of numbers",
        ),
        row(
            lambda: {"a": ONES, 1: ONES},
            TypeError,
            r"inner_data has keys of different types: .*(str|int)",
            id="keys of different types",
        ),
        row(
            lambda: scipy.sparse.coo_array(np.array([1.0, 0.0, 2.0])),
            ValueError,
            r"inner_data is a sparse array of 1 axis.*\(samples, columns\)",
            id="a sparse vector",
        ),
        row(
            lambda: {"X": scipy.sparse.csr_array((0, 4))},
            ValueError,
            r"inner_data has no samples",
            id="a sparse matrix without rows",
        ),
        row(
            lambda: {"X": scipy.sparse.csr_array(np.array([[0.0, 1.0], [np.nan, 0.0]]))},
            ValueError,
            r"inner_data\['X'\] holds nan at \[1, 0\]",
            id="a sparse matrix with NaN",
        ),
        row(
            lambda: {"X": scipy.sparse.csr_array(np.eye(3)), "t": np.ones(2)},
            ValueError,
            r"inner_data\['X'\] has 3, inner_data\['t'\] has 2",
            id="a sparse matrix and too few labels",
        ),
        row(
            lambda: np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
            TypeError,
            r"inner_data is a masked array.*(filled|compressed)",
            id="a masked array",
        ),
        row(lambda: (None, {}), ValueError, r"inner_data holds no arrays", id="None in a pytree"),
        row(lambda: 3.0, ValueError, r"inner_data is a scalar", id="a number"),
        row(lambda: np.array([1.0, np.inf]), ValueError, r"inner_data holds inf at \[1\]", id="infinity"),
        row(
            lambda: {"a": np.ones((3, 2)), "b": {"c": np.ones(2)}},
            ValueError,
            r"inner_data\['b'\]\['c'\] has 2",
            id="unequal lengths, nested",
        ),
        row(
            lambda: [np.ones(2), np.ones(3)],
            ValueError,
            r"must share their leading axis.*inner_data\[0\] has 2, inner_data\[1\] has 3",
            id="a list of samples",
        ),
    ],
)
def test_data(data, error, message):
    refused(lambda: problem(inner_data=data()), error, message)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        row({"outer_loss": None}, TypeError, r"outer_loss must be a function of \(x, y, batch\).*got NoneType", id="F"),
        row({"inner_loss": "mse"}, TypeError, r"inner_loss must be a function.*got str", id="the name of a loss"),
        row(
            {"inner_loss": lambda x, y: 0.0},
            TypeError,
            r"inner_loss must be a function of \(x, y, batch\)",
            id="a loss of two arguments",
        ),
        row(
            {"outer_loss": lambda x, y, batch, extra: 0.0},
            TypeError,
            r"outer_loss must be a function of \(x, y, batch\)",
            id="a loss of four arguments",
        ),
        row(
            {"project_x": "box"},
            TypeError,
            r"project_x must be a function of one argument, a pytree.*got str",
            id="project_x",
        ),
        row(
            {"project_y": None},
            TypeError,
            r"project_y must be a function of one argument, a pytree.*got NoneType",
            id="project_y",
        ),
        row(
            {"second_derivatives": "foward"},
            ValueError,
            r"no way to take second derivatives is called 'foward'\. Did you mean forward\? There are auto, forward, reverse",
            id="second_derivatives misspelt",
        ),
        row({"second_derivatives": None}, ValueError, r"is called 'None'.*There are auto", id="no second_derivatives"),
        row(
            {"second_derivatives": ["forward"]},
            ValueError,
            r"no way to take second derivatives is called.*There are auto",
            id="a list of second_derivatives",
        ),
        row({"metrics": 5}, TypeError, r"metrics must be a function of \(x, y\).*got int", id="metrics"),
        row({"check_finite": "no"}, TypeError, r"check_finite must be True or False; got 'no'", id="finite"),
    ],
)
def test_problem(changes, error, message):
    refused(lambda: problem(**changes), error, message)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        row(
            {"inner_loss": lambda x, y, b: None},
            TypeError,
            r"inner_loss must return one scalar, the mean over the batch; it returned None",
            id="a loss without return",
        ),
        row(
            {"outer_loss": lambda x, y, b: (y - b) ** 2},
            TypeError,
            r"outer_loss must return one scalar.*an array of shape \(2,\).*jnp\.mean",
            id="a loss per sample",
        ),
        row(
            {"outer_loss": lambda x, y, b: 1},
            TypeError,
            r"outer_loss must return a floating-point scalar; it returned dtype int",
            id="a loss that is an integer",
        ),
        row(
            {"inner_loss": lambda x, y, b: (y + 0j) ** 2},
            TypeError,
            r"inner_loss must return a floating-point scalar; it returned dtype complex",
            id="a loss that is complex",
        ),
        row(
            {"inner_loss": lambda x, y, b: {"loss": y**2}},
            TypeError,
            r"inner_loss must return one scalar.*it returned \{'loss'",
            id="a loss in a dictionary",
        ),
        row(
            {"inner_loss": lambda x, y, b: "low"},
            TypeError,
            r"inner_loss must return (one|a floating-point) scalar.*'low'",
            id="a loss that is text",
        ),
        row(
            {"y0": jnp.zeros(3)},
            TypeError,
            r"(outer|inner)_loss.*x.*\(\).*y.*\(3,\).*batch.*\(2,\)",
            id="shapes that do not fit",
        ),
        row(
            {"project_x": lambda x: jnp.ones(2)},
            TypeError,
            r"project_x must return a pytree like its argument; of shapes \(\) it made \(2,\)",
            id="a projection that changes the shape",
        ),
        row(
            {"project_y": lambda y: (y, y)},
            TypeError,
            r"project_y must return a pytree like its argument; of shapes \(\) it made \(\(\), \(\)\)",
            id="a projection that returns a pair",
        ),
        row(
            {"project_x": lambda x: None},
            TypeError,
            r"project_x must return a pytree like its argument; of shapes \(\) it made None",
            id="a projection without return",
        ),
        row(
            {"project_x": lambda x, low, high: x},
            TypeError,
            r"project_x must be a function of one argument",
            id="a projection of three arguments",
        ),
        row(
            {"second_derivatives": lambda G: None},
            TypeError,
            r"second_derivatives must return.*Products.*it returned None",
            id="second_derivatives without return",
        ),
        row(
            {"x0": 0},
            TypeError,
            r"x0 has dtype int64; x0 must hold floating-point.*astype\(float\)",
            id="x0 an integer",
        ),
        row({"x0": 1j}, TypeError, r"x0 has dtype complex128; x0 must hold floating-point arrays", id="x0 complex"),
        row(
            {"y0": np.array([True])}, TypeError, r"y0 has dtype bool; y0 must hold floating-point arrays", id="y0 bool"
        ),
        row({"y0": np.array([0.0, np.nan])}, ValueError, r"y0 holds nan at \[1\]", id="y0 NaN"),
        row(
            {"y0": ["f", 0.0]},
            TypeError,
            r"y0\[0\] is a str; y0 must hold floating-point arrays",
            id="y0 text",
        ),
        row({"x0": None}, ValueError, r"x0 is empty; give a pytree .*or set it on the problem", id="no x0"),
        row({"x0": loss}, TypeError, r"x0 is a function; x0 must hold floating-point arrays", id="x0 a function"),
    ],
)
def test_what_shows_when_a_problem_is_solved(changes, error, message):
    refused(lambda: run(of=problem(**changes)), error, message)


def test_a_start_outside_of_its_set_is_taken_and_the_first_step_brings_it_in():
    inside = lambda x: jnp.clip(x, -1.0, 1.0)
    result = run(of=problem(project_x=inside, x0=5.0))
    assert abs(float(result.x)) <= 1
    assert result.status == "done"
