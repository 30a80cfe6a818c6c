"""What every algorithm owes the rest of the library."""

import importlib
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHM_CASES, METHOD_CASES
from problem_cases import PROBLEM_CASES, final_state

import bilax
from bilax import MRBO, Problem, iterate, solve
from bilax.oracle import make_oracle
from bilax.sampling import keys

CASE = PROBLEM_CASES[1]
EPOCHS = ("mrbo", "vrbo", "stocbio", "soba")  # a sampler knows nothing of the method that asks it


@pytest.mark.parametrize("algorithm", METHOD_CASES, ids=str)
def test_compiles_once(algorithm, compiled):
    """Another seed, step size, number of steps, chunk length, tolerance: no second compilation."""
    alg = algorithm.make(eta=0.2)
    solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=3)
    assert compiled.count("jit(advance)") <= 1  # none where another test has compiled it
    del compiled[:]
    smaller = {f.name: 0.9 * getattr(alg, f.name) for f in fields(alg) if not f.metadata["static"]}
    for changes in ({}, smaller):
        other = algorithm.make(**({"eta": 0.2} | changes))
        result = solve(CASE.problem, other, CASE.x0, CASE.y0, steps=11, seed=5, every=4, tol=1e-9, time_limit=100)
        assert result.status == "done"
    assert "jit(advance)" not in compiled


def test_a_compilation_is_noticed(compiled):
    """What the test above looks for is there when something is compiled."""
    solve(CASE.problem, MRBO(eta=0.2, S=3, Q=1), CASE.x0, CASE.y0, steps=1)
    assert compiled.count("jit(advance)") == 1


@pytest.mark.parametrize("algorithm", METHOD_CASES, ids=str)
@pytest.mark.parametrize(("eta", "dtype"), [(0.2, jnp.float32), ("auto", jnp.float32), (0.2, jnp.bfloat16)])
def test_keeps_dtype_and_structure(algorithm, eta, dtype):
    """Also in float64 mode, with NumPy scalars as hyper-parameters, which would promote float32 variables."""
    alg = algorithm.make(eta=eta if eta == "auto" else np.float64(eta))
    cast = lambda data: jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, data)
    p = CASE.problem
    oracle = make_oracle(Problem(p.outer_loss, p.inner_loss, cast(p.outer_data), cast(p.inner_data)))
    state = alg.init(oracle, jnp.asarray(CASE.x0, dtype), jnp.asarray(CASE.y0, dtype))
    after, _ = jax.eval_shape(lambda s: alg.step(oracle, keys.at(keys.root(0), s.k), s), state)
    describe = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype.name, a.weak_type), tree)
    assert describe(after) == describe(state)
    assert after.x.dtype == after.y.dtype == dtype


@pytest.mark.parametrize("algorithm", METHOD_CASES, ids=str)
def test_any_pytree_gives_the_numbers_of_the_flat_problem(algorithm):
    p = CASE.problem
    join_x = lambda x: jnp.concatenate([x["a"][0], x["b"].ravel()])
    join_y = lambda y: jnp.stack([y[0], *y[1]["rest"]])
    nested = Problem(
        lambda x, y, b: p.outer_loss(join_x(x), join_y(y), b),
        lambda x, y, b: p.inner_loss(join_x(x), join_y(y), b),
        p.outer_data,
        p.inner_data,
    )
    x0 = {"a": (CASE.x0[:4],), "b": CASE.x0[4:].reshape(4, 5)}
    y0 = [CASE.y0[0], {"rest": CASE.y0[1:]}]
    fixed = algorithm.make(eta=0.2)
    result = jax.jit(lambda: iterate(nested, fixed, x0, y0, steps=6)[0])()
    flat = final_state(CASE, fixed, 6)
    assert jax.tree.structure(result.x) == jax.tree.structure(x0)
    np.testing.assert_allclose(join_x(result.x), flat.x, rtol=1e-12)
    np.testing.assert_allclose(join_y(result.y), flat.y, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "eta"), [*((case, 0.2) for case in METHOD_CASES), (METHOD_CASES[0], "auto")], ids=str
)
def test_vmap_over_seeds(algorithm, eta):
    alg = algorithm.make(eta=eta)
    run = lambda seed: iterate(CASE.problem, alg, CASE.x0, CASE.y0, steps=5, seed=seed)[0]
    together = jax.jit(jax.vmap(run))(jnp.arange(3))
    for seed in range(3):
        alone = final_state(CASE, alg, 5, seed=seed)
        np.testing.assert_allclose(together.x[seed], alone.x, rtol=1e-10)
        np.testing.assert_allclose(together.y[seed], alone.y, rtol=1e-10)
    assert np.abs(together.x[0] - together.x[1]).max() > 1e-6


def test_vmap_over_a_batch_of_settings():
    settings = MRBO(
        gamma=jnp.array([0.1, 0.2, 0.3]), lam=jnp.array([0.3, 0.2, 0.1]), c1=1.0, c2=1.0, d=0.9, m=3.0,
        Q=2, eta=jnp.array([0.1, 0.15, 0.2]), S=5,
    )  # fmt: skip
    broadcast = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3,)), settings)
    run = lambda alg: iterate(CASE.problem, alg, CASE.x0, CASE.y0, steps=5)[0]
    together = jax.jit(jax.vmap(run))(broadcast)
    for i, (gamma, lam, eta) in enumerate([(0.1, 0.3, 0.1), (0.2, 0.2, 0.15), (0.3, 0.1, 0.2)]):
        alone = jax.jit(run)(MRBO(gamma, lam, 1.0, 1.0, 0.9, 3.0, 2, eta, 5))
        np.testing.assert_allclose(together.x[i], alone.x, rtol=1e-10)


@pytest.mark.parametrize(
    ("algorithm", "sampler", "eta"),
    [
        *((case, "epoch" if case.name in EPOCHS else "iid", 0.2) for case in METHOD_CASES),
        (METHOD_CASES[0], "iid", "auto"),
    ],
    ids=str,
)
def test_chunk_length_changes_nothing(algorithm, sampler, eta):
    """(That `iterate` takes the same steps is shown above, by the nested problem.)"""
    alg = algorithm.make(eta=eta)
    runs = [solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=9, sampler=sampler, every=e) for e in (1, 4, 9)]
    for run in runs:
        np.testing.assert_array_equal(run.x, runs[0].x)
        np.testing.assert_array_equal(run.y, runs[0].y)
        assert run.counts == runs[0].counts
    if sampler == "epoch":
        reference = jax.jit(lambda: iterate(CASE.problem, alg, CASE.x0, CASE.y0, steps=9, sampler=sampler)[0])()
        np.testing.assert_allclose(runs[0].x, reference.x, rtol=1e-10)


@pytest.mark.registry
def test_every_algorithm_is_registered_and_tested():
    from bilax import algorithms

    files = {m.name for m in pkgutil.iter_modules(algorithms.__path__)} - {
        "about",
        "protocol",
        "inner_loops",
        "directions",
    }
    for name, cls in bilax.ALGORITHMS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert getattr(bilax, cls.__name__) is cls, f"{cls.__name__} is not exported"
    homes = {cls.__module__.rsplit(".", 1)[1] for cls in bilax.ALGORITHMS.values()}
    assert homes == files, "a file without a registered algorithm, or the other way round"
    assert {case.name for case in ALGORITHM_CASES} >= set(bilax.ALGORITHMS), "an algorithm without a row in cases.py"


@pytest.mark.registry
def test_algorithm_files_are_short():
    """Without what is said about a method: its docstring, `about`, and imports."""
    for cls in bilax.ALGORITHMS.values():
        source = Path(importlib.import_module(cls.__module__).__file__).read_text()
        listing = re.sub(
            r"about = About\(.*?\n    \)\n", "", re.sub(r'""".*?"""', "", source, flags=re.DOTALL), flags=re.DOTALL
        )
        listing = re.sub(r"import \(.*?\)", "import", listing, flags=re.DOTALL)
        code = [line for line in listing.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
        of_this = len(code) / source.count("about = About(")
        assert of_this <= 80, f"{cls.__name__} has {of_this} lines"


@pytest.mark.parametrize("name", bilax._MOVED)
def test_what_has_moved_is_still_found_and_says_where(name):
    with pytest.warns(DeprecationWarning, match=f"bilax.{name} has moved: use bilax"):
        assert getattr(bilax, name).__name__ == bilax._MOVED[name]
