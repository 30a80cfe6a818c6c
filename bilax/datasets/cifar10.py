"""CIFAR-10, from the files of its binary version in ``BILAX_DATA_DIR/cifar-10-batches-bin`` or in the user's cache."""

from pathlib import Path

import numpy as np

from bilax.datasets.split import cleaning_task
from bilax.datasets.store import folder
from bilax.problems.hyper_cleaning import HyperCleaning

PART = "cifar-10-batches-bin"
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html (the binary version)"
BATCHES, TEST = tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"
IMAGES, PIXELS, CLASSES = 10_000, 32 * 32 * 3, 10  # in a file, in an image
SIZE = IMAGES * (1 + PIXELS)  # of a file, in bytes
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)  # of red, green and blue in [0, 1]


def cifar10(
    noise: float = 0.4, *, train: int = 9_000, trusted: int = 1_000, test: int = 10_000, seed: int = 0
) -> HyperCleaning:
    """Return a hyper-cleaning task: the first ``train`` images with a fraction ``noise`` of wrong labels, the next
    ``trusted`` ones clean, and ``test`` of the test images.

    A row is an image as (32, 32, 3) numbers, colours normalised, and a bias feature. As many of the five training
    files are used as are there (`cifar10_batches`): one, with 10,000 images, is enough for the default sizes.

    Args:
      noise: the share of the training labels that are wrong.
      train: the number of images to train on, the first ones.
      trusted: the number of images whose labels are right, for the outer loss: the next ones.
      test: how many of the test images to test on.
      seed: decides which labels are wrong.

    Returns:
      A `HyperCleaning`, for `bilax.problems.hyper_cleaning` or a network of your own.

    >>> data = cifar10(0.4, train=500, trusted=100, test=200)
    >>> data.features.shape, int(data.corrupted.sum()), data.trusted_labels.shape
    ((500, 3073), 200, (100,))
    """
    names = cifar10_batches()
    there = IMAGES * len(names)
    if not (train >= 1 and trusted >= 1 and train + trusted <= there):
        raise ValueError(
            f"{folder(PART)} holds {there:,} training images, in {len(names)} of 5 files; train = {train} and "
            f"trusted = {trusted} must be at least 1 and fit into them."
        )
    if not 1 <= test <= IMAGES:
        raise ValueError(f"CIFAR-10 has {IMAGES:,} test images; test = {test} must be from 1 to that.")
    end = train + trusted
    parts = [_read(name) for name in names[: -(-end // IMAGES)]]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    test_pixels, test_labels = _read(TEST)
    return cleaning_task(
        (_normalised(pixels[:train]), labels[:train]),
        (_normalised(pixels[train:end]), labels[train:end]),
        (_normalised(test_pixels[:test]), test_labels[:test]),
        noise=noise,
        seed=seed,
    )


def cifar10_batches() -> tuple[str, ...]:
    """Return the names of the training files that are there, in their order.

    >>> cifar10_batches()[0]
    'data_batch_1.bin'
    """
    names = tuple(name for name in BATCHES if (folder(PART) / name).is_file())
    missing = [name for name, there in ((BATCHES[0], names), (TEST, (folder(PART) / TEST).is_file())) if not there]
    if missing:
        raise FileNotFoundError(
            f"{folder(PART)} lacks {' and '.join(missing)}. Put the files of CIFAR-10 there, from {SOURCE}: {TEST} and "
            "at least one of the five training files."
        )
    return names


def _normalised(pixels: np.ndarray) -> np.ndarray:
    images = pixels.reshape(-1, 3, 32 * 32).transpose(0, 2, 1) / np.float32(255)
    return ((images - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)).reshape(len(pixels), PIXELS)


def _read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels and labels of a file: for each image a byte for the label, then red, green and blue."""
    path: Path = folder(PART) / name
    if (size := path.stat().st_size) != SIZE:
        raise ValueError(
            f"{path} is damaged or another file: it has {size:,} bytes, a file of CIFAR-10 has {SIZE:,}. Replace it by "
            f"the one from {SOURCE}."
        )
    rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(IMAGES, 1 + PIXELS)
    labels = rows[:, 0].astype(np.int32)
    if labels.max() >= CLASSES:
        raise ValueError(
            f"{path} is damaged or another file: image {int(np.argmax(labels >= CLASSES)):,} has the label "
            f"{labels.max()}, and there are {CLASSES}. Replace it by the one from {SOURCE}."
        )
    return rows[:, 1:], labels
