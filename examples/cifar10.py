"""CIFAR-10 with wrong labels: learn a weight for every image, so that a convolutional network fits 1,000 trusted ones.

Four in ten labels are wrong. The convolutions are products with patches, which is faster on processors. One of the five
training files of CIFAR-10 is enough.

python examples/cifar10.py          # 4,000 of its images, one seed
python examples/cifar10.py --full   # all of it, three seeds: a quarter of an hour
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options, patches

import bilax
from bilax.datasets import cifar10, cifar10_batches
from bilax.problems.hyper_cleaning import auroc

SHAPES = {"first": (4 * 4 * 3, 32), "second": (3 * 3 * 32, 64), "last": (6 * 6 * 64, 10)}
ADAM = optax.adamw(0.001, weight_decay=1e-3)
NAMES = "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"


def network(seed):
    rng = np.random.default_rng(seed)
    weights = {name: rng.normal(size=shape) * np.sqrt(2 / shape[0]) for name, shape in SHAPES.items()}
    weights |= {f"{name} bias": np.zeros(shape[1]) for name, shape in SHAPES.items()}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), weights)


def logits(y, images):
    hidden = jax.nn.relu(patches(images, 4, 4) @ y["first"] + y["first bias"])
    hidden = jax.nn.relu(patches(hidden, 3, 1) @ y["second"] + y["second bias"])
    return hidden.reshape(len(hidden), -1) @ y["last"] + y["last bias"]


def losses(y, batch):
    return optax.softmax_cross_entropy_with_integer_labels(logits(y, batch["images"]), batch["labels"])


def outer_loss(x, y, batch):
    return jnp.mean(losses(y, batch))


def inner_loss(x, y, batch):
    return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch))


def images(features):
    return features[:, :-1].reshape(-1, 32, 32, 3)


def one_seed(seed, train, trusted, test, steps, plain_steps):
    """Return accuracy and AUROC of each way, the data and the weights."""
    data = cifar10(0.4, train=train, trusted=trusted, test=test, seed=seed)
    given = {"images": images(data.features), "labels": data.labels, "index": np.arange(train)}
    known = {"images": images(data.trusted_features), "labels": data.trusted_labels}
    y0, sure = network(seed), jnp.full(train, 20.0)

    def accuracy(x, labels, alone=False):
        """Of a network that is trained in the usual way, with weights sigmoid(x) and 1 for the trusted images."""
        few = {**known, "index": np.arange(train, train + trusted)}
        both = {name: np.concatenate([{**given, "labels": labels}[name], few[name]]) for name in few}
        weights = jnp.concatenate([x, jnp.full(trusted, 20.0)])
        y = fit(inner_loss, weights, y0, few if alone else both, ADAM, plain_steps, batch=128, seed=seed)
        return np.mean(np.argmax(logits(y, images(data.test_features)), axis=1) == data.test_labels)

    problem = bilax.Problem(outer_loss, inner_loss, known, given)
    method = bilax.Reverse(alpha=optax.adam(0.2), beta=optax.sgd(0.03, momentum=0.9), T=10, S=128)
    x = done(bilax.solve(problem, method, np.zeros(train, np.float32), y0, steps=steps, every=steps, seed=seed)).x
    found = {
        "all labels as given": (accuracy(sure, data.labels), np.nan),
        "the trusted images alone": (accuracy(sure, data.labels, alone=True), np.nan),
        "the true labels, if they were known": (accuracy(sure, data.true_labels), np.nan),
        "learned weights, by reverse": (accuracy(x, data.labels), auroc(-np.asarray(x), data.corrupted)),
    }
    return found, data, np.asarray(x)


SIZES = {  # training, trusted and test images, steps, steps of plain training, seeds
    "quick": (500, 100, 500, 5, 100, 1),
    "usual": (4_000, 500, 3_000, 60, 500, 1),
    "full": (9_000, 1_000, 10_000, 150, 1_500, 3),
}


def main(quick=False, full=False, picture=None, json=None):
    *sizes, seeds = SIZES["quick" if quick else "full" if full else "usual"]
    print(f"read from {', '.join(cifar10_batches())}")
    learns = f"a weight for each of {sizes[0]:,} images of CIFAR-10"
    table = Table("cifar10.py", learns, ("test accuracy", "AUROC"), seeds)
    runs = [one_seed(seed, *sizes) for seed in range(seeds)]
    for name in runs[0][0]:
        accuracy, found = np.mean([run[0][name] for run in runs], axis=0)
        table.row(name, accuracy, None if np.isnan(found) else found, bilevel=name.startswith("learned"))
    table.save(json)
    if picture:
        draw(picture, *runs[0][1:])


def draw(file, data, x):
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(3, 8, figsize=(10, 4.6), layout="constrained")
    shown = images(data.features)
    low, high = shown.min(), shown.max()
    for place, row in zip(places.flat, np.argsort(x), strict=False):
        place.imshow((shown[row] - low) / (high - low))
        right = data.labels[row] == data.true_labels[row]
        place.set_title(NAMES[data.labels[row]], color="tab:red" if right else "black", fontsize="small")
        place.axis("off")
    figure.suptitle("The images of least weight, with their given labels (red: the label is right)")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__, full="all images of a file, and three seeds")))
