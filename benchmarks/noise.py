"""Wrong labels of four kinds, and the tables they are put into."""

import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilax.problems.hyper_cleaning import corrupt_labels

RATES = (0.1, 0.3, 0.5)


class Table(NamedTuple):
    """Features and labels: some with wrong labels, a few trusted, some to test on."""

    X: Any
    y: np.ndarray
    X_trusted: Any
    y_trusted: np.ndarray
    X_test: Any
    y_test: np.ndarray


def symmetric(X, y, rate, classes, rng):
    """Any other class, each as likely."""
    return corrupt_labels(y, rate, classes, int(rng.integers(2**31)))


def pair_flip(X, y, rate, classes, rng):
    """The next class."""
    wrong = rng.permutation(len(y))[: round(rate * len(y))]
    noisy = y.copy()
    noisy[wrong] = (noisy[wrong] + 1) % classes
    return noisy


def class_dependent(X, y, rate, classes, rng):
    """Some classes often, others seldom, each with favourites of its own among the others."""
    rates = rng.permutation(np.linspace(0, 2 * rate, classes))[y]
    rates = np.minimum(rates * rate / rates.mean(), 0.9)
    favourites = rng.dirichlet(np.full(classes, 0.5), classes) + 1e-3
    np.fill_diagonal(favourites, 0)
    favourites /= favourites.sum(1, keepdims=True)
    noisy = y.copy()
    for i in np.flatnonzero(rng.random(len(y)) < rates):
        noisy[i] = rng.choice(classes, p=favourites[y[i]])
    return noisy


def instance_dependent(X, y, rate, classes, rng):
    """A chance for each sample, normal around the rate, and a target by a random linear map of its features."""
    chance = np.clip(rng.normal(rate, 0.1, len(y)), 0, 1)
    score = np.asarray(X @ rng.normal(size=(X.shape[1], classes)).astype(np.float32))
    score = score / score.std()
    score[np.arange(len(y)), y] = -np.inf
    target = np.exp(score - score.max(1, keepdims=True))
    target /= target.sum(1, keepdims=True)
    noisy = y.copy()
    for i in np.flatnonzero(rng.random(len(y)) < chance):
        noisy[i] = rng.choice(classes, p=target[i])
    return noisy


KINDS = {
    "symmetric": symmetric,
    "pair-flip": pair_flip,
    "class-dependent": class_dependent,
    "instance-dependent": instance_dependent,
}


def digits(trusted, rng):
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return _cut(pixels.astype(np.float32) / 16, labels.astype(int), 1_197 - trusted, trusted, rng)


def mnist(trusted, rng):
    from bilax.datasets.mnist import FILES, _read

    images, labels, test_images, test_labels = (_read(file) for file in FILES)
    chosen = rng.permutation(len(images))[: 20_000 + trusted]
    pixels = [part.reshape(len(part), -1) / np.float32(255) for part in (images[chosen], test_images)]
    labels = labels[chosen].astype(int)
    return Table(
        pixels[0][:20_000], labels[:20_000], pixels[0][20_000:], labels[20_000:], pixels[1], test_labels.astype(int)
    )


def newsgroups(trusted, rng):
    """TF-IDF of the training documents, unit rows; scikit-learn's own test documents."""
    from sklearn.feature_extraction.text import TfidfTransformer

    from bilax.datasets.newsgroups import _own

    (X, y), (X_test, y_test) = _own()
    weigh = TfidfTransformer(sublinear_tf=True).fit(X)
    order = rng.permutation(X.shape[0])
    X, y = weigh.transform(X).tocsr().astype(np.float32)[order], np.asarray(y)[order]
    X_test = weigh.transform(X_test).tocsr().astype(np.float32)
    return Table(X[trusted:], y[trusted:], X[:trusted], y[:trusted], X_test, np.asarray(y_test))


def covtype(trusted, rng):
    """50,000 rows to clean, 10,000 to test on; standardised columns."""
    rows = _covtype()
    rows = rows[rng.permutation(len(rows))[: 60_000 + trusted]]
    X, y = rows[:, :-1], rows[:, -1].astype(int) - 1
    X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-6)
    return _cut(X, y, 50_000, trusted, rng)


DATA = {
    "digits, 100 trusted": (digits, 100, 10),
    "MNIST, 500 trusted": (mnist, 500, 10),
    "MNIST, 5,000 trusted": (mnist, 5_000, 10),
    "20 Newsgroups, 1,000 trusted": (newsgroups, 1_000, 20),
    "covtype, 500 trusted": (covtype, 500, 7),
}


def noisy_table(data, kind, rate, seed):
    """Return a table with wrong labels, and its true labels."""
    load, trusted, classes = DATA[data]
    table = load(trusted, np.random.default_rng([seed, 0]))
    noisy = KINDS[kind](table.X, table.y, rate, classes, np.random.default_rng([seed, 1]))
    return table._replace(y=noisy), table.y


def _cut(X, y, train, trusted, rng):
    order = rng.permutation(len(y))
    a, b, c = np.split(order, [train, train + trusted])
    return Table(X[a], y[a], X[b], y[b], X[c], y[c])


_kept = {}


def _covtype():
    if "covtype" not in _kept:
        with gzip.open(Path(os.environ["BILAX_DATA_DIR"]) / "covtype" / "covtype.data.gz") as file:
            _kept["covtype"] = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return _kept["covtype"]
