"""A penalty for every feature: bilax.sklearn.BilevelLogisticRegression and what people use today.

python benchmarks/penalties.py [--quick] [--seeds N] [--only WORD] [--out FOLDER]

Every cell is kept as soon as it is there: the same command goes on where it was stopped. All are logistic regressions
on the same standardised features (TF-IDF as it is):

- C = 1: scikit-learn's default, one penalty for all;
- one penalty: LogisticRegressionCV, ten penalties, five folds: 50 fits;
- search: black-box search with as many fits: ten random draws of a penalty for every feature, five folds each;
- l1: LogisticRegressionCV with the l1 penalty, where scikit-learn has a fast solver for it (two classes).
"""

import bz2
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import noise
import numpy as np
from cells import Cells, arguments, seeds, table
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_score


class Table(NamedTuple):
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    useless: np.ndarray | None = None  # marks the features that have nothing to do with the label


def wide(seed, rows=1_000, features=2_000, useful=40, classes=2):
    """Normal features, of which a few matter; independent."""
    rng = np.random.default_rng(seed)
    matters = rng.permutation(features)[:useful]
    X = rng.normal(size=(rows + 5_000, features)).astype(np.float32)
    W = rng.normal(size=(useful, classes)) / np.sqrt(useful) * 3
    y = (X[:, matters] @ W + rng.gumbel(size=(len(X), classes))).argmax(1)
    useless = np.ones(features, bool)
    useless[matters] = False
    return Table(X[:rows], y[:rows], X[rows:], y[rows:], useless)


def noisy_features(table, seed, more):
    """Add features that have nothing to do with the label: copies of others, each shuffled."""
    rng = np.random.default_rng([seed, 7])
    chosen = rng.integers(table.X.shape[1], size=more)

    def wider(X):
        return np.concatenate([X, np.stack([rng.permutation(X[:, j]) for j in chosen], axis=1)], axis=1)

    useless = np.arange(table.X.shape[1] + more) >= table.X.shape[1]
    return Table(wider(table.X), table.y, wider(table.X_test), table.y_test, useless)


def covtype(seed, rows=50_000):
    cut = noise.covtype(0, np.random.default_rng(seed))
    return Table(cut.X[:rows], cut.y[:rows], cut.X_test, cut.y_test)


def newsgroups(seed):
    cut = noise.newsgroups(0, np.random.default_rng(seed))
    return Table(cut.X, cut.y, cut.X_test, cut.y_test)


def ijcnn1(seed, rows=None):
    folder = Path(os.environ["BILAX_DATA_DIR"]) / "ijcnn1"
    parts = []
    for name in ("tr", "t"):
        with bz2.open(folder / f"ijcnn1.{name}.bz2") as file:
            X, y = load_svmlight_file(file, n_features=22)
        parts += [X.toarray().astype(np.float32), (y > 0).astype(int)]
    X, y, X_test, y_test = parts
    chosen = np.random.default_rng(seed).permutation(len(X))[:rows]
    mean, deviation = X.mean(0), X.std(0)
    return Table((X[chosen] - mean) / deviation, y[chosen], (X_test - mean) / deviation, y_test)


DATA = {
    "wide, 1,000 x 2,000, 40 useful": wide,
    "wide, 5 classes, 2,000 x 500, 20 useful": lambda seed: wide(seed, 2_000, 500, 20, 5),
    "ijcnn1": ijcnn1,
    "ijcnn1, 500 rows, 200 useless": lambda seed: noisy_features(ijcnn1(seed, 500), seed, 200),
    "covtype": covtype,
    "covtype, 2,000 rows, 200 useless": lambda seed: noisy_features(covtype(seed, 2_000), seed, 200),
    "20 Newsgroups": newsgroups,
}
QUICK = ("wide, 5 classes, 2,000 x 500, 20 useful", "ijcnn1, 500 rows, 200 useless")
CS = np.logspace(-4, 3, 10)


def default(table, seed):
    return LogisticRegression(max_iter=300).fit(table.X, table.y), None


def one_penalty(table, seed):
    how: Any = {"Cs": CS, "cv": 5, "max_iter": 300, "scoring": "neg_log_loss"}
    return LogisticRegressionCV(**how).fit(table.X, table.y), None


def l1(table, seed):
    if len(np.unique(table.y)) > 2:
        return None
    how: Any = {"Cs": CS, "cv": 5, "max_iter": 300, "scoring": "neg_log_loss", "solver": "liblinear"}
    model = LogisticRegressionCV(l1_ratios=[1.0], **how).fit(table.X, table.y)
    return model, -np.abs(model.coef_).max(0)


def search(table, seed):
    rng = np.random.default_rng([seed, 3])
    best = (-np.inf, None)
    for _ in range(10):
        scale = np.exp(rng.uniform(-4, 4) + rng.normal(size=table.X.shape[1]) * rng.uniform(0, 3)) ** 0.5
        weighted = _weighted(table.X, scale)
        score = cross_val_score(
            LogisticRegression(max_iter=300), weighted, table.y, cv=5, scoring="neg_log_loss"
        ).mean()
        best = max(best, (score, scale), key=lambda one: one[0])
    model = LogisticRegression(max_iter=300).fit(_weighted(table.X, best[1]), table.y)
    model.coef_ = _weighted(model.coef_, best[1])
    return model, -best[1]


def ours(table, seed):
    from bilax.sklearn import BilevelLogisticRegression

    model = BilevelLogisticRegression(random_state=seed).fit(table.X, table.y)
    return model, model.shrinkage_


RIVALS = {"C = 1": default, "one penalty": one_penalty, "l1": l1, "search": search, "bilevel": ours}


def _weighted(X, scale):
    return X.multiply(scale).tocsr() if hasattr(X, "tocsr") else X * scale


def measure(rival, data, seed):
    table = DATA[data](seed)
    tic = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, FutureWarning))
        found = RIVALS[rival](table, seed)
    if found is None:
        return None
    model, useless = found
    row = {"seconds": time.perf_counter() - tic}
    row["loss"] = float(log_loss(table.y_test, model.predict_proba(table.X_test)))
    row["accuracy"] = float(np.mean(model.predict(table.X_test) == table.y_test))
    if table.useless is not None:
        useless = -np.abs(model.coef_).max(0) if useless is None else useless
        row["useless"] = float(roc_auc_score(table.useless, useless))
    return row


FORMATS = {"loss": ".3f", "accuracy": ".3f", "useless": ".3f", "seconds": ".0f"}


def markdown(rows):
    """Return a table of all cells: test loss / test accuracy / AUROC of finding useless features / seconds."""

    def means(there):
        present = [key for key in FORMATS if key in there[0]]
        return " / ".join(format(np.mean([row[key] for row in there]), FORMATS[key]) for key in present)

    rows = sorted(rows, key=lambda row: list(DATA).index(row["data"]))
    return f"{seeds(rows, ('rival', 'data'))}\n\n{table(('data',), rows, {'rival': list(RIVALS)}, means)}"


def main():
    options, path = arguments(__doc__, "penalties", "two small tables, one seed", seeds=3)
    cells = [
        (rival, data, seed)
        for seed in range(options.seeds)
        for data in (QUICK if options.quick else DATA)
        for rival in RIVALS
        if any(options.only in word for word in (rival, data))
    ]
    kept = Cells(path, ("rival", "data", "seed"))
    kept.measure(cells, measure, FORMATS)
    print(markdown(kept.rows))


if __name__ == "__main__":
    main()
