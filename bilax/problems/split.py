"""A table of numbers, cut into parts."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Features and labels for training, validation and, where there is one, test.

    Attributes:
      features: to train on, one row per sample.
      labels: their labels.
      validation_features: for the outer loss.
      validation_labels: their labels.
      test_features: to test on; None where there is no such part.
      test_labels: their labels.
    """

    features: np.ndarray
    labels: np.ndarray
    validation_features: np.ndarray
    validation_labels: np.ndarray
    test_features: np.ndarray | None = None
    test_labels: np.ndarray | None = None
