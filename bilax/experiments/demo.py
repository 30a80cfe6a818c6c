"""The demo: find the wrong labels among handwritten digits, and learn in spite of them.

Three in ten digits are labelled as the next one, and a hundred were looked at again. A mistake that follows a rule is
what a classifier learns if it believes the labels, and what cross-validation cannot see, because each part of the data
makes the same mistake; a hundred digits are too few to learn from alone. Bilevel methods use both.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilax.algorithms import MRBO, VRBO
from bilax.datasets import digits
from bilax.oracle import Counts
from bilax.problems import HyperCleaning, hyper_cleaning
from bilax.problems.hyper_cleaning import auroc
from bilax.results import Result
from bilax.running.solve import solve
from bilax.storage.files import replacing

NOISE, TRAIN, TRUSTED, C, SEEDS = 0.3, 1000, 100, 0.001, 3

# An outer step of 0.1 would do nothing here: the hypergradient of one of n sample weights is about 1/n of that of
# a shared parameter, so outer steps are of the order of n. eta="auto" is the default of both methods.
METHODS = {
    "MRBO, weights": (MRBO(gamma=300, lam=1, Q=5, S=100), 2000),
    "VRBO, weights": (VRBO(alpha=100, beta=0.1, m=10, q=3, Q=5, S1=500, S2=100), 400),
}
CLEANER = "HyperCleaner"
STEPS = 500  # of it


class Row(NamedTuple):
    """A way to learn from such labels, on average over the seeds."""

    method: str
    test_accuracy: float
    auroc: float  # of telling wrong labels from right ones
    seconds: float
    counts: Counts | None


class Demo(NamedTuple):
    task: HyperCleaning  # of the first seed, like what follows
    rows: list[Row]
    results: dict[str, Result]
    quality: np.ndarray  # of each label, by HyperCleaner


def run_demo(seed: int = 0, announce: Callable[[str], None] = lambda text: None) -> Demo:
    """Learn from wrong labels in six ways, with several seeds."""
    found: list[list[Row]] = []
    kept: list[tuple[HyperCleaning, dict[str, Result], np.ndarray]] = []
    announce(
        f"{TRAIN} digits, {round(NOISE * TRAIN)} of them labelled as the next digit; {TRUSTED} trusted ones; "
        f"{SEEDS} seeds."
    )
    for one in range(seed, seed + SEEDS):
        announce(f"seed {one} ...")
        task = _task(one)
        rows, results = [_plain(task), _trusted_only(task), _cross_validated(task)], {}
        for name, (algorithm, steps) in METHODS.items():
            result = solve(hyper_cleaning(task, C), algorithm, steps=steps, seed=one)
            last = result.history[-1]
            results[name] = result
            rows.append(Row(name, last["test_accuracy"], last["auroc"], result.seconds, result.counts))
        row, quality = _cleaned(task, one)
        found.append([*rows, row])
        kept.append((task, results, quality))
    return Demo(kept[0][0], [_mean(rows) for rows in zip(*found, strict=True)], *kept[0][1:])


def _task(seed: int) -> HyperCleaning:
    task = digits(0.0, train=TRAIN, trusted=TRUSTED, seed=seed)
    wrong = np.random.default_rng(seed).permutation(TRAIN)[: round(NOISE * TRAIN)]
    labels = np.array(task.labels)
    labels[wrong] = (labels[wrong] + 1) % task.classes
    return task._replace(labels=labels)


def _mean(rows: tuple[Row, ...]) -> Row:
    accuracy, score, seconds = np.mean([(row.test_accuracy, row.auroc, row.seconds) for row in rows], axis=0).tolist()
    return Row(rows[0].method, accuracy, score, seconds, rows[0].counts)


def _model(n: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    # sklearn's C is 1 / (2 C n), because it multiplies the sum of the losses, beside half the squared norm.
    return LogisticRegression(C=1 / (2 * C * n), fit_intercept=False, max_iter=10_000)


def _row(name: str, task: HyperCleaning, chances: np.ndarray, accuracy: float, tic: float) -> Row:
    given = chances[np.arange(TRAIN), task.labels]
    return Row(name, accuracy, auroc(-given, task.corrupted), time.perf_counter() - tic, None)


def _everything(task: HyperCleaning) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([task.features, task.trusted_features]), np.concatenate([task.labels, task.trusted_labels])


def _plain(task: HyperCleaning) -> Row:
    tic, (X, y) = time.perf_counter(), _everything(task)
    model = _model(len(y)).fit(X, y)
    score = model.score(task.test_features, task.test_labels)
    return _row("all labels as given", task, model.predict_proba(task.features), score, tic)


def _trusted_only(task: HyperCleaning) -> Row:
    tic = time.perf_counter()
    model = _model(TRUSTED).fit(task.trusted_features, task.trusted_labels)
    chances = np.zeros((TRAIN, task.classes))
    chances[:, model.classes_] = model.predict_proba(task.features)
    return _row("the trusted alone", task, chances, model.score(task.test_features, task.test_labels), tic)


def _cross_validated(task: HyperCleaning) -> Row:
    """Rank by five-fold cross-validated confidence; leave as many as are wrong out, which nobody knows, and fit."""
    from sklearn.model_selection import cross_val_predict

    tic, (X, y) = time.perf_counter(), _everything(task)
    chances = np.asarray(cross_val_predict(_model(len(y)), X, y, cv=5, method="predict_proba"))[:TRAIN]
    order = np.argsort(chances[np.arange(TRAIN), task.labels])
    left = np.concatenate([order[task.corrupted.sum() :], np.arange(TRAIN, len(y))])
    model = _model(len(left)).fit(X[left], y[left])
    return _row("cross-validation", task, chances, model.score(task.test_features, task.test_labels), tic)


def _cleaned(task: HyperCleaning, seed: int) -> tuple[Row, np.ndarray]:
    from bilax.sklearn import HyperCleaner

    tic = time.perf_counter()
    model = HyperCleaner(random_state=seed, steps=STEPS, progress=False)
    model.fit(task.features, task.labels, X_trusted=task.trusted_features, y_trusted=task.trusted_labels)
    score = model.score(task.test_features, task.test_labels)
    quality = np.asarray(model.label_quality_)
    found = auroc(-quality, task.corrupted)
    seconds = time.perf_counter() - tic - model.diagnostics_["compile seconds"]
    return Row(CLEANER, float(score), found, seconds, model.counts_), quality


def picture(demo: Demo, path: Path) -> None:
    """Draw how well each way did, the chances that labels are right, and the worst of them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    blue, orange = "#2b6cb0", "#dd6b20"
    style: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "axes.titlesize": 11}
    with plt.rc_context(style):
        figure = plt.figure(figsize=(13, 4.2), layout="constrained")
        parts: Any = figure.subfigures(1, 3, width_ratios=[1.25, 0.9, 0.95])
        curves, weights, gallery = parts

        axis = curves.subplots()
        names = [row.method for row in demo.rows]
        for values, colour, shift, label in (
            ([row.test_accuracy for row in demo.rows], blue, 0.2, "accuracy on test digits"),
            ([row.auroc for row in demo.rows], orange, -0.2, "AUROC of finding wrong labels"),
        ):
            places = np.arange(len(names)) * -1.0 + shift
            axis.barh(places, values, height=0.36, color=colour, alpha=0.85, label=label)
            for place, value in zip(places, values, strict=True):
                axis.text(value, place, f" {value:.3f}", va="center", fontsize=8)
        axis.set_yticks(-np.arange(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=9)
        axis.set(title=f"Three in ten labels wrong, {TRUSTED} trusted", xlim=(0.6, 1.06))
        axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.35, -0.08), fontsize=8)

        axis = weights.subplots()
        wrong = demo.task.corrupted
        bins = np.linspace(0, 1, 26)
        axis.hist(demo.quality[~wrong], bins, color=blue, alpha=0.75, label=f"right label ({(~wrong).sum()})")
        axis.hist(demo.quality[wrong], bins, color=orange, alpha=0.75, label=f"wrong label ({wrong.sum()})")
        axis.set(title="HyperCleaner: the chance that a label is right", xlabel="chance", ylabel="digits")
        axis.legend(frameon=False, loc="upper center")

        gallery.suptitle("The worst labels: given → true", fontsize=11)
        for axis, i in zip(gallery.subplots(3, 5).flat, np.argsort(demo.quality, kind="stable"), strict=False):
            axis.imshow(demo.task.features[i, :-1].reshape(8, 8), cmap="gray_r")
            given, true = demo.task.labels[i], demo.task.true_labels[i]
            axis.set_title(f"{given} → {true}", fontsize=9, color=orange if given != true else blue, pad=2)
            axis.axis("off")
        with replacing(path) as file:
            figure.savefig(file, dpi=110, format="png")
        plt.close(figure)
