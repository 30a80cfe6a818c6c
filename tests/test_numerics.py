"""Numbers: narrow and wide floats agree, the same seed gives the same bits, and extremes give numbers."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import METHOD_CASES

import bilax
from bilax import datasets, hypergradient, iterate, solve, sweep
from bilax.problems import HyperCleaning, hyper_cleaning, quadratic

pytestmark = pytest.mark.slow

QUADRATIC = quadratic(inner_size=64, outer_size=48)
PROBLEM = QUADRATIC.problem
X, Y = np.ones(3), np.zeros(4)


def narrow(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)


NARROW = dataclasses.replace(
    QUADRATIC, **{name: narrow(getattr(QUADRATIC, name)) for name in ("A", "B", "C", "E", "inner", "outer")}
)


@pytest.fixture(autouse=True)
def _without_doubts():
    """A few steps on odd data rightly raise doubts, which are not what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bilax.Doubtful)
        yield


def same_bits(one, other):
    def check(a, b):
        a, b = (np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in (a, b))
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()

    jax.tree.map(check, one, other)


def _is_key(leaf):
    return jnp.issubdtype(jnp.asarray(leaf).dtype, jax.dtypes.prng_key)


def finite(tree):
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))


# float32 and float64

STEPS = 40
BOUND = 1e-5  # relative; the rounding of float32 is 6e-8, and a step adds a few of those


def distance(one, other):
    one, other = (np.asarray(array, np.float64) for array in (one, other))
    return np.linalg.norm(one - other) / np.linalg.norm(one)


@pytest.mark.parametrize(
    ("case", "eta"),
    [
        *((case, 0.2) for case in METHOD_CASES),
        *((case, "auto") for case in METHOD_CASES if hasattr(case.make(), "eta")),
    ],
    ids=str,
)
def test_narrow_and_wide_floats_agree(case, eta):
    """Over full batches, so that both take the same steps; and narrow ones stay narrow, under JAX's strictest rules."""
    algorithm = case.make(eta=eta)
    wide = iterate(PROBLEM, algorithm, X, Y, steps=STEPS, sampler="full").state
    with jax.numpy_dtype_promotion("strict"):
        short = iterate(NARROW.problem, algorithm, narrow(X), narrow(Y), steps=STEPS, sampler="full").state
    assert (wide.x.dtype, wide.y.dtype) == (np.float64, np.float64)
    assert (short.x.dtype, short.y.dtype) == (np.float32, np.float32)
    assert distance(X, wide.x) > 0.01  # it has moved
    assert distance(wide.x, short.x) < BOUND
    assert distance(wide.y, short.y) < BOUND


@pytest.mark.parametrize(
    "estimator",
    ["exact", *(pytest.param(name, marks=pytest.mark.slow) for name in ("neumann", "cg", "fixed-point", "unrolled"))],
)
def test_narrow_and_wide_hypergradients_agree(estimator):
    kinds = {
        "exact": bilax.hypergrad.Exact(),
        "neumann": bilax.hypergrad.Neumann(),
        "cg": bilax.hypergrad.ConjugateGradient(),
        "fixed-point": bilax.hypergrad.FixedPoint(),
        "unrolled": bilax.hypergrad.Unrolled(),
    }
    x, y = X, QUADRATIC.y_star(X)
    wide = hypergradient(PROBLEM, x, y, kinds[estimator])
    short = hypergradient(NARROW.problem, narrow(x), narrow(y), kinds[estimator])
    wide, short = (getattr(found, "value", found) for found in (wide, short))
    assert np.asarray(short).dtype == np.float32
    assert distance(wide, short) < BOUND


# The same seed


# (That it does so by every method is shown where runs go on bit for bit.)
ALGORITHM = bilax.MRBO(gamma=0.02, lam=0.3, Q=3, eta=0.3, S=8)
SETTINGS = [dataclasses.replace(ALGORITHM, gamma=gamma) for gamma in (0.01, 0.02, 0.03)]
RUNS = {
    "solve": lambda: solve(PROBLEM, ALGORITHM, X, Y, steps=20, every=7, seed=3).state,
    "iterate": lambda: iterate(PROBLEM, ALGORITHM, X, Y, steps=20, seed=3),
    "sweep": lambda: sweep(PROBLEM, SETTINGS, X, Y, steps=20, seeds=[3, 4]),
}


@pytest.mark.parametrize("anew", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "compiled anew"])
@pytest.mark.parametrize("name", RUNS)
def test_a_seed_gives_the_same_bits_twice(name, anew):
    one = RUNS[name]()
    if anew:
        jax.clear_caches()
    same_bits(one, RUNS[name]())


def test_a_seed_decides_the_history():
    one, two, other = (solve(PROBLEM, ALGORITHM, X, Y, steps=20, every=7, seed=seed) for seed in (3, 3, 4))
    timeless = [[{k: v for k, v in row.items() if k != "seconds"} for row in found.history] for found in (one, two)]
    assert timeless[0] == timeless[1]
    assert (np.asarray(other.x) != np.asarray(one.x)).any()


@pytest.mark.parametrize("sampler", ["epoch", "full"])
@pytest.mark.slow
def test_a_seed_gives_the_same_bits_with_other_samplers(sampler):
    run = lambda: solve(PROBLEM, bilax.StocBiO(S=8), X, Y, steps=15, seed=5, sampler=sampler)
    one, two = run(), run()
    same_bits(one.state, two.state)


def test_the_same_data_twice():
    same_bits(datasets.digits(0.3, seed=2), datasets.digits(0.3, seed=2))


# Extremes of hyper-cleaning

CHOSEN = {
    "mrbo": bilax.MRBO(gamma=1.0, lam=0.1, Q=3, eta=0.02, S=8),
    "vrbo": bilax.VRBO(alpha=1.0, beta=0.1, m=2, q=2, Q=3, eta=0.02, S1=16, S2=4),
    "stocbio": bilax.StocBiO(alpha=0.1, beta=1.0, D=2, Q=3, eta=0.02, S=8),
    "aid-cg": bilax.AIDCG(alpha=0.1, beta=1.0, T=2, N=3, S=8),
    "soba": bilax.SOBA(S=8),
}
some_methods = pytest.mark.parametrize("method", [pytest.param(name, marks=pytest.mark.slow) for name in CHOSEN])


def task(n=40, classes=3, features=5, seed=0, **changes):
    """Small clusters, with labels a third of which are wrong."""
    rng = np.random.default_rng(seed)
    parts = {}
    for name, size in (("", n), ("trusted_", 20), ("test_", 10)):
        labels = rng.integers(classes, size=size).astype(np.int32)
        images = rng.normal(size=(size, features)) + labels[:, None]
        parts |= {f"{name}features": images, f"{name}labels": labels}
    noisy = np.where(rng.random(n) < 0.3, (parts["labels"] + 1) % classes, parts["labels"])
    made = HyperCleaning(**parts | {"labels": noisy}, true_labels=parts["labels"], classes=classes)
    return made._replace(**changes)


def check_run(data, algorithm, x0=None, dtype=None, **options):
    """A few steps, all of whose numbers are numbers, as are the losses and the accuracy."""
    if dtype is not None:
        names = ("features", "trusted_features", "test_features")
        data = data._replace(**{name: getattr(data, name).astype(dtype) for name in names})
    problem = hyper_cleaning(data)
    x0 = None if x0 is None else np.full(len(data.labels), x0, np.asarray(data.features).dtype)
    result = solve(problem, algorithm, x0, steps=5, every=5, **options)
    assert result.status == "done", result.message
    assert finite((result.x, result.y))
    for name, value in result.history[-1].items():
        undefined = name in ("auroc", "weight_clean", "weight_corrupted", "residual")
        assert undefined or np.isfinite(value), name
    return result


@some_methods
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("x0", [1e4, -1e4, pytest.param(1e30, marks=pytest.mark.slow)])
def test_weights_of_0_and_1(method, dtype, x0):
    """Without any weight on the training loss, the penalty alone is left; the weights cannot move any more."""
    result = check_run(task(), CHOSEN[method], x0, dtype)
    np.testing.assert_array_equal(np.asarray(jax.nn.sigmoid(result.x)), 1.0 if x0 > 0 else 0.0)


@some_methods
@pytest.mark.parametrize(
    "value", [1.0, pytest.param(0.0, marks=pytest.mark.slow), pytest.param(1e3, marks=pytest.mark.slow)]
)
def test_constant_features(method, value):
    constant = lambda features: np.full_like(features, value)
    data = task()
    names = ("features", "trusted_features", "test_features")
    data = data._replace(**{name: constant(getattr(data, name)) for name in names})
    gentle = dataclasses.replace(
        CHOSEN[method], **({"eta": 1e-8} if value > 1 and hasattr(CHOSEN[method], "eta") else {})
    )
    check_run(data, gentle)


@some_methods
def test_a_class_that_is_missing(method):
    """From the training samples, from the trusted ones, and from every batch of one sample."""
    data = task()
    check_run(data._replace(labels=np.zeros_like(data.labels), true_labels=np.zeros_like(data.labels)), CHOSEN[method])
    check_run(data._replace(trusted_labels=np.ones_like(data.trusted_labels)), CHOSEN[method])
    check_run(data._replace(classes=7), CHOSEN[method])


@some_methods
@pytest.mark.parametrize("noise", [0.0, 0.99, pytest.param(1.0, marks=pytest.mark.slow)])
def test_labels_that_are_all_right_or_almost_all_wrong(method, noise):
    data = datasets.digits(noise, train=100, trusted=50)
    assert data.corrupted.sum() == round(100 * noise)
    last = check_run(data, CHOSEN[method]).history[-1]
    assert np.isfinite(last["auroc"]) == (0 < noise < 1)


@some_methods
@pytest.mark.parametrize("sampler", ["iid", pytest.param("epoch", marks=pytest.mark.slow)])
def test_batches_of_one(method, sampler):
    names = [name for name in ("S", "S1", "S2") if hasattr(CHOSEN[method], name)]
    check_run(task(), dataclasses.replace(CHOSEN[method], **dict.fromkeys(names, 1)), sampler=sampler)


@some_methods
def test_one_sample(method):
    """To train on, and to trust."""
    data = task(n=1)
    data = data._replace(trusted_features=data.trusted_features[:1], trusted_labels=data.trusted_labels[:1])
    names = [name for name in ("S", "S1", "S2") if hasattr(CHOSEN[method], name)]
    check_run(data, dataclasses.replace(CHOSEN[method], **dict.fromkeys(names, 1)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("x", [1e4, -1e4, 1e30])
def test_the_hypergradient_at_weights_of_0_and_1(dtype, x):
    data = task()
    data = data._replace(features=data.features.astype(dtype), trusted_features=data.trusted_features.astype(dtype))
    problem = hyper_cleaning(data)
    found = hypergradient(problem, np.full(40, x, dtype), np.zeros((3, 5), dtype))
    assert not np.asarray(getattr(found, "value", found)).any()


# JAX's own checks


@pytest.mark.parametrize("case", METHOD_CASES, ids=str)
def test_under_debug_nans_and_strict_promotion(case):
    with jax.debug_nans(True), jax.numpy_dtype_promotion("strict"):
        assert finite(iterate(PROBLEM, case.make(), X, Y, steps=3).state)
        assert solve(PROBLEM, case.make(eta="auto"), X, Y, steps=3).status == "done"
