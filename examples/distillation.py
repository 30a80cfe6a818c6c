"""Digits distilled into 20 images: a classifier trained on them alone does well on real digits.

x is 20 images of 8 x 8 pixels, two for each class; the inner problem trains a linear classifier on them, the outer loss
is that of the classifier on 1,000 real digits. Rivals: 20 real digits by chance, and two means for each class, by
k-means, which see the same 1,000 digits.

python examples/distillation.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, options
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

import bilax
from bilax.datasets import digits

EACH, CLASSES = 2, 10
LABELS = np.repeat(np.arange(CLASSES), EACH)


def cross_entropy(classifier, pixels, labels):
    bias, weights = classifier["bias"], classifier["weights"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(pixels @ weights + bias, labels))


def outer_loss(x, y, batch):
    return cross_entropy(y, batch["pixels"], batch["labels"])


def inner_loss(x, y, batch):
    return cross_entropy(y, x, LABELS) + 1e-3 * jnp.sum(y["weights"] ** 2)


ZERO = {"weights": jnp.zeros((64, CLASSES)), "bias": jnp.zeros(CLASSES)}


@jax.jit
def trained(images):
    """Return the classifier that 20 images give: 2,000 steps of gradient descent from zero."""
    optimiser = optax.adam(0.03)

    def step(_, carry):
        y, memory = carry
        updates, memory = optimiser.update(jax.grad(inner_loss, argnums=1)(images, y, None), memory)
        return optax.apply_updates(y, updates), memory

    return jax.lax.fori_loop(0, 2_000, step, (ZERO, optimiser.init(ZERO)))[0]


def by_chance(pixels, labels, seed):
    rng = np.random.default_rng(seed)
    return pixels[np.concatenate([rng.choice(np.flatnonzero(labels == c), EACH, False) for c in range(CLASSES)])]


def means(pixels, labels):
    centres = [
        KMeans(EACH, n_init=10, random_state=0).fit(pixels[labels == c]).cluster_centers_ for c in range(CLASSES)
    ]
    return np.concatenate(centres).astype(np.float32)


def main(quick=False, picture=None, json=None):
    data = digits(0.0, train=1_000, trusted=297)
    pixels, labels, test = data.features[:, :-1], data.labels, data.test_features[:, :-1]

    def accuracy(images):
        y = trained(images)
        return np.mean(np.argmax(test @ y["weights"] + y["bias"], axis=1) == data.test_labels)

    table = Table("distillation.py", "20 images to train on, two for each digit", ("test accuracy",))
    real = [by_chance(pixels, labels, seed) for seed in range(20)]
    table.row("20 real digits, mean of 20 draws", np.mean([accuracy(images) for images in real]))
    start = means(pixels, labels)
    table.row("two means for each digit, by k-means", accuracy(start))

    problem = bilax.Problem(outer_loss, inner_loss, {"pixels": pixels, "labels": labels}, None)
    method = bilax.AIDCG(alpha=optax.adam(0.02), beta=optax.adam(0.005), T=30, N=20, S=1_000)
    steps = 100 if quick else 600
    result = done(bilax.solve(problem, method, start, trained(start), steps=steps, sampler="full"))
    distilled = np.asarray(result.x)
    table.row("20 distilled images", accuracy(distilled), bilevel=True)
    table.row("all 1,000 digits", LogisticRegression(max_iter=1_000).fit(pixels, labels).score(test, data.test_labels))
    table.save(json)
    if picture:
        draw(picture, {"real digits": real[0], "k-means": start, "distilled": distilled})


def draw(file, ways):
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(len(ways) * EACH, CLASSES, figsize=(9, 5.5), layout="constrained")
    for block, (name, images) in enumerate(ways.items()):
        for number, image in enumerate(images):
            place = places[block * EACH + number % EACH, number // EACH]
            place.imshow(image.reshape(8, 8), cmap="gray_r")
            place.set(xticks=[], yticks=[])
        places[block * EACH, 0].set_ylabel(name)
    figure.suptitle("Two images for each digit to train on")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
