"""The problems that a run can be asked for by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bilax import datasets
from bilax.errors import unknown
from bilax.experiments.cleaning import kept_weights
from bilax.problem import Problem
from bilax.problems import hyper_cleaning, logistic
from bilax.results import Result

START_VARIANCE = 2 / 10  # of the paper's initial weights; it makes the initial loss on MNIST about 20

TITLES = {
    "digits": "digits",
    "mnist": "MNIST",
    "newsgroups": "20 Newsgroups",
    "digits-penalties": "digits, a penalty per pixel",
    "ijcnn1": "ijcnn1, a penalty per feature",
    "covtype": "covtype, a penalty per class",
    "mnist-replaced": "MNIST, a weight per image",
    "simulated": "simulated quadratic",
}
NOISY = ("digits", "mnist", "mnist-replaced")
KNOWN = ("ijcnn1", "covtype", "mnist-replaced", "simulated")  # with an exact outer objective
SLOWLY_MEASURED = ("covtype", "mnist-replaced")  # seconds for each exact value


class LoadedTask(NamedTuple):
    problem: Problem
    keep: Callable[[Result], dict[str, np.ndarray]]  # what to store of a result besides its rows


@dataclass(frozen=True)
class Task:
    """A problem by name, with the share of wrong labels where it has some."""

    data: str
    noise: float | None = None

    def __post_init__(self):
        if self.data not in TITLES:
            raise unknown("problem", self.data, TITLES)
        if self.noisy and (self.noise is None or not 0 <= self.noise < 1):
            raise ValueError(
                f"{self.data} needs a noise rate (the share of wrong labels), at least 0 and below 1; got {self.noise}."
            )
        if not self.noisy and self.noise is not None:
            raise ValueError(f"{self.data} has no wrong labels to find; leave the noise rate out.")

    @property
    def noisy(self) -> bool:
        return self.data in NOISY

    @property
    def cleans(self) -> bool:
        """Whether it is hyper-cleaning as in the paper."""
        return self.data in ("digits", "mnist")

    def measured_every(self, budget: float) -> float:
        """Return after how many seconds a run is measured again; where that takes seconds, seldom."""
        return max(2.0, budget / 5) if self.data in SLOWLY_MEASURED else budget / 40

    @property
    def name(self) -> str:
        return self.data if self.noise is None else f"{self.data}-p{self.noise:g}"

    @property
    def title(self) -> str:
        what = "labels replaced" if self.data == "mnist-replaced" else "wrong labels"
        wrong = "" if self.noise is None else f", {100 * self.noise:g} % {what}"
        return TITLES[self.data] + wrong

    @property
    def picture(self) -> dict[str, Any]:
        """What a picture shows first, and whether on a logarithmic axis."""
        if self.data in KNOWN:
            return {"y": "gap", "log_y": True, "log_x": True}
        return {"y": "train_loss" if self.cleans else "test_loss", "log_y": self.cleans}

    def load(self, seed: int) -> LoadedTask:
        """Load the data; the seed decides what is random: the wrong labels, the split, the start."""
        return _known(self) if self.data in KNOWN else _load(self, seed)


@lru_cache(maxsize=1)
def _known(task: Task) -> LoadedTask:
    """Return a problem of the field's benchmark: there the seed decides the batches alone."""
    from bilax.problems import benchmark  # its exact solutions need scipy.optimize, a second of every other start

    problem = {
        "ijcnn1": lambda: benchmark.penalty_per_feature(datasets.ijcnn1(), task.name),
        "covtype": lambda: benchmark.penalty_per_class(datasets.covtype(), task.name),
        "mnist-replaced": lambda: benchmark.weight_per_sample(datasets.mnist_replaced(task.noise or 0.0), task.name),
        "simulated": benchmark.simulated,
    }[task.data]()
    return LoadedTask(problem, lambda result: {})


@lru_cache(maxsize=1)  # methods are compared on the same problem, one after the other
def _load(task: Task, seed: int) -> LoadedTask:
    if not task.cleans:
        documents = datasets.newsgroups(seed=seed) if task.data == "newsgroups" else datasets.digit_documents(seed=seed)
        return LoadedTask(logistic(documents), lambda result: {})
    load: Any = datasets.mnist if task.data == "mnist" else datasets.digits
    data = load(task.noise, seed=seed)
    shape = (data.classes, data.features.shape[1])
    y0 = np.random.default_rng([seed, 1]).normal(scale=START_VARIANCE**0.5, size=shape)
    problem = hyper_cleaning(data, C=0.001, y0=jnp.asarray(y0, jnp.float32))
    return LoadedTask(problem, lambda result: kept_weights(data, result))
