"""From chances of classes to what a person wants to know: which labels are wrong, how many, and what they should be."""

from typing import NamedTuple

import numpy as np

DRAWS = 200  # of the bootstrap


class Estimate(NamedTuple):
    """How many labels are wrong: the estimate and an interval."""

    wrong: float
    low: float
    high: float


def posterior(chances: np.ndarray, transition: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return each row's chances of the true class, given its features and its label.

    ``chances[i, k]`` is that of class k by the features alone, ``transition[k, l]`` that class k is labelled l.

    >>> posterior(np.array([[0.5, 0.5]]), np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0])).round(2).tolist()
    [[0.75, 0.25]]
    """
    joint = chances * transition[:, given].T
    return joint / np.maximum(joint.sum(1, keepdims=True), 1e-300)


def how_many(
    chances: np.ndarray,
    given: np.ndarray,
    quality: np.ndarray,
    trusted_chances: np.ndarray,
    trusted_labels: np.ndarray,
    rng: np.random.Generator,
) -> Estimate:
    """Return how many labels are wrong.

    Two ways that err differently. The first trusts the regressions' chances: each row is wrong with one minus its
    quality. The second trusts only that they treat trusted rows like others of the same class: what they say on average
    of each class is known from the trusted rows, and the joint distribution of true and given classes that would make
    what they say of the labelled rows is found from it. The interval comes from repeating the second one on trusted and
    labelled rows drawn anew, and is widened to hold the first.
    """
    n, classes = chances.shape
    first = float(np.sum(1 - quality))
    said = np.stack(
        [chances[given == label].sum(0) if np.any(given == label) else np.zeros(classes) for label in range(classes)]
    )
    known = [np.flatnonzero(trusted_labels == label) for label in range(classes)]
    present = [label for label in range(classes) if len(known[label])]
    if len(present) < 2:
        return Estimate(first, 0.0, float(n))
    draws = []
    for _ in range(DRAWS):
        of_class = np.eye(classes)
        for label in present:
            of_class[label] = trusted_chances[rng.choice(known[label], len(known[label]))].mean(0)
        draws.append(n - _agreeing(said, of_class))
    second, low, high = np.quantile(draws, [0.5, 0.025, 0.975])
    sampling = 2 * np.sqrt(max(first, 1.0) * max(n - first, 0.0) / n)
    middle = float(np.clip((first + second) / 2, 0, n))
    ends = min(first, low) - sampling, max(first, high) + sampling
    return Estimate(middle, float(np.clip(ends[0], 0, n)), float(np.clip(ends[1], 0, n)))


def _agreeing(said: np.ndarray, of_class: np.ndarray) -> float:
    """Return how many rows have the label of their class.

    ``said[l]`` sums the chances of the rows labelled l; ``of_class[k]`` is their mean over rows of class k. The numbers
    of rows of each class among those labelled l, none negative, are fitted to it.
    """
    from scipy.optimize import nnls

    right = 0.0
    for label, total in enumerate(said):
        size = total.sum()
        if size > 0:
            numbers = nnls(of_class.T, total)[0]
            right += size * numbers[label] / max(numbers.sum(), 1e-300)
    return right
