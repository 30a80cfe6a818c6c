"""Embeddings of any model as features: here of a small network that was trained on other digits.

python examples/embeddings.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from bilax.sklearn import HyperCleaner

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
found = roc_auc_score(wrong[~trusted], -cleaner.label_quality_[~trusted])
print(f"AUROC of finding wrong labels: {found:.3f}; estimated: {cleaner.estimated_noise_}, truly {wrong.sum()}")
