"""The lowest values of the benchmark's exact objectives, found once and kept with the problems."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from bilax import datasets
from bilax.benchmark.methods import SIMULATED, TASKS
from bilax.experiments.tasks import Task
from bilax.problems import benchmark
from bilax.storage.environment import environment
from bilax.storage.files import write_text
from bilax.storage.remembering import remembered

EVALUATIONS = {"ijcnn1": 600, "covtype": 200, "mnist-replaced": 150}


def find_all(out: Path, *, announce: Callable[[str], None] = lambda text: None) -> None:
    """Minimise every objective that has no closed form, and write what was found to a JSON file."""
    found: dict[str, Any] = {}
    for task in TASKS:
        if task != SIMULATED:
            found[task.name] = remembered(out.parent / ".optima", {"task": task.name}, lambda t=task: _find(t))
            announce(f"{task.title}: Phi* = {found[task.name]['Phi']:.12g}")
            write_text(out, json.dumps(found, indent=2) + "\n")


def _find(task: Task) -> dict[str, Any]:
    problem = task.load(0).problem
    exact = {
        "ijcnn1": lambda: benchmark.exact_penalty_per_feature(datasets.ijcnn1()),
        "covtype": lambda: benchmark.exact_penalty_per_class(datasets.covtype()),
        "mnist-replaced": lambda: benchmark.exact_weight_per_sample(datasets.mnist_replaced(task.noise or 0.0)),
    }[task.data]()
    x0, y0 = np.asarray(problem.x0, np.float64), np.asarray(problem.y0, np.float64)
    most = EVALUATIONS[task.data]
    value, gradient = exact.minimum(x0, y0.reshape(len(y0), -1), most)
    how = f"L-BFGS on the exact objective, at most {most} evaluations, |x_i| <= 20, float64"
    return {"Phi": value, "gradient": gradient, "how": how, "commit": environment()["commit"], "on": str(date.today())}
