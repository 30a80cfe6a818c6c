"""MNIST, from the four canonical IDX files in ``BILAX_DATA_DIR/mnist`` or in the user's cache."""

import gzip
import math
import struct
import zlib

import numpy as np

from bilax.datasets.split import cleaning_task
from bilax.datasets.store import RemoteFile, fetch
from bilax.problems.hyper_cleaning import HyperCleaning

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
FILES = (
    RemoteFile(
        "train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    RemoteFile(
        "t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    RemoteFile("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
LARGEST = 1100  # times its own size is what a gzip file can hold
MEAN, DEVIATION = 0.1307, 0.3081  # of the training pixels in [0, 1]


def mnist(
    noise: float = 0.1, *, train: int = 20_000, trusted: int = 5_000, test: int = 10_000, seed: int = 0
) -> HyperCleaning:
    """Return the paper's hyper-cleaning task, of MNIST; pixels normalised.

    The files (12 MB) are downloaded once, unless ``BILAX_DATA_DIR`` names a folder that holds them.

    Args:
      noise: the share of the training labels that are wrong.
      train: the number of images to train on, the first of MNIST.
      trusted: the number of images whose labels are right, for the outer loss: the next ones.
      test: how many of the test images to test on.
      seed: decides which labels are wrong.

    Returns:
      A `HyperCleaning`, for `bilax.problems.hyper_cleaning`.

    >>> data = mnist(0.1, train=1_000, trusted=200)
    >>> data.features.shape, int(data.corrupted.sum()), data.test_labels.shape
    ((1000, 785), 100, (10000,))
    """
    images, labels, test_images, test_labels = read_mnist()
    if not (train >= 1 and trusted >= 1 and train + trusted <= len(images)):
        raise ValueError(
            f"MNIST has {len(images)} training images; train = {train} and trusted = {trusted} must be at least 1 "
            "and fit into them."
        )
    if not 1 <= test <= len(test_images):
        raise ValueError(f"MNIST has {len(test_images)} test images; test = {test} must be from 1 to that.")
    end = train + trusted
    return cleaning_task(
        (_pixels(images[:train]), labels[:train].astype(np.int32)),
        (_pixels(images[train:end]), labels[train:end].astype(np.int32)),
        (_pixels(test_images[:test]), test_labels[:test].astype(np.int32)),
        noise=noise,
        seed=seed,
    )


def read_mnist() -> tuple[np.ndarray, ...]:
    """Return the images and labels to train on, and those to test with, as they are stored."""
    return tuple(_read(file) for file in FILES)


def _pixels(images: np.ndarray) -> np.ndarray:
    return ((images.reshape(len(images), -1) / 255 - MEAN) / DEVIATION).astype(np.float32)


def _read(file: RemoteFile) -> np.ndarray:
    """Return the array of an IDX file: two zero bytes, a type, the number of axes, their lengths, the data."""
    path = fetch(file, "mnist", MIRRORS)
    try:
        with gzip.open(path) as stream:
            zeros, kind, axes = struct.unpack(">HBB", stream.read(4))
            shape = struct.unpack(f">{axes}i", stream.read(4 * axes))
            size = math.prod(shape)
            if (zeros, kind) != (0, 8) or any(length < 0 for length in shape) or size > LARGEST * path.stat().st_size:
                raise ValueError(f"its header promises an array of the shape {shape} and the type {kind}")
            content = stream.read(size + 1)
        if len(content) != size:
            raise ValueError(f"it holds other than the {size:,} bytes that its header promises")
        return np.frombuffer(content, np.uint8).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} is not a file of MNIST: {error}.") from None
