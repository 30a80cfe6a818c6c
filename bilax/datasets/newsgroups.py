"""The 20 newsgroups as scikit-learn counts their words: 18,846 documents, 130,107 sparse features, 20 classes."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilax.datasets.store import INSTALL, folder, own_folder

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TEXTS = "20news-bydate_py3.pkz"  # scikit-learn reads the labels from this file
COUNTS = "20newsgroup_vectorized_py3.pkl"  # and the features from this one, which it makes from the texts
TRAINING, TEST, FEATURES, CLASSES = 11_314, 7_532, 130_107, 20


class Documents(NamedTuple):
    """Sparse rows of unit norm, without a bias feature, and their labels: to train, to validate and to test on.

    Attributes:
      features: to train on, one row per sample.
      labels: their labels.
      validation_features: for the outer loss.
      validation_labels: their labels.
      test_features: to test on.
      test_labels: their labels.
      classes: the number of classes; labels are numbers from 0.
    """

    features: "csr_array"
    labels: np.ndarray
    validation_features: "csr_array"
    validation_labels: np.ndarray
    test_features: "csr_array"
    test_labels: np.ndarray
    classes: int


def newsgroups(*, seed: int = 0) -> Documents:
    """Return the 20 newsgroups: two halves of the training documents, each with its share of every class, to train
    and to validate on, and all test documents.

    They are downloaded once (14 MB), unless ``BILAX_DATA_DIR`` names a folder that holds scikit-learn's ``sklearn/``.

    Args:
      seed: decides the halves.

    Returns:
      `Documents` of 130,107 features in 20 classes, for `bilax.problems.logistic`.

    >>> data = newsgroups()
    >>> data.features.shape, data.classes
    ((5657, 130107), 20)
    """
    try:
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise ImportError(f"the 20 newsgroups are read with scikit-learn: {INSTALL}.") from None
    (features, labels), test = _own() if own_folder() else _cached()
    sizes = (features.shape, test[0].shape)
    if sizes != ((TRAINING, FEATURES), (TEST, FEATURES)):
        raise ValueError(
            f"{folder('sklearn')} holds other data than the 20 newsgroups: found {sizes[0]} training and {sizes[1]} "
            f"test features, expected {(TRAINING, FEATURES)} and {(TEST, FEATURES)}. Replace {TEXTS} and {COUNTS}."
        )
    half, other = train_test_split(np.arange(TRAINING), test_size=0.5, stratify=labels, random_state=seed)
    return documents([(features[half], labels[half]), (features[other], labels[other]), test], CLASSES)


def documents(parts: Sequence[tuple[Any, np.ndarray]], classes: int) -> Documents:
    """Bring the three parts (training, validation, test) to one format, and lock the arrays."""
    from scipy.sparse import csr_array

    fields = []
    for matrix, labels in parts:
        features = csr_array(matrix, dtype=np.float32)
        features.sum_duplicates()  # puts the columns in order, which cannot be done once they are locked
        fields += [features, np.array(labels, np.int32)]
        for array in (features.data, features.indices, features.indptr, fields[-1]):
            array.setflags(write=False)
    return Documents(*fields, classes=classes)


def _own() -> Any:
    """Read the user's files, and touch nothing: scikit-learn would write the counts if only the texts were there."""
    place = folder("sklearn")
    missing = [name for name in (TEXTS, COUNTS) if not (place / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{place} lacks {' and '.join(missing)}. Run sklearn.datasets.fetch_20newsgroups_vectorized"
            "(data_home=...) where there is a network and copy the file there, "
            "or unset BILAX_DATA_DIR to have it downloaded into the user's cache."
        )
    try:
        return _load(place, download=False)
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(
            f"{TEXTS} or {COUNTS} in {place} cannot be read ({_short(error)}); expected scikit-learn's cached data. "
            "Replace them by what sklearn.datasets.fetch_20newsgroups_vectorized(data_home=...) writes."
        ) from error


def _cached() -> Any:
    """Read the cache and fill what it lacks. scikit-learn replaces broken texts; broken counts are deleted here."""
    place = folder("sklearn")
    try:
        try:
            return _load(place, download=True)
        except OSError:
            raise
        except Exception:  # a broken pickle can raise anything
            (place / COUNTS).unlink(missing_ok=True)
            return _load(place, download=True)
    except OSError as error:
        raise FileNotFoundError(
            f"{TEXTS} and {COUNTS} are not in {place} and scikit-learn could not fetch them ({_short(error)}). "
            "Try again when the network is there, or copy both files there from a machine on which "
            "sklearn.datasets.fetch_20newsgroups_vectorized(data_home=...) has run, "
            "or set BILAX_DATA_DIR to a folder that holds them in sklearn/."
        ) from error


def _load(place: Path, download: bool) -> Any:
    from sklearn.datasets import fetch_20newsgroups_vectorized

    with contextlib.redirect_stdout(sys.stderr):  # scikit-learn prints if it cannot read a file
        return [
            fetch_20newsgroups_vectorized(
                subset=subset, data_home=str(place), download_if_missing=download, return_X_y=True
            )
            for subset in ("train", "test")
        ]


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
