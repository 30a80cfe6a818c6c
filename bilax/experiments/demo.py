"""The demo: find the wrong labels among handwritten digits with MRBO and VRBO."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bilax.algorithms import MRBO, VRBO
from bilax.datasets import digits
from bilax.oracle import Counts
from bilax.problems import HyperCleaning, hyper_cleaning
from bilax.results import Result
from bilax.running.solve import solve
from bilax.storage.files import replacing

NOISE, TRAIN, TRUSTED, C = 0.4, 1000, 200, 0.001

# An outer step of 0.1 would do nothing here: the hypergradient of one of n sample weights is about 1/n of that of
# a shared parameter, so outer steps are of the order of n. eta="auto" is the default of both methods.
METHODS = {
    "MRBO": (MRBO(gamma=300, lam=1, Q=5, S=100), 2000),
    "VRBO": (VRBO(alpha=100, beta=0.1, m=10, q=3, Q=5, S1=500, S2=100), 400),
}


class Row(NamedTuple):
    method: str
    train_loss: float  # on the true labels of the training digits
    test_accuracy: float
    auroc: float  # of the weights, in telling wrong labels from right ones
    seconds: float
    counts: Counts | None


class Demo(NamedTuple):
    task: HyperCleaning
    rows: list[Row]
    results: dict[str, Result]


def run_demo(seed: int = 0, announce: Callable[[str], None] = lambda text: None) -> Demo:
    """Solve the task by plain training and by both methods."""
    task = digits(NOISE, train=TRAIN, trusted=TRUSTED, seed=seed)
    problem = hyper_cleaning(task, C)
    announce(f"{TRAIN} digits, {task.corrupted.sum()} of them with a wrong label; {TRUSTED} trusted ones.")
    rows = [
        _trained("all labels", problem, task.features, task.labels),
        _trained("trusted only", problem, task.trusted_features, task.trusted_labels),
    ]
    results = {}
    for name, (algorithm, steps) in METHODS.items():
        announce(f"{name} ...")
        result = solve(problem, algorithm, steps=steps, seed=seed)
        results[name] = result
        last = result.history[-1]
        rows.append(Row(name, last["train_loss"], last["test_accuracy"], last["auroc"], result.seconds, result.counts))
    return Demo(task, rows, results)


def _trained(name: str, problem, features: np.ndarray, labels: np.ndarray) -> Row:
    """Minimise the same regularised loss without sample weights, to convergence."""
    from sklearn.linear_model import LogisticRegression

    tic = time.perf_counter()
    # sklearn's C is 1 / (2 C n), because it multiplies the sum of the losses, beside half the squared norm.
    model = LogisticRegression(C=1 / (2 * C * len(labels)), fit_intercept=False, max_iter=10_000)
    model.fit(features, labels)
    seconds = time.perf_counter() - tic
    y = jnp.zeros_like(problem.y0).at[model.classes_].set(model.coef_)
    measured = problem.metrics(problem.x0, y)
    return Row(name, float(measured["train_loss"]), float(measured["test_accuracy"]), np.nan, seconds, None)


def picture(demo: Demo, path: Path) -> None:
    """Draw the curves, the weights, and the digits that MRBO trusts least."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    blue, orange, grey = "#2b6cb0", "#dd6b20", "#718096"
    style: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "axes.titlesize": 11}
    with plt.rc_context(style):
        figure = plt.figure(figsize=(12, 3.9), layout="constrained")
        parts: Any = figure.subfigures(1, 3, width_ratios=[1, 1, 1.05])
        curves, weights, gallery = parts

        axis = curves.subplots()
        for (name, result), colour in zip(demo.results.items(), (blue, orange), strict=True):
            history = result.history
            axis.plot(history.column("seconds"), history.column("train_loss"), color=colour, label=name, lw=2)
        for row, dashes in zip(demo.rows[:2], ("--", ":"), strict=True):
            axis.axhline(row.train_loss, color=grey, ls=dashes, lw=1.2, label=f"plain, {row.method}")
        axis.set(title="Loss on the training digits' true labels", xlabel="seconds", yscale="log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
        axis.legend(frameon=False)

        axis = weights.subplots()
        learned = 1 / (1 + np.exp(-np.asarray(demo.results["MRBO"].x)))
        wrong = demo.task.corrupted
        bins = np.linspace(0, 1, 26)
        axis.hist(learned[~wrong], bins, color=blue, alpha=0.75, label=f"right label ({(~wrong).sum()})")
        axis.hist(learned[wrong], bins, color=orange, alpha=0.75, label=f"wrong label ({wrong.sum()})")
        auroc = next(row.auroc for row in demo.rows if row.method == "MRBO")
        axis.set(title=f"Weights learned by MRBO (AUROC {auroc:.3f})", xlabel="weight", ylabel="digits")
        axis.legend(frameon=False, loc="upper center")

        gallery.suptitle("The digits MRBO trusts least: given → true label", fontsize=11)
        for axis, i in zip(gallery.subplots(3, 5).flat, np.argsort(learned, kind="stable"), strict=False):
            axis.imshow(demo.task.features[i, :-1].reshape(8, 8), cmap="gray_r")
            given, true = demo.task.labels[i], demo.task.true_labels[i]
            axis.set_title(f"{given} → {true}", fontsize=9, color=orange if given != true else blue, pad=2)
            axis.axis("off")
        with replacing(path) as file:
            figure.savefig(file, dpi=110, format="png")
        plt.close(figure)
