"""Finding wrong labels, and learning in spite of them: bilax.sklearn.HyperCleaner and what people use today.

python benchmarks/cleaning.py [--quick] [--seeds N] [--only WORD] [--out FOLDER]

Five tables, four kinds of wrong labels at three rates. Every cell is kept as soon as it is there: the same command goes
on where it was stopped. All rivals are logistic regressions on the same features, and all see the trusted samples:

- plain: fitted to all labels as given, ranked by its probability of the given label;
- trusted: fitted to the trusted samples alone;
- cv: the probability of the given label by five-fold cross-validation;
- cleanlab: its CleanLearning, with the same five folds.
"""

import argparse
import json
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.sparse
from noise import DATA, KINDS, RATES, noisy_table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict

MODEL = LogisticRegression(max_iter=300)
SLOW = 3  # seeds for rivals that fit many models
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
        "rival": name, "data": data, "kind": kind, "rate": rate, "seed": seed,
        "auroc": float(roc_auc_score(wrong, -quality)), "precision": float(average_precision_score(wrong, -quality)),
        "accuracy": None if accuracy is None else float(accuracy), "seconds": seconds, "wrong": int(wrong.sum()),
        **(told[0] if told else {}),
    }  # fmt: skip


def markdown(rows):
    """Return a table of all cells: AUROC of finding wrong labels / test accuracy, means over the seeds."""
    names = [name for name in RIVALS if any(row["rival"] == name for row in rows)]
    lines = ["| data | wrong labels | rate | " + " | ".join(names) + " |", "|---" * (len(names) + 3) + "|"]
    for cell in dict.fromkeys((row["data"], row["kind"], row["rate"]) for row in rows):
        shown = []
        for name in names:
            there = [r for r in rows if (r["data"], r["kind"], r["rate"], r["rival"]) == (*cell, name)]
            parts = [f"{np.mean([r['auroc'] for r in there]):.3f}"] if there else []
            if there and there[0]["accuracy"] is not None:
                parts.append(f"{np.mean([r['accuracy'] for r in there]):.3f}")
            shown.append(" / ".join(parts))
        lines.append(f"| {cell[0]} | {cell[1]} | {cell[2]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the digits alone, one seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="data, kinds or rivals whose name holds this word")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / ("cleaning-quick.jsonl" if options.quick else "cleaning.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["rival"], row["data"], row["kind"], row["rate"], row["seed"]) for row in rows}
    seeds = range(1 if options.quick else options.seeds)
    cells = [
        (rival, data, kind, rate, seed)
        for seed in seeds
        for data in (QUICK if options.quick else DATA)
        for kind in KINDS
        for rate in RATES
        for rival in RIVALS
        if not (rival in ("cv", "cleanlab") and seed >= SLOW)
        and not (rival == "cleanlab" and not find_spec("cleanlab"))
        if any(options.only in word for word in (rival, data, kind))
    ]
    for number, cell in enumerate(cells, 1):
        if cell in done:
            continue
        row = measure(*cell)
        rows.append(row)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.4f}"
        print(
            f"{number}/{len(cells)} {cell}: AUROC {row['auroc']:.4f} accuracy {accuracy} {row['seconds']:.1f} s",
            flush=True,
        )
    print(markdown(rows))


if __name__ == "__main__":
    main()
