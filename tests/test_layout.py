"""y is kept as products read it inside of the loop, and nobody outside notices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import METHOD_CASES

import bilax
from bilax import iterate
from bilax.numerics.layout import Turned, ways
from bilax.oracle import traced
from bilax.running import loop

rng = np.random.default_rng(0)
N, FEATURES, CLASSES = 40, 6, 3
DATA = {"X": rng.normal(size=(N, FEATURES)), "label": rng.integers(0, CLASSES, N), "number": np.arange(N)}
SWAP = ("transpose", (1, 0), (1, 0))
MATRIX = (("reshape", (FEATURES, CLASSES), (FEATURES * CLASSES,)),)


def cross_entropy(logits, batch):
    mine = jnp.take_along_axis(logits, batch["label"][:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - mine


LOGITS = {  # with the start of y
    "matrix": (lambda y, batch: batch["X"] @ y, np.full((FEATURES, CLASSES), 0.1)),
    "vector": (lambda y, batch: jax.vmap(lambda row: row @ y.reshape(FEATURES, CLASSES))(batch["X"]), np.ones(18)),
    "classes first": (lambda y, batch: (y @ batch["X"].T).T, np.full((CLASSES, FEATURES), 0.1)),
    "with a bias": (
        lambda y, batch: batch["X"] @ y["W"] + y["b"],
        {"W": np.full((FEATURES, CLASSES), 0.1), "b": np.ones(CLASSES)},
    ),
    "both": (
        lambda y, batch: batch["X"] @ y["W"] + y["b"] + LOGITS["vector"][0](y["v"], batch),
        {"W": np.full((FEATURES, CLASSES), 0.1), "b": np.ones(CLASSES), "v": np.linspace(0, 1, 18)},
    ),
    "two layers": (
        lambda y, batch: jnp.tanh(batch["X"] @ y["first"]) @ y["second"],
        {"first": np.full((FEATURES, 4), 0.1), "second": np.linspace(0, 1, 4 * CLASSES).reshape(4, CLASSES)},
    ),
}


def squares(y):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def problem_of(name, **options):
    logits, y0 = LOGITS[name]

    def inner(x, y, batch):
        return jnp.mean(jax.nn.sigmoid(x[batch["number"]]) * cross_entropy(logits(y, batch), batch)) + squares(y)

    def outer(x, y, batch):
        return jnp.mean(cross_entropy(logits(y, batch), batch)) + 0.1 * jnp.mean(x**2)

    return bilax.Problem(outer, inner, DATA, DATA, x0=jnp.zeros(N), y0=y0, **options)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matrix", [(SWAP,)]),
        ("vector", [(*MATRIX, SWAP)]),
        ("classes first", [()]),
        ("with a bias", [(SWAP,), ()]),
        ("both", [(SWAP,), (), (*MATRIX, SWAP)]),
        ("two layers", [(SWAP,), (SWAP,)]),
    ],
)
def test_what_products_want(name, expected):
    problem = problem_of(name)
    batch = jax.tree.map(lambda leaf: leaf[:2], problem.inner_data)
    assert list(ways(problem.inner_loss, problem.x0, problem.y0, batch)) == expected
    for leaf, way in zip(jax.tree.leaves(problem.y0), expected, strict=True):
        np.testing.assert_array_equal(Turned.of(leaf, way).back(), leaf)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y, batch: jnp.sum(batch["X"] @ y) + jnp.sum(batch["X"] @ y.T.T.reshape(3, 6).T),  # not all alike
        lambda x, y, batch: jnp.sum(y),
        lambda x, y, batch: jnp.sum(batch["X"] @ y[:, 0]),
        lambda x, y, batch: jnp.sum(batch["X"] @ jnp.sin(y)),
    ],
)
def test_what_is_left_alone(loss):
    assert not any(ways(loss, jnp.zeros(N), jnp.ones((FEATURES, CLASSES)), DATA))


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[] if c.name in ("mrbo", "ttsa") else pytest.mark.slow) for c in METHOD_CASES],
)
def test_every_method_ends_at_the_same_place(case, monkeypatch):
    algorithm, problem = case.make(), problem_of("both")

    def end():
        return jax.jit(lambda: iterate(problem, algorithm, steps=6)[:2])()

    turned, *_ = loop.arranged(traced(problem, "iid"), algorithm, *_start(problem, algorithm))
    assert (turned.functions != problem.functions) == (case.name not in ("stable", "rsvrb"))
    state, info = end()
    asked = []
    monkeypatch.setattr(loop, "arranged", lambda *given: asked.append(1) or (given[0], *given[2:]))
    plain, plain_info = end()
    assert asked
    assert jax.tree.structure(state) == jax.tree.structure(plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12), state, plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), info, plain_info)


def _start(problem, algorithm):
    state = algorithm.init(traced(problem, "iid").oracle(), problem.x0, jax.tree.map(jnp.asarray, problem.y0))
    return state, loop.fresh_memory(algorithm, state)


def test_solve_returns_y_as_it_was_given():
    problem = problem_of("with a bias", project_y=lambda y: jax.tree.map(lambda leaf: jnp.clip(leaf, -0.5, 0.5), y))
    one = bilax.solve(problem, bilax.MRBO(S=8), steps=30)
    assert jax.tree.map(jnp.shape, one.y) == {"W": (FEATURES, CLASSES), "b": (CLASSES,)}
    parts = bilax.solve(problem, bilax.MRBO(S=8), steps=17)
    parts = bilax.solve(problem, bilax.MRBO(S=8), steps=13, state=parts.state)
    jax.tree.map(np.testing.assert_array_equal, one.state, parts.state)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one.y)) <= 0.5


class Own(bilax.MRBO):  # type: ignore[misc]
    """A method of somebody else's, which may look at y as the array that it is."""


def test_optimisers_and_other_methods_see_y_as_it_is():
    problem = problem_of("matrix")
    parts = traced(problem, "iid")
    for algorithm in (bilax.MRBO(lam=optax.adam(0.1)), bilax.Reverse(beta=optax.adam(0.1)), Own(), bilax.STABLE()):
        same, state, _ = loop.arranged(parts, algorithm, *_start(problem, algorithm))
        assert same is parts
        assert state.y.shape == (FEATURES, CLASSES)
    algorithm = bilax.MRBO(gamma=optax.adam(0.1))
    turned, state, _ = loop.arranged(parts, algorithm, *_start(problem, algorithm))
    assert turned is not parts
    assert isinstance(state.y, Turned)
