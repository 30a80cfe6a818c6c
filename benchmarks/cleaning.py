"""Finding wrong labels, and learning in spite of them: bilax.sklearn.HyperCleaner and what people use today.

python benchmarks/cleaning.py [--quick] [--seeds N] [--only WORD] [--out FOLDER]

Five tables, four kinds of wrong labels at three rates. Every cell is kept as soon as it is there: the same command goes
on where it was stopped. All rivals are logistic regressions on the same features, and all see the trusted samples:

- plain: fitted to all labels as given, ranked by its probability of the given label;
- trusted: fitted to the trusted samples alone;
- cv: the probability of the given label by five-fold cross-validation;
- cleanlab: its CleanLearning, with the same five folds.
"""

import time
import warnings
from importlib.util import find_spec

import numpy as np
import scipy.sparse
from cells import Cells, arguments, seeds, table
from noise import DATA, KINDS, RATES, noisy_table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict

MODEL = LogisticRegression(max_iter=300)
SLOW = {"cv": 3, "cleanlab": 3}  # seeds, at most, of rivals that fit many models
QUICK = {"digits, 100 trusted"}


def given(probability, classes, labels):
    """Return each sample's probability of its given label; 0 for a class that the model has not seen."""
    place = {label: j for j, label in enumerate(classes)}
    return np.array(
        [row[place[label]] if label in place else 0.0 for row, label in zip(probability, labels, strict=True)]
    )


def together(table):
    stack = scipy.sparse.vstack if scipy.sparse.issparse(table.X) else np.concatenate
    return stack([table.X, table.X_trusted]), np.concatenate([table.y, table.y_trusted])


def plain(table, seed):
    model = clone(MODEL).fit(*together(table))
    return given(model.predict_proba(table.X), model.classes_, table.y), model.score(table.X_test, table.y_test)


def trusted(table, seed):
    model = clone(MODEL).fit(table.X_trusted, table.y_trusted)
    return given(model.predict_proba(table.X), model.classes_, table.y), model.score(table.X_test, table.y_test)


def cv(table, seed):
    X, y = together(table)
    probability = cross_val_predict(clone(MODEL), X, y, cv=5, method="predict_proba")
    return given(probability, np.unique(y), y)[: len(table.y)], None  # it leaves no model behind


def cleanlab(table, seed):
    from cleanlab.classification import CleanLearning

    X, y = together(table)
    model = CleanLearning(clone(MODEL), seed=seed, cv_n_folds=5).fit(X, y)
    quality = model.get_label_issues()["label_quality"].to_numpy()
    return quality[: len(table.y)], float(np.mean(model.predict(table.X_test) == table.y_test))


def ours(table, seed):
    from bilax.sklearn import HyperCleaner

    model = HyperCleaner(random_state=seed).fit(table.X, table.y, X_trusted=table.X_trusted, y_trusted=table.y_trusted)
    told = {"noise": [float(number) for number in model.estimated_noise_], "steps": int(model.n_iter_)}
    return model.label_quality_, model.score(table.X_test, table.y_test), told


RIVALS = {"plain": plain, "trusted": trusted, "cv": cv, "cleanlab": cleanlab, "HyperCleaner": ours}


def measure(name, data, kind, rate, seed):
    table, true = noisy_table(data, kind, rate, seed)
    tic = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        quality, accuracy, *told = RIVALS[name](table, seed)
    seconds = time.perf_counter() - tic
    wrong = table.y != true
    return {
        "auroc": float(roc_auc_score(wrong, -quality)), "precision": float(average_precision_score(wrong, -quality)),
        "accuracy": None if accuracy is None else float(accuracy), "seconds": seconds, "wrong": int(wrong.sum()),
        **(told[0] if told else {}),
    }  # fmt: skip


def markdown(rows):
    """Return how many seeds there are, and a table of all cells: AUROC of finding wrong labels / test accuracy, means
    over the seeds."""

    def means(there):
        parts = [np.mean([row["auroc"] for row in there])]
        if there[0]["accuracy"] is not None:
            parts.append(np.mean([row["accuracy"] for row in there]))
        return " / ".join(f"{part:.3f}" for part in parts)

    return f"{seeds(rows, ('rival', 'data', 'kind', 'rate'), SLOW)}\n\n{_cells(rows, means)}"


def details(rows):
    """Return a table of all cells: average precision of finding wrong labels / seconds, means over the seeds."""

    def means(there):
        precision, seconds = (np.mean([row[name] for row in there]) for name in ("precision", "seconds"))
        return f"{precision:.3f} / {seconds:.{0 if seconds >= 10 else 2}f}"

    return _cells(rows, means)


def _cells(rows, means):
    return table(("data", "kind", "rate"), sorted(rows, key=_place), {"rival": list(RIVALS)}, means)


def _place(row):
    return list(DATA).index(row["data"]), list(KINDS).index(row["kind"]), row["rate"], row["seed"]


def won(rows):
    """Return in how many cells HyperCleaner is best or tied: within 0.002 of the best AUROC, 0.005 of the accuracy."""
    cells = list(dict.fromkeys((row["data"], row["kind"], row["rate"]) for row in rows))
    counts = {"auroc": 0, "accuracy": 0}
    for cell in cells:
        here = [row for row in rows if (row["data"], row["kind"], row["rate"]) == cell]
        for metric, tie in (("auroc", 0.002), ("accuracy", 0.005)):
            means = {
                name: np.mean([row[metric] for row in here if row["rival"] == name])
                for name in {row["rival"] for row in here if row[metric] is not None}
            }
            counts[metric] += means["HyperCleaner"] >= max(means.values()) - tie
    return (
        f"best or tied in AUROC (within 0.002) in {counts['auroc']} of {len(cells)} cells, in accuracy (within 0.005) "
        f"in {counts['accuracy']}"
    )


def main():
    options, path = arguments(__doc__, "cleaning", "the digits alone, one seed", seeds=5)
    cells = [
        (rival, data, kind, rate, seed)
        for seed in range(options.seeds)
        for data in (QUICK if options.quick else DATA)
        for kind in KINDS
        for rate in RATES
        for rival in RIVALS
        if seed < SLOW.get(rival, options.seeds) and not (rival == "cleanlab" and not find_spec("cleanlab"))
        if any(options.only in word for word in (rival, data, kind))
    ]
    kept = Cells(path, ("rival", "data", "kind", "rate", "seed"))
    kept.measure(cells, measure, {"auroc": ".4f", "accuracy": ".4f", "seconds": ".1f"})
    print(markdown(kept.rows))
    print(details(kept.rows))
    print("HyperCleaner:", won(kept.rows))


if __name__ == "__main__":
    main()
