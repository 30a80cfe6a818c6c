"""Wrong labels and a convolutional network, in equinox, flax linen and flax nnx: the same numbers from each.

Four in ten labels of MNIST are wrong, a few are trusted. A network of any framework is a pytree of parameters and a
function: that is all bilax asks for. The three networks begin with the same parameters, give the same logits and see
the same batches; hundreds of steps then amplify what rounding makes different.
The convolutions are dense layers on patches, which is faster on processors; on a GPU, take the framework's own.

python examples/cnn_mnist.py
"""

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options, patches
from flax import nnx

import bilax
from bilax.datasets import mnist
from bilax.problems.hyper_cleaning import auroc

SIZES = {"first": (25, 8), "second": (72, 16), "last": (400, 10)}  # inputs and outputs of the layers
ADAM = optax.adam(0.002)


def network(images, layer):
    """Return the logits; layer(name) is a dense layer of a framework."""
    hidden = jax.nn.relu(layer("first")(patches(images, 5, 2)))
    hidden = jax.nn.relu(layer("second")(patches(hidden, 3, 2)))
    return layer("last")(hidden.reshape(*hidden.shape[:-3], -1))


class Equinox(eqx.Module):
    layers: dict

    def __call__(self, image):
        return network(image, lambda name: jnp.vectorize(self.layers[name], signature="(n)->(m)"))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, images):
        return network(images, lambda name: linen.Dense(SIZES[name][1], name=name))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        for name, (inputs, outputs) in SIZES.items():
            setattr(self, name, nnx.Linear(inputs, outputs, rngs=rngs))

    def __call__(self, images):
        return network(images, lambda name: getattr(self, name))


def frameworks(seed):
    """Return the parameters and the function of each network; all begin with the parameters of flax linen."""
    weights = Linen().init(jax.random.key(seed), jnp.zeros((1, 28, 28, 1)))
    layers = {name: eqx.nn.Linear(*size, key=jax.random.key(0)) for name, size in SIZES.items()}
    for name, values in weights["params"].items():
        new = values["kernel"].T, values["bias"]
        layers[name] = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layers[name], new)
    equinox, rest = eqx.partition(Equinox(layers), eqx.is_array)
    graph, state = nnx.split(Nnx(nnx.Rngs(0)))
    nnx.replace_by_pure_dict(state, weights["params"])
    return {
        "equinox": (equinox, lambda y, images: jax.vmap(eqx.combine(y, rest))(images)),
        "flax linen": (weights, Linen().apply),
        "flax nnx": (state, lambda y, images: nnx.merge(graph, y)(images)),
    }


def problem_of(network, logits, data):
    def losses(y, batch):
        return optax.softmax_cross_entropy_with_integer_labels(logits(y, batch["images"]), batch["labels"])

    def outer_loss(x, y, batch):
        return jnp.mean(losses(y, batch))

    def inner_loss(x, y, batch):
        return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch))

    n = len(data.labels)
    trusted = {"images": images(data.trusted_features), "labels": data.trusted_labels}
    given = {"images": images(data.features), "labels": data.labels, "index": np.arange(n)}
    return bilax.Problem(outer_loss, inner_loss, trusted, given, x0=np.zeros(n, np.float32), y0=network)


def problem(train=1_000, trusted=100):
    """Return the problem of the flax linen network: bilax tune "reverse[T=10,S=50]" --problem cnn_mnist.py:problem"""
    data, (network, logits) = mnist(0.4, train=train, trusted=trusted, test=100), frameworks(seed=0)["flax linen"]
    return problem_of(network, logits, data)


def images(features):
    return features[:, :-1].reshape(-1, 28, 28, 1)


def main(quick=False, picture=None, json=None):
    train, trusted, steps, plain_steps = (400, 60, 25, 200) if quick else (1_000, 100, 50, 400)
    data = mnist(0.4, train=train, trusted=trusted, test=500 if quick else 5_000)
    table = Table("cnn_mnist.py", f"a weight for each of {train:,} images of MNIST", ("test accuracy", "AUROC"))
    networks = frameworks(seed=0)

    network, logits = networks["flax linen"]
    problem = problem_of(network, logits, data)
    trusted_rows = {**problem.outer_data, "index": train + jnp.arange(trusted)}

    def accuracy(x, rows):
        """Of a network that is trained in the usual way, with weights sigmoid(x); trusted images have weight 1."""
        x = jnp.concatenate([x, jnp.full(trusted, 20.0)])
        y = fit(problem.inner_loss, x, network, rows, ADAM, plain_steps)
        return np.mean(np.argmax(logits(y, images(data.test_features)), axis=1) == data.test_labels)

    def all_with(labels):
        given = {**problem.inner_data, "labels": jnp.asarray(labels)}
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), given, trusted_rows)

    sure = jnp.full(train, 20.0)
    table.row("all labels as given", accuracy(sure, all_with(data.labels)))
    table.row("the trusted images alone", accuracy(sure, trusted_rows))
    table.row("the true labels, if they were known", accuracy(sure, all_with(data.true_labels)))

    method = bilax.Reverse(alpha=optax.adam(0.3), beta=0.1, T=10, S=50)
    found, few = {}, images(data.test_features[:10])
    for name, (network_, logits_) in networks.items():
        np.testing.assert_allclose(logits_(network_, few), logits(network, few), atol=1e-5)
        found[name] = done(bilax.solve(problem_of(network_, logits_, data), method, steps=steps, every=steps)).x
        right = accuracy(found[name], all_with(data.labels))
        table.row(f"reverse, {name}", right, auroc(-np.asarray(found[name]), data.corrupted), bilevel=True)
    assert np.min(np.corrcoef([*found.values()])) > 0.98
    table.save(json)
    if picture:
        draw(picture, np.asarray(found["flax linen"]), data)


def draw(file, x, data):
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(3, 10, figsize=(10, 4), layout="constrained")
    for place, row in zip(places.flat, np.argsort(x), strict=False):
        place.imshow(images(data.features)[row, ..., 0], cmap="gray_r")
        right = data.labels[row] == data.true_labels[row]
        place.set_title(f"{data.labels[row]}", color="tab:red" if right else "black")
        place.axis("off")
    figure.suptitle("The 30 images of least weight, with their given labels (red: the label is right)")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
