"""The 1,797 handwritten digits (8 x 8 pixels) that come with scikit-learn."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bilax.datasets.newsgroups import Documents, documents
from bilax.datasets.split import cleaning_task
from bilax.datasets.store import INSTALL
from bilax.problems.hyper_cleaning import HyperCleaning


def digits(noise: float = 0.3, *, train: int = 1000, trusted: int = 297, seed: int = 0) -> HyperCleaning:
    """Return a hyper-cleaning task of the 1,797 digits that come with scikit-learn. Pixels have mean 0 and deviation 1.

    Args:
      noise: the share of the training labels that are wrong.
      train: the number of images to train on.
      trusted: the number of images whose labels are right, for the outer loss; the rest is to test on.
      seed: decides the order of the images, and which labels are wrong.

    Returns:
      A `HyperCleaning`, for `bilax.problems.hyper_cleaning`.

    >>> data = digits(0.3)
    >>> data.features.shape, int(data.corrupted.sum())
    ((1000, 65), 300)
    """
    images, labels = _shuffled(seed)
    check_sizes(train=train, trusted=trusted)
    if not (train >= 1 and trusted >= 1 and train + trusted < len(labels)):
        raise ValueError(
            f"there are {len(labels)} digits; train = {train} and trusted = {trusted} must be at least 1 "
            "and leave some to test on."
        )
    images = (images - images[:train].mean()) / images[:train].std()
    end = train + trusted
    parts = [(images[a:b], labels[a:b]) for a, b in ((0, train), (train, end), (end, len(labels)))]
    return cleaning_task(*parts, noise=noise, seed=seed)


def digit_documents(*, seed: int = 0) -> Documents:
    """Return the digits in the form of the 20 newsgroups, to try things out without them: 700 images to train on,
    700 to validate on and 397 to test on, as sparse rows of unit norm.

    Args:
      seed: decides the order of the images.

    Returns:
      `Documents` of 64 features in 10 classes, for `bilax.problems.logistic`.

    >>> digit_documents().features.shape
    (700, 64)
    """
    images, labels = _shuffled(seed)
    images /= 16  # the darkest pixel
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    return documents([(images[a:b], labels[a:b]) for a, b in ((0, 700), (700, 1400), (1400, len(labels)))], 10)


def check_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name} must be a whole number, at least 1; got {value!r}.")


def _shuffled(seed: int) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0; got {seed!r}.")
    table = _table()
    order = np.random.default_rng(seed).permutation(len(table))
    return table[order, :-1].astype(np.float32), table[order, -1].astype(np.int32)


def _table() -> np.ndarray:
    """Return the pixels and, in the last column, the labels. The file is read where it lies: importing
    scikit-learn for it takes some two seconds, more than anything else before the first step of a run."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ImportError(f"the digits come with scikit-learn: {INSTALL}.")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return np.column_stack((images, labels))
