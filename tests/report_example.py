"""A figure with runs of methods, one of which has a name made to break a page."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd

from bilax.report import Figure, Method
from bilax.report.styles import style_of

EVIL = "<script>window.hacked=1</script><b>bold</b> $x$ %{x} &amp; \u2028"
NAN, INF = np.nan, np.inf


def table(methods, seeds=5, points=12, **extra):
    rows = []
    for rate, method in enumerate(methods, 1):
        for seed in range(seeds):
            for k in range(points):
                loss = 20 * np.exp(-rate * k / 10) + 0.5 + 0.01 * seed
                counts = {
                    "k": k * rate,
                    "seconds": k * (1 + seed / 10),
                    "samples": 100 * k * rate,
                    "F": 10 * k,
                    "HINV": 0,
                }
                measured = {"train_loss": loss, "norm_v": NAN if k == 0 else loss / 3, "test_accuracy": 1 - loss / 25}
                rows.append({"method": method, "seed": seed, **counts, **measured, **extra})
    return pd.DataFrame(rows)


NAMED = ("MRBO", "VRBO", EVIL)  # these have the same style in every figure


def methods(names):
    style = {name: style_of(number) for number, name in enumerate(NAMED)}
    return tuple(
        Method(name, f"{name}[alpha=0.1]", f"bilax run '{name}'", f"note of {name}", style.get(name)) for name in names
    )


LABELS = {"train_loss": "loss on the true training labels", "test_accuracy": "accuracy on the test samples"}


def example(name="fig1", names=NAMED, **options):
    options = dict(y="train_loss", labels=LABELS, main=("train_loss", "test_accuracy")) | options
    return Figure(name, f"Figure {name}: {EVIL}", "A caption.", table(names), methods(names), **options)


def with_zeros(figure, name):
    """The same figure; the method's losses have reached 0."""
    table = figure.table.copy()
    table.loc[table.method == name, "train_loss"] = 0.0
    return replace(figure, table=table)


def stored(folder, task, algorithm, method, seed=0, rows=((0, 0.0, 9.0), (1, 0.5, 3.0), (2, 1.0, 1.0)), **facts):
    """Write a run as `bilax run` does."""
    path = folder / f"{task}.{method}.{facts.get('setting', '')}.seed{seed}"
    path.mkdir(parents=True)
    manifest = dict(
        task=task, title=f"the task {task}", algorithm=algorithm, method=method, setting=f"{algorithm}[S=1]", seed=seed,
        sampler="iid", steps=2, budget=None, status="done", started="2026-01-01", commit=None, versions={}, machine={},
        command=f"bilax run {algorithm}",
    ) | facts  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))
    lines = [json.dumps({"k": k, "seconds": seconds, "train_loss": loss}) for k, seconds, loss in rows]
    (path / "rows.jsonl").write_text("\n".join(lines) + "\n")
