"""A table of mistakes: each gets an error of a fitting type that says what was given, what is allowed and what to do."""

import gzip
import importlib
import itertools
import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
from jax.experimental import sparse

import bilax
from bilax import (
    MRBO,
    SOBA,
    VRBO,
    Doubtful,
    Problem,
    datasets,
    hypergrad,
    hypergradient,
    iterate,
    settings,
    solve,
    sweep,
    theory,
)
from bilax.cli import main
from bilax.experiments import demo, jobs, search, tasks
from bilax.problems import corrupt_labels

row = pytest.param

ONES = np.ones(6)
QUICK = MRBO(eta=0.1, S=2, Q=1)
NUMBER = r"a finite number >= 0, or an optimiser such as optax.adam\(1e-2\)"


def loss(x, y, batch):
    return jnp.mean((y - x - batch) ** 2)


def problem(**changes):
    given = {"outer_loss": loss, "inner_loss": loss, "outer_data": ONES, "inner_data": ONES, "x0": 0.0, "y0": 0.0}
    return Problem(**given | changes)


PROBLEM = problem()


def run(algorithm=QUICK, of=PROBLEM, **options):
    return solve(of, algorithm, **{"steps": 1} | options)


def refused(call, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        call()


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
        row(lambda: None, ValueError, r"inner_data holds no arrays", id="None"),
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
            r"no way to take second derivatives is called 'foward'\. Did you mean forward\? There are forward, reverse",
            id="second_derivatives misspelt",
        ),
        row(
            {"second_derivatives": None}, ValueError, r"is called 'None'.*There are forward", id="no second_derivatives"
        ),
        row(
            {"second_derivatives": ["forward"]},
            ValueError,
            r"no way to take second derivatives is called.*There are forward",
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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        row({"steps": None}, ValueError, r"steps must be an integer >= 1; got None", id="steps None"),
        row({"steps": True}, ValueError, r"steps must be an integer >= 1; got True", id="steps a truth value"),
        row({"steps": "10"}, ValueError, r"steps must be an integer >= 1; got '10'", id="steps text"),
        row({"steps": 1e3}, ValueError, r"steps must be an integer >= 1; got 1000\.0", id="steps a float"),
        row(
            {"steps": 2**31, "time_limit": 0.01},
            ValueError,
            r"steps must be .*(2147483647|2\*\*31 - 1); got 2147483648",
            id="steps 2**31",
        ),
        row({"every": 2.5}, ValueError, r"every \(iter.*must be an integer >= 1; got 2\.5", id="every a float"),
        row({"every": "1"}, ValueError, r"every \(iter.*must be an integer >= 1; got '1'", id="every text"),
        row({"every": True}, ValueError, r"every \(iter.*must be an integer >= 1; got True", id="every a truth value"),
        row({"every_seconds": 0}, ValueError, r"every_seconds must be a number > 0; got 0", id="every_seconds 0"),
        row(
            {"every_seconds": "1"},
            ValueError,
            r"every_seconds must be a number > 0; got '1'",
            id="every_seconds text",
        ),
        row({"time_limit": 0}, ValueError, r"time_limit must be a number > 0; got 0", id="time_limit 0"),
        row(
            {"time_limit": "10"},
            ValueError,
            r"time_limit must be a number > 0; got '10'",
            id="time_limit text",
        ),
        row(
            {"time_limit": True},
            ValueError,
            r"time_limit must be a number > 0; got True",
            id="time_limit a truth value",
        ),
        row(
            {"time_limit": [1, 2]}, ValueError, r"time_limit must be a number > 0; got \[1, 2\]", id="time_limit a list"
        ),
        row({"tol": 0}, ValueError, r"tol must be a number > 0; got 0", id="tol 0"),
        row({"tol": float("nan")}, ValueError, r"tol must be a number > 0; got nan", id="tol NaN"),
        row({"tol": True}, ValueError, r"tol must be a number > 0; got True", id="tol a truth value"),
        row({"tol": "1e-3"}, ValueError, r"tol must be a number > 0; got '1e-3'", id="tol text"),
        row(
            {"tol": float("inf")},
            ValueError,
            r"tol must be a finite number > 0; got inf",
            id="tol infinite",
        ),
        row(
            {"progress": "yes"},
            (TypeError, ValueError),
            r"progress must be True, False or None; got 'yes'",
            id="progress text",
        ),
        row(
            {"progress": 5},
            (TypeError, ValueError),
            r"progress must be True, False or None; got 5",
            id="progress a number",
        ),
        row({"seed": None}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got None", id="seed None"),
        row({"seed": 1.0}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got 1\.0", id="seed a float"),
        row(
            {"seed": 2**32},
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 4294967296",
            id="seed 2**32",
        ),
        row({"seed": "0"}, ValueError, r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'", id="seed text"),
        row(
            {"sampler": None},
            ValueError,
            r"unknown sampler None; choose one of 'iid', 'epoch', 'blocks', 'block-epoch', 'full', or pass",
            id="sampler None",
        ),
        row({"sampler": "IID"}, ValueError, r"unknown sampler 'IID'; choose one of 'iid'", id="sampler in capitals"),
        row(
            {"sampler": lambda data, key, size: None},
            TypeError,
            r"sampler.*must return a batch like the data.*None",
            id="a sampler without return",
        ),
        row(
            {"sampler": lambda data, size: data},
            TypeError,
            r"sampler.*\(data, key, size\)",
            id="a sampler of two arguments",
        ),
        row(
            {"sampler": lambda data, key, size: (data, data)},
            TypeError,
            r"sampler.*must return a batch like the data",
            id="a sampler that returns a pair",
        ),
        row(
            {"metrics": 5},
            TypeError,
            r"metrics must be a function of \(x, y\).*got int",
            id="metrics a number",
        ),
        row({"metrics": 0}, TypeError, r"metrics must be a function of \(x, y\).*got int", id="metrics 0"),
        row(
            {"metrics": {"loss": loss}},
            TypeError,
            r"metrics must be a function of \(x, y\).*got dict",
            id="metrics a dictionary",
        ),
        row(
            {"metrics": lambda x: {}},
            TypeError,
            r"metrics must be a function of \(x, y\)",
            id="metrics of one argument",
        ),
        row(
            {"metrics": lambda x, y: {"state": "good"}},
            TypeError,
            r"metrics must return numbers; 'state' is .*'good'",
            id="metrics that return text",
        ),
        row(
            {"metrics": lambda x, y: {"a": None}},
            TypeError,
            r"metrics must return numbers; 'a' is .*None",
            id="metrics that return None in a dictionary",
        ),
        row(
            {"metrics": lambda x, y: {"a": 1j}},
            TypeError,
            r"metrics must return numbers; 'a' is ",
            id="metrics that return complex numbers",
        ),
        row(
            {"metrics": lambda x, y: {1: 2.0}},
            TypeError,
            r"metrics must return a dictionary of names.*1",
            id="metrics without names",
        ),
        row(
            {"metrics": lambda x, y: None},
            TypeError,
            r"metrics must return a dictionary of names and numbers; it returned None",
            id="metrics without return",
        ),
        row(
            {"metrics": lambda x, y: [1.0]},
            TypeError,
            r"a dictionary of names and numbers; it returned \[1\.0\]",
            id="metrics that return a list",
        ),
        row(
            {"metrics": lambda x, y: {"k": 1}},
            ValueError,
            r"metrics may not return 'k': that name is the history's own",
            id="metrics of a taken name",
        ),
        row({"on_row": 5}, TypeError, r"on_row must be a function.*got int", id="on_row a number"),
        row({"on_row": "print"}, TypeError, r"on_row must be a function.*got str", id="on_row text"),
        row(
            {"state": 5},
            TypeError,
            r"the state of MRBO must be a NamedTuple with k, x and y.*are missing from int",
            id="state a number",
        ),
        row(
            {"state": {"k": 0, "x": 0.0, "y": 0.0}},
            TypeError,
            r"the state of MRBO must be a NamedTuple.*missing from dict",
            id="state a dictionary",
        ),
        row(
            {"state": "checkpoint.bin"},
            TypeError,
            r"result\.state.*str|str.*result\.state",
            id="state the name of a file",
        ),
        row(
            {"checkpoint_dir": 5},
            TypeError,
            r"checkpoint_dir must be .*folder.*got (5|int)",
            id="checkpoint_dir a number",
        ),
        row(
            {"checkpoint_dir": True},
            TypeError,
            r"checkpoint_dir must be .*folder.*got (True|bool)",
            id="checkpoint_dir a truth value",
        ),
        row(
            {"checkpoint_dir": ""},
            ValueError,
            r"checkpoint_dir is empty|checkpoint_dir must be",
            id="checkpoint_dir empty",
        ),
        row({"epochs": 3}, TypeError, r"unexpected keyword argument 'epochs'", id="an unknown option"),
    ],
)
def test_options_of_solve(options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(lambda: run(**options), error, message)


def other_state():
    return SOBA(S=2).init(bilax.make_oracle(PROBLEM), jnp.zeros(()), jnp.zeros(()))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: solve(PROBLEM, QUICK),
            TypeError,
            r"missing 1 required keyword-only argument: 'steps'",
            id="no steps",
        ),
        row(
            lambda: solve(QUICK, PROBLEM, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="swapped",
        ),
        row(
            lambda: solve(loss, QUICK, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got function",
            id="a loss",
        ),
        row(
            lambda: run(None),
            TypeError,
            r"must have init, step and cost, like bilax\.MRBO\(\).*got None",
            id="no algorithm",
        ),
        row(lambda: run([QUICK]), TypeError, r"must have init, step and cost.*got \[MRBO", id="a list of algorithms"),
        row(lambda: run(optax.adam(0.1)), TypeError, r"must have init, step and cost", id="an optimiser"),
        row(
            lambda: run(hypergrad.Neumann()),
            TypeError,
            r"must have init, step and cost.*got Neumann\(",
            id="an estimator",
        ),
        row(lambda: run(SOBA), TypeError, r"algorithm must be an instance: write SOBA\(\)", id="a class"),
        row(
            lambda: run(state=other_state()),
            ValueError,
            r"this state is not one of MRBO with these settings",
            id="the state of another method",
        ),
        row(
            lambda: run(state=other_state(), x0=0.0),
            ValueError,
            r"state says where to go on; leave x0 and y0 out",
            id="a state and a start",
        ),
        row(
            lambda: run(SOBA(S=2), state=other_state()._replace(k=jnp.zeros(()))),
            TypeError,
            r"SOBA: k must be one int32 number",
            id="a state with another k",
        ),
        row(lambda: run(state=run()), TypeError, r"result\.state", id="a result as a state"),
        row(
            lambda: jax.jit(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(0.1),
            TypeError,
            r"solve .*jax\.jit.*bilax\.iterate",
            id="solve under jit",
        ),
        row(
            lambda: jax.vmap(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(jnp.ones(2)),
            TypeError,
            r"solve .*jax\.vmap.*bilax\.iterate",
            id="solve under vmap",
        ),
        row(
            lambda: jax.grad(lambda g: run(MRBO(gamma=g, eta=0.1, S=2)).x)(0.1),
            TypeError,
            r"solve .*jax\.grad.*bilax\.iterate",
            id="solve under grad",
        ),
        row(
            lambda: jax.jit(lambda x0: run(x0=x0).x)(0.0),
            TypeError,
            r"solve .*bilax\.iterate",
            id="solve under jit, with a traced x0",
        ),
        row(
            lambda: jax.jit(lambda b: run(of=problem(inner_data=b)).x)(ONES),
            TypeError,
            r"solve .*bilax\.iterate",
            id="solve under jit, with traced data",
        ),
        row(
            lambda: run(VRBO(eta=0.1, S1=2, S2=400), sampler="epoch"),
            ValueError,
            r"a batch of 400 samples was asked for, but the data hold 6",
            id="a batch larger than the data",
        ),
        row(
            lambda: iterate(PROBLEM, MRBO, steps=1),
            TypeError,
            r"algorithm must be an instance: write MRBO\(\)",
            id="iterate: a class",
        ),
        row(
            lambda: iterate(PROBLEM, "mrbo", steps=1),
            TypeError,
            r"must have init, step and cost.*got 'mrbo'",
            id="iterate: a name",
        ),
        row(
            lambda: iterate(QUICK, PROBLEM, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="iterate: swapped",
        ),
        row(
            lambda: iterate(None, QUICK, steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got NoneType",
            id="iterate: no problem",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=2.0),
            ValueError,
            r"steps must be an integer >= 1; got 2\.0",
            id="iterate: steps a float",
        ),
        row(
            lambda: jax.jit(lambda n: iterate(PROBLEM, QUICK, steps=n))(3),
            TypeError,
            r"steps must be .*static",
            id="iterate: steps traced",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=-1),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="iterate: seed negative",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=0.5),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 0\.5",
            id="iterate: seed a float",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=2**32),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 4294967296",
            id="iterate: seed 2**32",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed=None),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got None",
            id="iterate: seed None",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, seed="0"),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'",
            id="iterate: seed text",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, steps=1, sampler="random"),
            ValueError,
            r"unknown sampler 'random'; choose one of",
            id="iterate: sampler",
        ),
        row(
            lambda: iterate(PROBLEM, QUICK, "zero", steps=1),
            TypeError,
            r"x0 is a str; x0 must hold floating-point arrays",
            id="iterate: x0 text",
        ),
        row(
            lambda: iterate(PROBLEM, MRBO(gamma=jnp.ones(2), eta=0.1, S=2), steps=1),
            ValueError,
            r"gamma has the shape \(2,\).*(vmap|sweep)",
            id="iterate: a grid in one setting",
        ),
        row(
            lambda: sweep(PROBLEM, [], steps=1),
            ValueError,
            r"there are no settings to run; give at least one, like \[bilax\.MRBO\(\)\]",
            id="sweep: no settings",
        ),
        row(
            lambda: sweep(PROBLEM, None, steps=1),
            TypeError,
            r"algorithms must be .*list of settings.*got None",
            id="sweep: None",
        ),
        row(lambda: sweep(PROBLEM, "mrbo", steps=1), TypeError, r"got 'mrbo'", id="sweep: a name"),
        row(
            lambda: sweep(PROBLEM, MRBO, steps=1),
            TypeError,
            r"algorithm must be an instance: write MRBO\(\)",
            id="sweep: a class",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, SOBA(S=2)], steps=1),
            ValueError,
            r"may differ in real numbers only.*methods, whole numbers.*need one call each",
            id="sweep: mixed methods",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, MRBO(eta=0.1, S=3, Q=1)], steps=1),
            ValueError,
            r"may differ in real numbers only.*batch sizes",
            id="sweep: mixed batch sizes",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, MRBO(S=2, Q=1)], steps=1),
            ValueError,
            r"may differ in real numbers only.*eta='auto'",
            id="sweep: eta mixed with auto",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK, 5], steps=1),
            TypeError,
            r"must have init, step and cost.*got 5",
            id="sweep: a number among the settings",
        ),
        row(
            lambda: sweep(QUICK, [QUICK], steps=1),
            TypeError,
            r"first argument must be a bilax\.Problem; got MRBO",
            id="sweep: no problem",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=0),
            ValueError,
            r"steps must be an integer >= 1; got 0",
            id="sweep: steps 0",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=[]),
            ValueError,
            r"seeds is empty; give at least one, like seeds=\[0\]",
            id="sweep: no seeds",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=5),
            TypeError,
            r"seeds must be .*like seeds=\[0\].*got 5",
            id="sweep: one seed",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=None),
            TypeError,
            r"seeds must be .*like seeds=\[0\].*got None",
            id="sweep: seeds None",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds=[0, -1]),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="sweep: a negative seed",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, seeds="01"),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got '0'",
            id="sweep: seeds text",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], steps=1, progress="bar"),
            (TypeError, ValueError),
            r"progress must be True, False or None; got 'bar'",
            id="sweep: progress text",
        ),
        row(
            lambda: sweep(PROBLEM, [QUICK], {}, steps=1),
            ValueError,
            r"x0 is empty; give a pytree",
            id="sweep: x0 empty",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, hypergrad.Exact),
            TypeError,
            r"such as bilax\.hypergrad\.Neumann\(Q=10\); got <class",
            id="hypergradient: a class",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, "neumann"),
            TypeError,
            r"such as bilax\.hypergrad\.Neumann\(Q=10\); got 'neumann'",
            id="hypergradient: a name",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, QUICK),
            TypeError,
            r"method must be an estimator.*got MRBO\(",
            id="hypergradient: an algorithm",
        ),
        row(
            lambda: hypergradient(loss, 0.0, 0.0),
            TypeError,
            r"first argument must be a bilax\.Problem; got function",
            id="hypergradient: no problem",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0, 0.0),
            TypeError,
            r"x has dtype int64; x must hold floating-point arrays",
            id="hypergradient: x an integer",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, None),
            ValueError,
            r"y is empty; give a pytree",
            id="hypergradient: no y",
        ),
        row(lambda: hypergradient(PROBLEM, 0.0, np.nan), ValueError, r"y holds nan", id="hypergradient: y NaN"),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, seed=-1),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got -1",
            id="hypergradient: seed negative",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, seed=0.5),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got 0\.5",
            id="hypergradient: seed a float",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, 0.0, sampler="all"),
            ValueError,
            r"unknown sampler 'all'; choose one of",
            id="hypergradient: sampler",
        ),
        row(
            lambda: hypergradient(PROBLEM, 0.0, jnp.zeros(10**6)),
            (ValueError, MemoryError),
            r"the exact hypergradient.*(ConjugateGradient|Neumann)",
            id="hypergradient: too large",
        ),
        row(
            lambda: bilax.make_oracle(loss),
            TypeError,
            r"must be a bilax\.Problem; got function",
            id="make_oracle: no problem",
        ),
        row(
            lambda: run().history.column("los"),
            KeyError,
            r"no quantity 'los' was measured; there are k, seconds",
            id="a column that was not measured",
        ),
    ],
)
def test_calls(call, error, message):
    refused(call, error, message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        row(
            lambda: MRBO(gamma=10**400),
            rf"gamma \(outer step size\) must be {NUMBER}; got 10",
            id="a number beyond floats",
        ),
        row(lambda: MRBO(gamma=np.array([])), rf"gamma .* must be {NUMBER}; got ", id="an empty array"),
        row(lambda: MRBO(gamma=True), rf"gamma .* must be {NUMBER}; got True", id="step: a truth value"),
        row(
            lambda: MRBO(gamma=optax.adam),
            rf"gamma .* must be {NUMBER}; got <function adam",
            id="step: an optimiser not called",
        ),
        row(
            lambda: SOBA(rho=(0.1, 0.2)),
            rf"SOBA: rho \(inner step size\) must be {NUMBER}; got \(0\.1, 0\.2\)",
            id="step: a tuple",
        ),
        row(
            lambda: VRBO(alpha=np.float32("nan")),
            rf"VRBO: alpha .* must be {NUMBER}; got .*nan",
            id="step: NaN of NumPy",
        ),
        row(
            lambda: hypergrad.Unrolled(step=-1),
            rf"Unrolled: step \(inner step size\) must be {NUMBER}; got -1",
            id="step of an estimator",
        ),
        row(
            lambda: bilax.ALGORITHMS["rsvrb"](beta=1.5),
            r"beta \(weight of the new pieces\) must be a number from 0 to 1; got 1\.5",
            id="weight: 1.5",
        ),
        row(
            lambda: bilax.ALGORITHMS["sema"](alpha=-0.1),
            r"alpha \(weight of the new hypergradient in its average\) must be a number from 0 to 1; got -0\.1",
            id="weight: negative",
        ),
        row(
            lambda: bilax.ALGORITHMS["stable"](tau="0.5"),
            r"tau .* must be a number from 0 to 1; got '0\.5'",
            id="weight: text",
        ),
        row(
            lambda: bilax.ALGORITHMS["sema"](beta=float("nan")),
            r"beta .* must be a number from 0 to 1; got nan",
            id="weight: NaN",
        ),
        row(
            lambda: bilax.ALGORITHMS["sustain"](w=0),
            r"w \(delay.* must be a finite number > 0; got 0",
            id="positive: 0",
        ),
        row(
            lambda: bilax.ALGORITHMS["mstsa"](w=-1.0),
            r"w \(delay.* must be a finite number > 0; got -1\.0",
            id="positive: negative",
        ),
        row(
            lambda: bilax.ALGORITHMS["stable"](mu=None),
            r"mu .* must be a finite number > 0; got None",
            id="positive: None",
        ),
        row(
            lambda: MRBO(d=optax.sgd(0.1)),
            r"d \(scale.* must be a finite number > 0; got ",
            id="positive: an optimiser",
        ),
        row(
            lambda: MRBO(c1=-1),
            r"c1 \(outer momentum.* must be a finite number >= 0; got -1",
            id="nonnegative: negative",
        ),
        row(
            lambda: SOBA(a=float("inf")),
            r"a \(exponent.* must be a finite number >= 0; got inf",
            id="nonnegative: infinite",
        ),
        row(
            lambda: SOBA(rho_v="Auto"),
            r"rho_v \(step of the linear system.* must be a finite number > 0, or \"auto\"; got 'Auto'",
            id="series step: a word",
        ),
        row(
            lambda: MRBO(eta=True),
            r"eta .* must be a finite number > 0, or \"auto\"; got True",
            id="series step: a truth value",
        ),
        row(
            lambda: MRBO(eta=None), r"eta .* must be a finite number > 0, or \"auto\"; got None", id="series step: None"
        ),
        row(
            lambda: hypergrad.Neumann(eta=-0.1),
            r"Neumann: eta .* must be a finite number > 0, or \"auto\"; got -0\.1",
            id="series step: negative",
        ),
        row(lambda: MRBO(Q="3"), r"Q .* must be an integer >= 1; got '3'", id="count: text"),
        row(lambda: VRBO(m=1.0), r"m .* must be an integer >= 0; got 1\.0", id="count: a float"),
        row(lambda: bilax.ALGORITHMS["reverse"](K=-1), r"K .* must be an integer >= 0; got -1", id="count: negative"),
        row(lambda: bilax.ALGORITHMS["aid-cg"](N=None), r"N .* must be an integer >= 1; got None", id="count: None"),
        row(
            lambda: MRBO(Q=2**31),
            r"Q .* must be an integer .*at most 2147483647\); got 2147483648",
            id="count: beyond int32",
        ),
        row(
            lambda: MRBO(S=2**31),
            r"S .* must be an integer .*at most 2147483647\); got 2147483648",
            id="batch size: beyond int32",
        ),
        row(
            lambda: MRBO(S=-64),
            r"S \(size of every batch\) must be an integer >= 1; got -64",
            id="batch size: negative",
        ),
        row(lambda: VRBO(S1=np.array([8, 16])), r"S1 .* must be an integer >= 1; got ", id="batch size: an array"),
        row(
            lambda: hypergrad.Exact(S=0), r"Exact: S .* must be an integer >= 1; got 0", id="batch size of an estimator"
        ),
        row(lambda: VRBO(per_sample=1), r"per_sample .* must be True or False; got 1", id="switch: 1"),
        row(
            lambda: hypergrad.Neumann(per_sample=None),
            r"per_sample .* must be True or False; got None",
            id="switch: None",
        ),
    ],
)
def test_hyperparameters(make, message):
    refused(make, ValueError, message)


@pytest.mark.parametrize(
    "S",
    [
        row(1_000, id="thousand"),
        row(20_000_000, id="20 million"),
        row(40_000_000, id="40 million"),
    ],
)
def test_counts_do_not_run_over(S):
    """No count runs over where int32 ends: 40 S products measure L, 2 S are used in the one step."""
    empty = lambda x, y, batch: (y - x) ** 2  # of the batch only its size is needed, so nothing is drawn
    given = problem(outer_loss=empty, inner_loss=empty)
    draw = lambda data, key, size: jnp.zeros(size)
    if S > 30_000_000:
        with pytest.raises(
            ValueError, match=r"makes up to [\d,]+ oracle calls, and at most 2,147,483,647 can be counted"
        ):
            run(MRBO(Q=1, S=2 * S), given, sampler=draw)
        return
    counts = run(MRBO(Q=1, S=S), given, sampler=draw).counts
    assert counts.HV == 42 * S


GOOD = theory.Constants(L=1.0, mu=0.5, M=2.0, tau=0.0, rho=0.0, sigma=1.0, radius=1.0)


def constants(**changes):
    return GOOD._replace(**changes)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: theory.derived(constants(mu=0.0), 3, 0.5),
            ValueError,
            r"mu .*must be .*> 0.*got (mu = )?0\.0",
            id="mu 0",
        ),
        row(
            lambda: theory.derived(constants(mu=-1.0), 3, 0.5),
            ValueError,
            r"mu .*must be .*> 0.*got (mu = )?-1\.0",
            id="mu negative",
        ),
        row(
            lambda: theory.derived(constants(mu=2.0), 3, 0.5),
            ValueError,
            r"mu .*at most L.*got mu = 2(\.0)?.*L = 1",
            id="mu above L",
        ),
        row(
            lambda: theory.derived(constants(mu=float("nan")), 3, 0.5),
            ValueError,
            r"mu .*must be .*got (mu = )?nan",
            id="mu NaN",
        ),
        row(
            lambda: theory.derived(constants(L=float("nan")), 3, 0.5),
            ValueError,
            r"L .*must be .*got (L = )?nan",
            id="L NaN",
        ),
        row(
            lambda: theory.derived(constants(L=float("inf")), 3, 0.5),
            ValueError,
            r"L .*must be a finite.*got (L = )?inf",
            id="L infinite",
        ),
        row(
            lambda: theory.derived(constants(M=-1.0), 3, 0.5),
            ValueError,
            r"M .*must be .*>= 0.*got (M = )?-1\.0",
            id="M negative",
        ),
        row(
            lambda: theory.derived(constants(rho="0"), 3, 0.5),
            (TypeError, ValueError),
            r"rho .*must be a (finite )?number.*got (rho = )?'0'",
            id="rho text",
        ),
        row(
            lambda: theory.derived(GOOD, -5, 0.5),
            ValueError,
            r"Q .*must be an integer >= [01].*got -5",
            id="Q negative",
        ),
        row(
            lambda: theory.derived(GOOD, 2.5, 0.5),
            ValueError,
            r"Q .*must be an integer >= [01].*got 2\.5",
            id="Q a float",
        ),
        row(
            lambda: theory.derived(GOOD, 3, -0.5),
            ValueError,
            r"eta .*must be .*> 0.*got -0\.5",
            id="eta negative",
        ),
        row(
            lambda: theory.derived(GOOD, 3, "auto"),
            (TypeError, ValueError),
            r"eta .*must be a .*number.*got 'auto'",
            id="eta auto",
        ),
        row(
            lambda: theory.derived({"L": 1.0, "mu": 0.5}, 3, 0.5),
            TypeError,
            r"bilax\.theory\.Constants.*got dict",
            id="a dictionary",
        ),
        row(
            lambda: theory.Constants(L=1.0, mu=0.5),
            TypeError,
            r"missing 5 required positional arguments: 'M', 'tau', 'rho', 'sigma', and 'radius'",
            id="too few constants",
        ),
        row(
            lambda: theory.explain(SOBA(), GOOD),
            TypeError,
            r"the paper proves theorems for MRBO and VRBO; got SOBA",
            id="explain: another method",
        ),
        row(lambda: theory.explain(MRBO, GOOD), TypeError, r"MRBO\(\)|an instance", id="explain: a class"),
        row(
            lambda: theory.explain("mrbo", GOOD),
            TypeError,
            r"the paper proves theorems for MRBO and VRBO; got str",
            id="explain: a name",
        ),
        row(
            lambda: theory.explain(MRBO(), constants(mu=0.0)),
            ValueError,
            r"mu .*must be .*> 0",
            id="explain: mu 0",
        ),
        row(
            lambda: theory.explain(MRBO(), None),
            TypeError,
            r"bilax\.theory\.Constants.*got NoneType",
            id="explain: no constants",
        ),
        row(
            lambda: theory.explain(MRBO(gamma=optax.adam(0.1)), GOOD),
            (TypeError, ValueError),
            r"gamma .*(a number|optimiser)",
            id="explain: an optimiser",
        ),
        row(
            lambda: theory.explain(MRBO(gamma=jnp.ones(2)), GOOD),
            (TypeError, ValueError),
            r"gamma has the shape \(2,\)",
            id="explain: a grid in one setting",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0),
            ValueError,
            r"eps, the target of \|grad Phi\|\^2, must be a finite number > 0; got 0",
            id="theorem 1: eps 0",
        ),
        row(
            lambda: theory.theorem1(GOOD, float("nan")),
            ValueError,
            r"eps, .* must be a finite number > 0; got nan",
            id="theorem 1: eps NaN",
        ),
        row(
            lambda: theory.theorem1(GOOD, float("inf")),
            ValueError,
            r"eps, .* must be .*finite.*got inf",
            id="theorem 1: eps infinite",
        ),
        row(
            lambda: theory.theorem1(GOOD, "small"),
            (TypeError, ValueError),
            r"eps, .* must be .*got 'small'",
            id="theorem 1: eps text",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0.1, S=0),
            ValueError,
            r"S .* must be an integer >= 1; got 0",
            id="theorem 1: S 0",
        ),
        row(
            lambda: theory.theorem1(GOOD, 0.1, d=0.0),
            ValueError,
            r"d .*must be .*> 0.*got 0\.0",
            id="theorem 1: d 0",
        ),
        row(
            lambda: theory.theorem1(constants(mu=0.0), 0.1),
            ValueError,
            r"mu .*must be .*> 0",
            id="theorem 1: mu 0",
        ),
        row(
            lambda: theory.theorem1(constants(mu=3.0), 0.1),
            ValueError,
            r"mu .*at most L",
            id="theorem 1: mu above L",
        ),
        row(
            lambda: theory.theorem1(constants(L=0.0), 0.1),
            ValueError,
            r"L .*must be .*> 0",
            id="theorem 1: L 0",
        ),
        row(
            lambda: theory.theorem2(GOOD, -0.1),
            ValueError,
            r"eps, .* must be a finite number > 0; got -0\.1",
            id="theorem 2: eps negative",
        ),
        row(
            lambda: theory.theorem2(constants(mu=float("nan")), 0.1),
            ValueError,
            r"mu .*must be ",
            id="theorem 2: mu NaN",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, radius=0.0),
            ValueError,
            r"radius must be .*> 0; got 0\.0",
            id="estimate: radius 0",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, radius="1"),
            (TypeError, ValueError),
            r"radius must be .*; got '1'",
            id="estimate: radius text",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, samples=0),
            ValueError,
            r"samples must be an integer >= 1; got 0",
            id="estimate: no samples",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, samples=2.5),
            ValueError,
            r"samples must be an integer >= 1; got 2\.5",
            id="estimate: samples a float",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 0.0, 0.0, seed=None),
            ValueError,
            r"seed must be an integer from 0 to 2\*\*32 - 1; got None",
            id="estimate: seed None",
        ),
        row(
            lambda: theory.estimate(PROBLEM, 1, 0.0),
            TypeError,
            r"x has dtype int64; x must hold floating-point arrays",
            id="estimate: x an integer",
        ),
        row(
            lambda: theory.estimate(loss, 0.0, 0.0),
            TypeError,
            r"must be a bilax\.Problem; got function",
            id="estimate: no problem",
        ),
    ],
)
def test_theory(call, error, message):
    refused(call, error, message)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        row(
            "mrbo[[gamma=1]]",
            ValueError,
            r"is not of the form name=value|is called '\[gamma'|is not a setting",
            id="two brackets",
        ),
        row("mrbo[gamma=]", ValueError, r"mrbo\[gamma=\]: 'gamma=' is not of the form name=value", id="no value"),
        row("mrbo[=1]", ValueError, r"'=1' is not of the form name=value", id="no name"),
        row("mrbo[gamma=1,,S=2]", ValueError, r"'' is not of the form name=value", id="two commas"),
        row("mrbo[gamma=0.1;S=3]", ValueError, r"gamma .* must be .*; got '0\.1;S=3'", id="a semicolon"),
        row(
            "mrbo(gamma=0.1)",
            ValueError,
            r"is not a setting; write it like mrbo\[gamma=0\.1,S=1000\]",
            id="round brackets",
        ),
        row(
            "mrbo gamma=0.1", ValueError, r"is not a setting; write it like mrbo\[gamma=0\.1,S=1000\]", id="no brackets"
        ),
        row("mrbo]gamma=0.1[", ValueError, r"is not a setting", id="brackets the wrong way round"),
        row("[gamma=0.1]", ValueError, r"no method is called ''", id="no method"),
        row("mrbo[gamma=inf]", ValueError, r"gamma .* must be a finite number", id="infinity"),
        row("mrbo[S=1e3]", ValueError, r"S .* must be an integer >= 1; got 1000\.0", id="a whole number as a float"),
        row("vrbo[per_sample=yes]", ValueError, r"per_sample .* must be True or False; got 'yes'", id="yes"),
        row(f"mrbo[gamma={'9' * 400}]", ValueError, r"gamma .* must be a finite number", id="400 digits"),
        row("mrbo.yaml", ValueError, r"no method is called 'mrbo\.yaml'.*", id="another kind of file"),
        row(5, TypeError, r"setting must be text.*got 5", id="a number"),
        row(None, TypeError, r"setting must be text.*got None", id="None"),
        row(QUICK, TypeError, r"setting must be text.*got MRBO", id="an algorithm"),
    ],
)
def test_settings(text, error, message):
    refused(lambda: settings.parse(text), error, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        row(b"", r'mine\.toml needs method = "NAME" and a table \[parameters\]', id="an empty file"),
        row(b"method = 5", r'mine\.toml needs method = "NAME"', id="a number as the method"),
        row(
            b'method = "mrbo"\nparameters = 5',
            r"mine\.toml needs .* a table \[parameters\]",
            id="a number as parameters",
        ),
        row(
            b'method = "mrob"', r"mine\.toml: no method is called 'mrob'\. Did you mean mrbo\?", id="an unknown method"
        ),
        row(
            b'method = "mrbo"\n[parameter]\ngamma = 1',
            r"no entry is called 'parameter'\. Did you mean parameters\?",
            id="an unknown table",
        ),
        row(
            b'method = "mrbo"\n[parameters.gamma]\nvalue = 1',
            r"gamma .* must be .*; got \{'value': 1\}",
            id="a table as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = [0.1, 0.2]',
            r"gamma .* must be .*; got \[0\.1, 0\.2\]",
            id="a list as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = 2026-01-01',
            r"gamma .* must be .*; got datetime\.date",
            id="a date as a value",
        ),
        row(
            b'method = "mrbo"\n[parameters]\nS = 64.0',
            r"S .* must be an integer >= 1; got 64\.0",
            id="a float as a batch size",
        ),
        row(b'method = "mrbo"\n[parameters]\nS = 1\nS = 2', r"mine\.toml is not valid TOML: ", id="a name twice"),
        row(b'method = "mrbo"\n[parameters]\ngamma = nan', r"gamma .* must be a finite number", id="NaN"),
        row(b"\xff\xfe\x00binary", r"mine\.toml is not valid TOML: ", id="bytes"),
        row(b'\xef\xbb\xbfmethod = "mrob"', r"no method is called 'mrob'", id="a byte order mark"),
        row(
            b'method = "mrbo"\n[parameters]\ngamma = 1' + b"0" * 400,
            r"gamma .* must be a finite number",
            id="400 digits",
        ),
    ],
)
def test_settings_in_files(content, message, tmp_path):
    (tmp_path / "mine.toml").write_bytes(content)
    refused(lambda: settings.parse(str(tmp_path / "mine.toml")), ValueError, message)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command in this process and in an empty folder; the work itself must not begin."""

    def work(*_, **__):
        raise AssertionError("the work began")

    for module, name in ((tasks, "_load"), (demo, "run_demo"), (jobs, "solve")):
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bilax", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, " ".join(capsys.readouterr().err.replace("│", " ").split())

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        row(["run"], 2, r"Missing argument '(SETTING|setting)'", id="run: nothing"),
        row(["run", "mrbo", "--step", "5"], 2, r"No such option: --step.*--steps", id="run: an unknown option"),
        row(["run", "mrbo", "--steps", "0"], 2, r"Invalid value for '--steps'", id="run: steps 0"),
        row(["run", "mrbo", "--steps", "many"], 2, r"Invalid value for '--steps'", id="run: steps text"),
        row(["run", "mrbo", "--seed", "-1"], 2, r"Invalid value for '--seed'", id="run: seed negative"),
        row(["run", "mrbo", "--seed", "4294967296"], 2, r"Invalid value for '--seed'", id="run: seed 2**32"),
        row(
            ["run", "mrbo", "--noise", "1.5"],
            1,
            r"^error: digits needs a noise rate .*at least 0 and below 1; got 1\.5",
            id="run: noise 1.5",
        ),
        row(
            ["run", "mrbo", "--noise", "nan"], 1, r"^error: digits needs a noise rate .*; got nan", id="run: noise NaN"
        ),
        row(
            ["run", "mrbo", "--budget", "0"],
            1,
            r"^error: --budget must be a number of seconds > 0; got 0\.0",
            id="run: budget 0",
        ),
        row(
            ["run", "mrbo", "--budget", "nan"],
            1,
            r"^error: --budget must be a number of seconds > 0; got nan",
            id="run: budget NaN",
        ),
        row(
            ["run", "mrbo", "--budget", "inf"],
            1,
            r"^error: --budget must be a number of seconds > 0; got inf",
            id="run: budget infinite",
        ),
        row(
            ["run", "mrbo", "--out", "file"],
            1,
            r"^error: cannot write into file: .*file is not a folder",
            id="run: out a file",
        ),
        row(
            ["run", "mrbo", "--out", "file/deeper"],
            1,
            r"^error: cannot write into file/deeper: .*file is not a folder",
            id="run: out below a file",
        ),
        row(["run", "folder"], 1, r"^error: folder: no method is called 'folder'", id="run: a folder"),
        row(
            ["run", "mrbo[S=2000000000000]"],
            1,
            r"^error: MRBO: S .* must be an integer ",
            id="run: a huge batch",
        ),
        row(["run", "mrbo", "vrbo"], 2, r"Got unexpected extra argument\S* \(vrbo\)", id="run: two methods"),
        row(["tune", "mrbo"], 2, r"Missing option '--grid'", id="tune: no grid"),
        row(
            ["tune", "mrbo", "--grid", "gamma="],
            1,
            r"^error: --grid gamma=: write it like gamma=1,10,100",
            id="tune: no values",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,,2"],
            1,
            r"^error: --grid gamma=1,,2: write it like gamma=1,10,100",
            id="tune: two commas",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=auto,1"],
            1,
            r"^error: --grid gamma=auto,1: write it like",
            id="tune: a word",
        ),
        row(
            ["tune", "mrbo", "--grid", "=1,2"],
            1,
            r"^error: --grid =1,2: write it like gamma=1,10,100",
            id="tune: no name",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1", "--grid", "gamma=2"],
            1,
            r"^error: --grid gamma is given twice",
            id="tune: a name twice",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=-1,1"],
            1,
            r"^error: MRBO: gamma .* must be a finite number >= 0.*got -1",
            id="tune: a negative step",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=nan,1"],
            1,
            r"^error: MRBO: gamma .* must be a finite number >= 0.*got nan",
            id="tune: NaN",
        ),
        row(
            ["tune", "mrbo", "--grid", "S=8,16"],
            1,
            r"^error: .*may differ in real numbers only",
            id="tune: batch sizes",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--rungs", "0"],
            2,
            r"Invalid value for '--rungs'",
            id="tune: no rungs",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--sampler", "random"],
            1,
            r"^error: unknown sampler 'random'",
            id="tune: sampler",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--out", "folder"],
            1,
            r"^error: cannot write folder: give a file name",
            id="tune: out a folder",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--out", "winner.txt"],
            1,
            r"^error: .*winner\.txt.*\.toml",
            id="tune: out another kind",
        ),
        row(["reproduce", "fig1a", "--seeds", "0"], 2, r"Invalid value for '--seeds'", id="reproduce: no seeds"),
        row(
            ["reproduce", "fig1a", "--data", "digts"],
            1,
            r"^error: no choice of --data is called 'digts'\. Did you mean digits\?",
            id="reproduce: data",
        ),
        row(
            ["reproduce", "fig1a", "--budget", "inf"],
            1,
            r"^error: --budget must be a number of seconds > 0; got inf",
            id="reproduce: budget",
        ),
        row(["report", "file"], 1, r"^error: .*file is (a file, )?not a folder", id="report: a file"),
        row(
            ["report", "folder", "--out", "file"],
            1,
            r"^error: cannot write into file: .*file is not a folder",
            id="report: out a file",
        ),
        row(["report", "folder"], 1, r"^error: folder holds no runs", id="report: an empty folder"),
        row(
            ["demo", "--out", "demo.xyz"],
            1,
            r"^error: cannot write demo\.xyz: .*\.png",
            id="demo: another kind of file",
        ),
        row(["demo", "--out", "demo.txt"], 1, r"^error: cannot write demo\.txt: .*\.png", id="demo: a text"),
        row(["demo", "--out", "demo"], 1, r"^error: cannot write demo: .*\.png", id="demo: no ending"),
        row(
            ["demo", "--out", "folder"],
            1,
            r"^error: cannot write folder: give a file name in a folder that exists",
            id="demo: a folder",
        ),
        row(["demo", "--out", "nowhere/demo.png"], 1, r"^error: cannot write nowhere/demo\.png", id="demo: nowhere"),
        row(["demo", "--seed", "x"], 2, r"Invalid value for '--seed'", id="demo: seed text"),
        row(["list", "mrbo", "vrbo"], 2, r"Got unexpected extra argument\S* \(vrbo\)", id="list: two methods"),
        row(["list", ""], 1, r"^error: no method is called ''", id="list: an empty name"),
        row(["doctor", "--jsn"], 2, r"No such option: --jsn.*--json", id="doctor: an unknown option"),
        row(["rnu"], 2, r"No such command 'rnu'.*run", id="an unknown command"),
    ],
)
def test_commands(arguments, code, message, command):
    status, told = command(*arguments)
    assert status == code
    assert re.search(message, told), told
    assert "Traceback" not in told


def test_help_is_given_without_a_command(command):
    assert command()[0] == 2


def test_a_grid_of_four_million_settings_is_refused_before_it_is_made(command, monkeypatch):
    def product(*axes):
        for number, values in enumerate(itertools.product(*axes)):
            assert number < 200_000, "the grid was made"
            yield values

    monkeypatch.setattr(search, "product", product)
    axes = [
        f"{name}={','.join(str(i + 1) for i in range(n))}" for name, n in (("gamma", 200), ("lam", 200), ("c1", 100))
    ]
    status, told = command("tune", "mrbo", *(word for axis in axes for word in ("--grid", axis)))
    assert status == 1
    assert re.search(r"^error: .*4,000,000 settings", told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        row(["list", "mrbo"], {"COLUMNS": "0"}, 0, r"^mrbo .*gamma", id="a terminal of no width"),
        row(["list", "mrob"], {"COLUMNS": "0"}, 1, r"^error: no method", id="a mistake on such a terminal"),
        row(["list", "soba"], {"PYTHONIOENCODING": "ascii"}, 0, r"^soba .*rho_v", id="ASCII only"),
        row(
            ["run", "sema[S=2]", "--steps", "1"],
            {"JAX_PLATFORMS": "abacus"},
            1,
            r"error: .*JAX_PLATFORMS.*abacus",
            id="a platform that does not exist",
        ),
        row(
            ["doctor"],
            {"JAX_PLATFORMS": "abacus"},
            1,
            r"^(?!.*reinstall jax).*JAX_PLATFORMS",
            id="what the doctor says about it",
        ),
    ],
)
def test_environments(arguments, environment, code, message, tmp_path):
    """The command ends with this code, and with a text like this: on standard output, or after a mistake the other."""
    home = os.path.dirname(os.path.dirname(bilax.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "bilax", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": home, **environment},
        cwd=tmp_path,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == code
    told = " ".join((done.stdout + done.stderr).decode().split())
    assert re.search(message, told), told


mnist_files = importlib.import_module("bilax.datasets.mnist").FILES
FIRST = mnist_files[0].name


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    return tmp_path / "mnist"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        row(
            None,
            FileNotFoundError,
            rf"{FIRST} is missing\. Put it there, from https.*or unset BILAX_DATA_DIR",
            id="missing",
        ),
        row(b"", ValueError, rf"{FIRST} is damaged or another file: found 0 bytes", id="empty"),
        row(b"<html>", ValueError, r"is damaged or another file: found 6 bytes.*Replace it by", id="a page"),
        row(
            b"\0\0\x08\x03" + bytes(16), ValueError, r"is damaged or another file: found 20 bytes", id="not compressed"
        ),
        row(
            gzip.compress(b"\0\0\x08\x03"),
            ValueError,
            r"is damaged or another file: found",
            id="compressed, but cut off",
        ),
    ],
)
def test_data_files(content, error, message, own_folder):
    if content is not None:
        (own_folder / FIRST).write_bytes(content)
    refused(datasets.mnist, error, message)


def test_a_folder_in_place_of_a_data_file(own_folder):
    (own_folder / FIRST).mkdir()
    refused(datasets.mnist, FileNotFoundError, rf"{FIRST} is missing")


def test_a_file_in_place_of_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "data").touch()
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path / "data"))
    refused(datasets.mnist, FileNotFoundError, rf"{FIRST} is missing.*unset BILAX_DATA_DIR")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: datasets.digits(train=0),
            ValueError,
            r"there are 1797 digits; train = 0 and trusted = 297 must be at least 1",
            id="digits: none",
        ),
        row(
            lambda: datasets.digits(train=1500),
            ValueError,
            r"train = 1500 and trusted = 297 .*leave some to test on",
            id="digits: too many",
        ),
        row(
            lambda: datasets.digits(train=10.5),
            (TypeError, ValueError),
            r"train must be a whole number.*got 10\.5",
            id="digits: half of one",
        ),
        row(
            lambda: datasets.digits(train="all"),
            (TypeError, ValueError),
            r"train must be a whole number.*got 'all'",
            id="digits: text",
        ),
        row(
            lambda: datasets.digits(noise=-0.1),
            ValueError,
            r"the noise rate must be a number from 0 to 1; got -0\.1",
            id="digits: noise negative",
        ),
        row(
            lambda: datasets.digits(noise=float("nan")),
            ValueError,
            r"the noise rate must be a number from 0 to 1; got nan",
            id="digits: noise NaN",
        ),
        row(
            lambda: datasets.digits(noise="0.3"),
            (TypeError, ValueError),
            r"the noise rate must be .*from 0 to 1; got '0\.3'",
            id="digits: noise text",
        ),
        row(
            lambda: datasets.digits(seed=-1),
            ValueError,
            r"seed must be .*integer.*got -1",
            id="digits: seed negative",
        ),
        row(
            lambda: datasets.digits(seed="a"),
            (TypeError, ValueError),
            r"seed must be .*integer.*got 'a'",
            id="digits: seed text",
        ),
        row(
            lambda: corrupt_labels(np.zeros(3, int), 0.5, 1, 0),
            ValueError,
            r"among at least 2 classes; got 1",
            id="labels of one class",
        ),
        row(
            lambda: bilax.problems.hyper_cleaning(None),
            TypeError,
            r"HyperCleaning.*got NoneType",
            id="hyper_cleaning: nothing",
        ),
        row(
            lambda: bilax.problems.hyper_cleaning(datasets.digits(), C="small"),
            (TypeError, ValueError),
            r"C must be .*got 'small'",
            id="hyper_cleaning: C text",
        ),
        row(
            lambda: bilax.problems.quadratic(p=0),
            ValueError,
            r"p must be an integer >= 1; got 0",
            id="quadratic: p 0",
        ),
        row(
            lambda: bilax.problems.quadratic(mu=2.0, L=1.0),
            ValueError,
            r"mu .*L",
            id="quadratic: mu above L",
        ),
        row(
            lambda: bilax.problems.quadratic(mu=0.0),
            ValueError,
            r"mu must be .*> 0 and at most L; got mu = 0\.0",
            id="quadratic: mu 0",
        ),
    ],
)
def test_ready_made_data_and_problems(call, error, message):
    refused(call, error, message)


FACTS = {"task": "digits-p0.3", "variant": "own", "method": "MRBO", "setting": "mrbo[S=1]", "seed": 3, "status": "done"}


def kept(folder, manifest=FACTS, rows='{"k": 0, "seconds": 0.0}\n'):
    """Write what a run leaves, as text."""
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    (folder / "rows.jsonl").write_text(rows)


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        row(
            lambda path: kept(path, manifest="{"),
            bilax.Doubtful,
            r"manifest\.json is damaged.*left out; run it again",
            id="a damaged manifest",
        ),
        row(lambda path: kept(path, manifest="[]"), ValueError, r"holds no runs", id="a manifest of something else"),
        row(
            lambda path: kept(path, rows='{"k": \n{"k": 5}\n'),
            bilax.Doubtful,
            r"line 1 of .*rows\.jsonl is damaged",
            id="a damaged line",
        ),
        row(
            lambda path: kept(path, rows="5\n6\n"),
            bilax.Doubtful,
            r"line 1 of .*rows\.jsonl is damaged",
            id="numbers for rows",
        ),
        row(lambda path: kept(path, rows=""), ValueError, r"holds no runs", id="no rows"),
        row(lambda path: path.touch(), ValueError, r"holds no runs", id="a file in place of a run"),
    ],
)
def test_run_folders(write, error, message, tmp_path):
    write(tmp_path / "run")
    refused(lambda: bilax.results.load(tmp_path), error, message)


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        row(5, TypeError, r"give the name of a folder.*got 5", id="a number"),
        row(None, TypeError, r"give the name of a folder.*got None", id="None"),
        row(__file__, (ValueError, OSError), r"test_mistakes\.py is damaged, or not a checkpoint", id="a file"),
    ],
)
def test_loading_what_is_no_folder(folder, error, message):
    refused(lambda: bilax.results.load(folder), error, message)


@pytest.mark.parametrize(
    "manifest",
    [
        row({"setting": "mrbo", "status": "done"}, id="two facts only"),
        row({**FACTS, "budget": None, "title": "digits"}, id="no sampler"),
    ],
)
def test_a_page_of_runs_that_lack_facts(manifest, tmp_path, command):
    (tmp_path / "results").mkdir()
    kept(tmp_path / "results" / "run", manifest)
    with pytest.warns(Doubtful, match=r"manifest\.json lacks .*sampler.*this run is left out"):
        status, told = command("report", "results")
    assert status == 1
    assert re.search(r"^error: results holds no runs", told)


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        row(
            lambda path: path.touch(),
            ValueError,
            r"is a file, not a folder; remove it, or give another checkpoint_dir",
            id="a file",
        ),
        row(
            lambda path: (path / "checkpoint.bin").mkdir(parents=True),
            (OSError, ValueError),
            r"checkpoint\.bin is a folder|checkpoint\.bin is damaged",
            id="a folder in place of the checkpoint",
        ),
        row(
            lambda path: (path.mkdir(), (path / "checkpoint.bin").write_bytes(b"bilax checkpoint 0 x\n")),
            bilax.Doubtful,
            r"checkpoint\.bin is damaged, or not a checkpoint of this version.*set aside as checkpoint\.bin\.damaged",
            id="a checkpoint of another format",
        ),
        row(
            lambda path: run(seed=1, checkpoint_dir=path),
            ValueError,
            r"is of another run: seed is 1 there and 0 here.*remove that file to begin anew",
            id="a checkpoint of another seed",
        ),
    ],
)
def test_checkpoints(prepare, error, message, tmp_path):
    prepare(tmp_path / "kept")
    refused(lambda: run(checkpoint_dir=tmp_path / "kept"), error, message)
