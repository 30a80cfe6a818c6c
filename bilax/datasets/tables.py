"""The data of the field's benchmark: ijcnn1, covtype, and MNIST with replaced labels, each with its split."""

import bz2
import gzip

import numpy as np

from bilax.datasets.mnist import read_mnist
from bilax.datasets.store import INSTALL, RemoteFile, fetch
from bilax.problems.split import Split

IJCNN1 = (
    RemoteFile("ijcnn1.tr.bz2", 964_465, "77a67b8333bb92fd9d93b67122c0bfbeefc8f80c6c818009d9aeabc3b7d3ccbd"),
    RemoteFile("ijcnn1.val.bz2", 429_604, "3b87f23e1d220cd812c6d03f9fa9758d44011ed13ae14fb19607390d9f6f4299"),
    RemoteFile("ijcnn1.t.bz2", 2_597_597, "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24"),
)
IJCNN1_MIRRORS = ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",)
COVTYPE = RemoteFile("covtype.data.gz", 11_240_694, "d9ee0a9505e98890bdc1a4b458340bb5d059698ff98b721e87160a4b565db877")
COVTYPE_MIRRORS = ("https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/",)


def ijcnn1() -> Split:
    """Return ijcnn1 as it is stored: 49,990 rows of 22 features to train on, 91,701 to validate; labels +1 and -1.

    >>> ijcnn1().features.shape
    (49990, 22)
    """
    X, y, X_val, y_val, X_test, y_test = (part for file in IJCNN1 for part in _svmlight(file))
    return Split(np.concatenate([X, X_val]), np.concatenate([y, y_val]), X_test, y_test)


def covtype(seed: int = 2442) -> Split:
    """Return covtype, standardised: a fifth of its 581,012 rows to test, a fifth of the rest to validate.

    Args:
      seed: decides the parts.

    Returns:
      A `Split` of 54 features in 7 classes.

    >>> [len(part) for part in covtype()[::2]]
    [371847, 92962, 116203]
    """
    path = fetch(COVTYPE, "covtype", COVTYPE_MIRRORS)
    with gzip.open(path, "rt") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int32)
    features, labels = table[:, :-1].astype(np.float64), table[:, -1] - 1
    order = np.random.RandomState(seed)
    test, rest = _cut(order, np.arange(len(labels)))
    validation, train = _cut(order, rest)
    mean, deviation = features[train].mean(0), features[train].std(0)
    scaled = ((features - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    return Split(*(part[rows] for rows in (train, validation, test) for part in (scaled, labels)))


def mnist_replaced(ratio: float, seed: int = 32) -> Split:
    """Return 20,000 and 5,000 images of MNIST, standardised; some of the first have a label by chance, which in one of
    ten cases is the right one.

    Args:
      ratio: the share of labels that are given by chance.
      seed: decides the images and the labels.

    Returns:
      A `Split` of 784 features in 10 classes.

    >>> data = mnist_replaced(0.5)
    >>> data.features.shape, data.validation_features.shape
    ((20000, 784), (5000, 784))
    """
    images, labels, test_images, test_labels = read_mnist()
    order = np.random.RandomState(seed)
    chosen = order.permutation(len(labels))
    train, validation = chosen[:20_000], chosen[20_000:25_000]
    replaced = order.rand(len(train)) < ratio
    given = labels[train].astype(np.int32)
    given[replaced] = order.randint(0, 10, size=len(train))[replaced]
    pixels = [
        part.reshape(len(part), -1).astype(np.float32) for part in (images[train], images[validation], test_images)
    ]
    mean, deviation = pixels[0].mean(0), pixels[0].std(0)
    scaled = [(part - mean) / np.where(deviation > 0, deviation, 1) for part in pixels]
    return Split(
        scaled[0], given, scaled[1], labels[validation].astype(np.int32), scaled[2], test_labels.astype(np.int32)
    )


def _cut(order: np.random.RandomState, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a fifth of the rows, rounded up, and the others, in an order by chance."""
    mixed = rows[order.permutation(len(rows))]
    fifth = -(-len(rows) // 5)
    return mixed[:fifth], mixed[fifth:]


def _svmlight(file: RemoteFile) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise ImportError(f"reading {file.name} needs scikit-learn: {INSTALL}.") from None
    with bz2.open(fetch(file, "ijcnn1", IJCNN1_MIRRORS)) as stream:
        features, labels = load_svmlight_file(stream, n_features=22)[:2]
    return features.toarray().astype(np.float32), np.sign(labels).astype(np.float32)
