"""A weight decay for every layer of a network, learned; against none, and against the best single one of a grid.

A network with two hidden layers is trained on 200 digits; what each layer pays for large weights is chosen so that it
does well on 200 others. Twelve trainings of the grid cost about as many gradients as the bilevel run with its first
and its last training do (a product with second derivatives counts as two).

With relu and no biases, such decays act through their product alone, so that one is as good as three; with tanh not.

python examples/weight_decay_per_layer.py
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options

import bilax
from bilax.datasets import digits

WIDTHS = (65, 32, 32, 10)
SAMPLES = 200  # to train on, and as many to validate on
ADAM, FITS = optax.adam(0.003), 12


def network(seed):
    rng = np.random.default_rng(seed)
    shapes = pairwise(WIDTHS)
    return [jnp.asarray(rng.normal(size=shape) * np.sqrt(1 / shape[0]), jnp.float32) for shape in shapes]


def logits(x, y, batch):
    hidden = batch["features"]
    for layer in y[:-1]:
        hidden = jnp.tanh(hidden @ layer)
    return hidden @ y[-1]


def cross_entropy(outputs, batch):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, batch["labels"]))


def outer_loss(x, y, batch):
    return cross_entropy(logits(x, y, batch), batch)


def penalised(x, y, outputs, batch):
    decay = sum(jnp.exp(log_decay) * jnp.sum(layer**2) for log_decay, layer in zip(x, y, strict=True))
    return cross_entropy(outputs, batch) + decay


MODEL = bilax.GaussNewton(logits, penalised)


def split(seed):
    data = digits(0.0, train=SAMPLES, trusted=SAMPLES, seed=seed)
    pairs = (
        (data.features, data.labels),
        (data.trusted_features, data.trusted_labels),
        (data.test_features, data.test_labels),
    )
    return [{"features": jnp.asarray(features), "labels": jnp.asarray(labels)} for features, labels in pairs]


def one_seed(seed, steps):
    """Return the decays of each way, and the test loss and accuracy of networks that are trained with them."""
    train, validation, test = split(seed)
    y0 = network(seed)

    def trained(x):
        return fit(MODEL.inner_loss, x, y0, train, ADAM, steps, batch=SAMPLES)

    grid = jnp.linspace(-10.0, -3.0, FITS)[:, None] * jnp.ones(len(y0))
    validated = jax.vmap(lambda x: outer_loss(x, trained(x), validation))(grid)

    problem = bilax.Problem(outer_loss, MODEL.inner_loss, validation, train, second_derivatives=MODEL)
    method = bilax.AIDCG(alpha=optax.adam(0.1), beta=ADAM, T=20, N=40, S=SAMPLES)
    outer_steps = (FITS - 2) * steps // (method.T + 2 * method.N + 2)
    start = jnp.full(len(y0), -5.0)
    learned = done(bilax.solve(problem, method, start, trained(start), steps=outer_steps, sampler="full"))
    ways = {"no decay": jnp.full(len(y0), -jnp.inf), "one, by grid": grid[jnp.argmin(validated)], "learned": learned.x}
    found = {}
    for name, x in ways.items():
        y = trained(x)
        right = jnp.argmax(logits(x, y, test), axis=1) == test["labels"]
        found[name] = (np.asarray(x), outer_loss(x, y, test), jnp.mean(right))
    return found


def main(quick=False, picture=None, json=None):
    seeds, steps = (1, 500) if quick else (3, 800)
    table = Table("weight_decay_per_layer.py", "a weight decay for each of 3 layers", ("test loss", "accuracy"), seeds)
    runs = [one_seed(seed, steps) for seed in range(seeds)]
    for name in runs[0]:
        loss, accuracy = np.mean([[run[name][1], run[name][2]] for run in runs], axis=0)
        table.row(name, loss, accuracy, bilevel=name == "learned")
    print("learned decays:", np.round(np.exp(np.mean([run["learned"][0] for run in runs], axis=0)), 5))
    table.save(json)
    if picture:
        draw(picture, runs)


def draw(file, runs):
    import matplotlib.pyplot as plt

    figure, place = plt.subplots(figsize=(6, 4), layout="constrained")
    layers = np.arange(1, len(WIDTHS))
    for run in runs:
        place.semilogy(layers, np.exp(run["learned"][0]), "o-", color="tab:blue")
        place.semilogy(layers, np.exp(run["one, by grid"][0]), "--", color="gray")
    place.set(xticks=layers, xlabel="layer", ylabel="weight decay", title="Learned for each layer, one line per seed")
    place.legend(["learned", "the best single one of the grid"])
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
