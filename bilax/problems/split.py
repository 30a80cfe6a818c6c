"""A table of numbers, cut into parts."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Features and labels for training, validation and, where there is one, test."""

    features: np.ndarray
    labels: np.ndarray
    validation_features: np.ndarray
    validation_labels: np.ndarray
    test_features: np.ndarray | None = None
    test_labels: np.ndarray | None = None
