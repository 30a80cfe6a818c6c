"""Embeddings of any model as features: here of a small network that was trained on other digits.

python examples/embeddings.py [--picture FILE]
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from bilax.sklearn import HyperCleaner

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--picture", help="draw a picture into this file")
arguments = parser.parse_args()

pixels, label = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(label))
pixels, label = pixels[order] / 16, label[order]

# The network knows whether a digit is even, not which one it is.
network = MLPClassifier((64,), max_iter=60, early_stopping=True, random_state=0).fit(pixels[:600], label[:600] % 2)
embedded = np.maximum(pixels @ network.coefs_[0] + network.intercepts_[0], 0)[600:]

label = label[600:]
rng = np.random.default_rng(1)
wrong = rng.random(len(label)) < 0.3
given = np.where(wrong, (label + 1) % 10, label)
trusted = np.arange(len(label)) < 150
given[trusted], wrong[trusted] = label[trusted], False

cleaner = HyperCleaner(random_state=0).fit(embedded, given, trusted=trusted)
quality, wrong = cleaner.label_quality_[~trusted], wrong[~trusted]
found = roc_auc_score(wrong, -quality)
print(f"AUROC of finding wrong labels: {found:.3f}; estimated: {cleaner.estimated_noise_}, truly {wrong.sum()}")

if arguments.picture:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
    axes.hist([quality[~wrong], quality[wrong]], 20, label=["right labels", "wrong labels"], stacked=True)
    axes.set(xlabel="the chance that a label is right", ylabel="digits")
    axes.legend(frameon=False)
    figure.savefig(arguments.picture, dpi=100)
