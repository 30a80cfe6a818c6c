"""HyperCleaner in a Pipeline, its settings chosen by GridSearchCV.

python examples/search_in_a_pipeline.py [--picture FILE]
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bilax.sklearn import HyperCleaner

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--picture", help="draw a picture into this file")
arguments = parser.parse_args()

X, true = load_wine(return_X_y=True)
rng = np.random.default_rng(0)
given = np.where(rng.random(len(true)) < 0.2, rng.integers(3, size=len(true)), true)

# In a search nothing but X and y is passed on, so each fit takes a part of the labels for trusted, and says so.
warnings.filterwarnings("ignore", message="no row is trusted")
pipeline = make_pipeline(StandardScaler(), PCA(), HyperCleaner(steps=100, random_state=0))
search = GridSearchCV(pipeline, {"pca__n_components": [3, 8]}, cv=3).fit(X, given)
print("chosen:", search.best_params_)
print(f"accuracy on the true labels: {search.score(X, true):.3f}")

if arguments.picture:
    import matplotlib.pyplot as plt

    shown, doubted = search.best_estimator_[:-1].transform(X)[:, :2], search.predict(X) != given
    figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
    axes.scatter(*shown.T, c=given, s=12, cmap="viridis")
    axes.scatter(*shown[doubted].T, s=60, facecolors="none", edgecolors="tab:red", label="another label is predicted")
    axes.set(xlabel="first component", ylabel="second component")
    axes.legend(frameon=False)
    figure.savefig(arguments.picture, dpi=100)
