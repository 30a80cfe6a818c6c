"""MNIST, read from the four canonical IDX files in ``BILAX_DATA_DIR/mnist``."""

import gzip
import os
from pathlib import Path

import numpy as np

from bilax.datasets.split import cleaning_task
from bilax.problems.hyper_cleaning import HyperCleaning

MEAN, DEVIATION = 0.1307, 0.3081  # of the training pixels in [0, 1]


def mnist(
    noise: float = 0.1, *, train: int = 20_000, trusted: int = 5_000, test: int = 10_000, seed: int = 0
) -> HyperCleaning:
    """Return the paper's hyper-cleaning task: the first ``train`` images with a fraction ``noise`` of wrong
    labels, the next ``trusted`` ones clean, and ``test`` of the test images; pixels normalised."""
    images, labels = (_read(f"train-{part}") for part in ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"))
    test_images, test_labels = (_read(f"t10k-{part}") for part in ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"))
    if not (train >= 1 and trusted >= 1 and train + trusted <= len(images)):
        raise ValueError(
            f"MNIST has {len(images)} training images; train = {train} and trusted = {trusted} must be at least 1 "
            "and fit into them."
        )
    end = train + trusted
    return cleaning_task(
        (_pixels(images[:train]), labels[:train].astype(np.int32)),
        (_pixels(images[train:end]), labels[train:end].astype(np.int32)),
        (_pixels(test_images[:test]), test_labels[:test].astype(np.int32)),
        noise=noise,
        seed=seed,
    )


def _pixels(images: np.ndarray) -> np.ndarray:
    return ((images.reshape(len(images), -1) / 255 - MEAN) / DEVIATION).astype(np.float32)


def _read(name: str) -> np.ndarray:
    """Return the array of an IDX file: two zero bytes, a type, the number of axes, their lengths, the data."""
    folder = os.environ.get("BILAX_DATA_DIR")
    if not folder:
        raise FileNotFoundError(f"set BILAX_DATA_DIR to a folder that holds mnist/{name}.")
    path = Path(folder) / "mnist" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; put MNIST's {name} there.")
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if content[:3] != b"\x00\x00\x08" or values.size != shape.prod():
        raise ValueError(f"{path} is not a whole IDX file of bytes; replace it.")
    return values.reshape(shape)
