"""The 1,797 handwritten digits (8 x 8 pixels) that come with scikit-learn."""

import numpy as np

from bilax.datasets.split import cleaning_task
from bilax.problems.hyper_cleaning import HyperCleaning


def digits(noise: float = 0.3, *, train: int = 1000, trusted: int = 297, seed: int = 0) -> HyperCleaning:
    """Return a hyper-cleaning task: ``train`` images of which a fraction ``noise`` has a wrong label,
    ``trusted`` clean ones, and the rest to test on. Pixels are scaled to mean 0 and deviation 1 over all."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the digits come with scikit-learn: pip install 'bilax[data]'.") from None
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    if not (train >= 1 and trusted >= 1 and train + trusted < len(labels)):
        raise ValueError(
            f"there are {len(labels)} digits; train = {train} and trusted = {trusted} must be at least 1 "
            "and leave some to test on."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order].astype(np.float32), labels[order].astype(np.int32)
    images = (images - images[:train].mean()) / images[:train].std()
    end = train + trusted
    parts = [(images[a:b], labels[a:b]) for a, b in ((0, train), (train, end), (end, len(labels)))]
    return cleaning_task(*parts, noise=noise, seed=seed)
