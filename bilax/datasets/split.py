"""Splitting and corrupting happen once, here, with a seed; afterwards the data are read-only."""

import numpy as np

from bilax.problems.hyper_cleaning import HyperCleaning, corrupt_labels


def with_bias(images: np.ndarray) -> np.ndarray:
    return np.concatenate([images, np.ones((len(images), 1), images.dtype)], axis=1)


def cleaning_task(
    train: tuple[np.ndarray, np.ndarray],
    trusted: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    noise: float,
    seed: int,
) -> HyperCleaning:
    """Corrupt the training labels, add the bias feature, and lock the arrays."""
    classes = int(max(part[1].max() for part in (train, trusted, test))) + 1
    noisy = corrupt_labels(train[1], noise, classes, seed)
    task = HyperCleaning(
        features=with_bias(train[0]),
        labels=noisy,
        true_labels=np.array(train[1]),
        trusted_features=with_bias(trusted[0]),
        trusted_labels=np.array(trusted[1]),
        test_features=with_bias(test[0]),
        test_labels=np.array(test[1]),
        classes=classes,
    )
    for array in task[:-1]:
        array.setflags(write=False)
    return task
