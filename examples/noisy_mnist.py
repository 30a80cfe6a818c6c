"""Noisy MNIST from start to finish: 20,000 images, three in ten labelled as the next digit, 500 trusted.

python examples/noisy_mnist.py [--picture FILE]
"""

import argparse
import time

import numpy as np
from sklearn.linear_model import LogisticRegression

from bilax.datasets import mnist
from bilax.problems.hyper_cleaning import auroc
from bilax.sklearn import HyperCleaner

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--picture", help="draw a picture into this file")
arguments = parser.parse_args()

task = mnist(0.0, train=20_000, trusted=500)
wrong = np.random.default_rng(0).random(20_000) < 0.3
given = np.where(wrong, (task.true_labels + 1) % 10, task.true_labels)

tic = time.perf_counter()
cleaner = HyperCleaner(random_state=0)
cleaner.fit(task.features, given, X_trusted=task.trusted_features, y_trusted=task.trusted_labels)
print(f"{time.perf_counter() - tic:.0f} s, {cleaner.n_iter_} steps of MRBO")

few = LogisticRegression(max_iter=300).fit(task.trusted_features, task.trusted_labels)
chance = few.predict_proba(task.features)[np.arange(20_000), given]
print(f"wrong labels: {cleaner.estimated_noise_} estimated, {wrong.sum()} truly")
ours, theirs = auroc(-cleaner.label_quality_, wrong), auroc(-chance, wrong)
print(f"AUROC of finding them: {ours:.3f}; by the trusted images alone {theirs:.3f}")
test = task.test_features, task.test_labels
print(f"test accuracy: {cleaner.score(*test):.3f}; by the trusted images alone {few.score(*test):.3f}")

if arguments.picture:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 5, figsize=(4, 3), layout="constrained")
    for axis, worst in zip(axes.flat, cleaner.suspicious_, strict=False):
        axis.imshow(task.features[worst, :784].reshape(28, 28), cmap="gray_r")
        axis.set_title(f"given {given[worst]}", fontsize=8)
        axis.axis("off")
    figure.savefig(arguments.picture, dpi=100)
