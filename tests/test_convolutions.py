"""A convolution in a loss is taken as a product with patches, and all derivatives are those of the convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import bilax
from bilax.numerics import convolutions
from bilax.numerics.convolutions import with_products

RNG = np.random.default_rng(0)

KINDS = {
    "plain": {"window_strides": (1, 1), "padding": "VALID"},
    "strided": {"window_strides": (2, 3), "padding": "SAME"},
    "dilated kernel": {"window_strides": (1, 1), "padding": ((1, 2), (0, 1)), "rhs_dilation": (2, 1)},
    "transposed": {"window_strides": (1, 1), "padding": ((2, 2), (1, 2)), "lhs_dilation": (2, 3)},
    "cropped": {"window_strides": (1, 2), "padding": ((-1, 0), (1, -2))},
}
LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("CWNH", "IHOW", "HNCW")]


def shape_of(layout, sizes):
    return tuple(sizes[letter] for letter in layout)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_it_is_the_same_function(kind, layout):
    images = RNG.normal(size=shape_of(layout[0], {"N": 2, "H": 9, "W": 8, "C": 3}))
    kernel = RNG.normal(size=shape_of(layout[1], {"H": 3, "W": 2, "I": 3, "O": 4}))

    def loss(images, kernel):
        return jnp.sum(jnp.sin(lax.conv_general_dilated(images, kernel, dimension_numbers=layout, **KINDS[kind])))

    found, expected = (jax.grad(fn, argnums=(0, 1))(images, kernel) for fn in (with_products(loss), loss))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, expected)
    assert "conv_general_dilated" not in str(jax.make_jaxpr(jax.grad(with_products(loss)))(images, kernel))


@pytest.mark.parametrize("rank", [1, 3])
def test_any_number_of_axes(rank):
    images, kernel = RNG.normal(size=(2, 3, *(5,) * rank)), RNG.normal(size=(4, 3, *(2,) * rank))

    def loss(images):
        return lax.conv(images, kernel, (1,) * rank, "SAME")

    np.testing.assert_allclose(with_products(loss)(images), loss(images), rtol=1e-12, atol=1e-12)


def test_what_does_not_pay_is_left_alone(monkeypatch):
    images = RNG.normal(size=(2, 4, 5, 5))

    def in_groups(kernel):
        return lax.conv_general_dilated(images, kernel, (1, 1), "SAME", feature_group_count=4)

    kernel = RNG.normal(size=(4, 1, 3, 3))
    np.testing.assert_array_equal(with_products(in_groups)(kernel), in_groups(kernel))
    monkeypatch.setattr(convolutions, "LARGEST", 100)

    def too_large(kernel):
        return lax.conv(images, kernel, (1, 1), "SAME")

    assert "conv_general_dilated" in str(jax.make_jaxpr(with_products(too_large))(RNG.normal(size=(4, 4, 3, 3))))


def network(y, images):
    hidden = jax.nn.relu(lax.conv(images, y["first"], (2, 2), "VALID"))
    hidden = jax.nn.relu(jax.vmap(lambda image: lax.conv(image[None], y["second"], (1, 1), "SAME")[0])(hidden))
    return hidden.reshape(len(images), -1) @ y["last"]


def problem():
    rng = np.random.default_rng(1)
    sizes = {"first": (3, 1, 3, 3), "second": (2, 3, 2, 2), "last": (18, 2)}
    y0 = {name: 0.3 * rng.normal(size=size) for name, size in sizes.items()}
    data = {"image": rng.normal(size=(12, 1, 7, 7)), "label": rng.integers(0, 2, 12), "index": np.arange(12)}

    def losses(y, batch):
        return optax.softmax_cross_entropy_with_integer_labels(network(y, batch["image"]), batch["label"])

    return bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean(losses(y, batch)),
        inner_loss=lambda x, y, batch: jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch)),
        outer_data=data,
        inner_data=data,
        x0=np.zeros(12),
        y0=y0,
        damping=1.0,
    )


@pytest.mark.parametrize("name", ["reverse", pytest.param("mrbo", marks=pytest.mark.slow)])
def test_a_run_has_the_same_iterates_and_no_convolution(name, monkeypatch):
    def run(problem):  # a new one each time: nothing of it is compiled yet

        def told(x, y):
            found = bilax.iterate(problem, bilax.ALGORITHMS[name](), x, y, steps=3)
            return found.state.x, found.state.y

        text = str(jax.make_jaxpr(told)(problem.x0, problem.y0))
        return told(problem.x0, problem.y0), "conv_general_dilated" in text

    found, has_any = run(problem())
    monkeypatch.setattr(convolutions, "on_cpu", lambda: False)
    expected, had_some = run(problem())
    assert had_some
    assert not has_any
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), found, expected)
