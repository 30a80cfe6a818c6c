"""The paper's experiments as data: which methods, on which problem, with which settings, drawn against what.

A recipe writes a method's setting for an outer step, an inner step and the step eta of the Neumann series. The
paper's variant fills in what the paper states; the tuned variant what `bilax.paper.searches` found (tuned.toml).

What the paper leaves open is chosen here, alike for all methods. A published step that decreases has its stated size
at k = 0 and a delay of 1000 iterations: MRBO's and MRBO(D)'s eta_k = (1000 / (1000 + k))^(1/3), SUSTAIN's alpha_k the
same times its step, MSTSA's alpha_k = alpha / sqrt(1 + k/1000). A momentum begins with the weight 1/2: c1 = c2 = 0.5,
and c, c_f, c_g accordingly; only STABLE's tau, the weight of new matrices, is 0.1, because those of one sample are too
noisy. BSA's steps are constant. reverse differentiates through the last
Q = 3 inner steps, because the paper counts it among the methods with Q = 3; it and AID-FP are deterministic.

Two later methods are guests of the tuned variant: SOBA with the batches of MRBO and its authors' decay, and SRBA with a
pass over all data whenever its batches add up to one. No claim is about them.
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from bilax.algorithms import AIDFP, BSA, MRBO, MRBOD, MSTSA, SOBA, SRBA, STABLE, SUSTAIN, VRBO, Reverse, StocBiO
from bilax.algorithms.protocol import Algorithm
from bilax.experiments.jobs import FOREVER, Job
from bilax.experiments.tasks import Task
from bilax.hyperparameters import Eta

SEEDS = 5
VARIANTS = ("paper", "tuned")

Recipe = Callable[[float, float, Eta], Any]  # outer step, inner step, eta -> setting


def _delayed(outer: float, inner: float) -> dict[str, Any]:
    return dict(gamma=outer, lam=inner, c1=0.5, c2=0.5, d=10.0, m=1000.0)


def _sustain(outer: float, inner: float) -> dict[str, Any]:
    weight = 0.5 / outer**2
    return dict(c=10 * outer, c_b=inner / outer, c_f=weight, c_g=weight, w=1000.0)


def _mstsa(outer: float, inner: float) -> dict[str, Any]:
    return dict(alpha=outer, beta=inner, c=0.5 / outer, w=1000.0)


def _vrbo(m: int) -> Recipe:
    return lambda x, y, eta: VRBO(alpha=x, beta=y, m=m, q=3, Q=3, eta=eta, S1=1000, S2=500)


CLEANING: dict[str, Recipe] = {
    "VRBO": _vrbo(20),
    "stocBiO": lambda x, y, eta: StocBiO(beta=x, alpha=y, D=200, Q=3, eta=eta, S=1000),
    "MRBO": lambda x, y, eta: MRBO(**_delayed(x, y), Q=3, eta=eta, S=1000),
    "AID-FP": lambda x, y, eta: AIDFP(alpha=x, beta=y, T=200, N=3, eta=eta),
    "reverse": lambda x, y, eta: Reverse(alpha=x, beta=y, T=200, K=3),
    "BSA": lambda x, y, eta: BSA(alpha=x, beta=y, T=200, Q=3, eta=eta, S=1),
    "MSTSA": lambda x, y, eta: MSTSA(**_mstsa(x, y), Q=3, eta=eta, S=1),
    "SUSTAIN": lambda x, y, eta: SUSTAIN(**_sustain(x, y), Q=3, eta=eta, S=1),
    "STABLE": lambda x, y, eta: STABLE(alpha=x, beta=y, tau=0.1, S=1),
    **{f"VRBO-{m}": _vrbo(m) for m in (1, 10, 20, 50, 100)},
    "SOBA": lambda x, y, eta: SOBA(gamma=x, rho=y, rho_v=eta, S=1000),
    "SRBA": lambda x, y, eta: SRBA(gamma=x, rho=y, rho_v=eta, q=25_000 // 64, S=64),
}
GUESTS = ("SOBA", "SRBA")


def _documents(S: int) -> dict[str, Recipe]:
    return {
        "stocBiO": lambda x, y, eta: StocBiO(beta=x, alpha=y, D=10, Q=10, eta=eta, S=S),
        "MRBO": lambda x, y, eta: MRBO(**_delayed(x, y), Q=10, eta=eta, S=S),
        "MRBO(D)": lambda x, y, eta: MRBOD(**_delayed(x, y), N=10, Q=10, eta=eta, S=S),
        "VRBO": lambda x, y, eta: VRBO(alpha=x, beta=y, m=3, q=2, Q=10, eta=eta, S1=S, S2=S),
        "SUSTAIN": lambda x, y, eta: SUSTAIN(**_sustain(x, y), Q=10, eta=eta, S=S),
        "MSTSA": lambda x, y, eta: MSTSA(**_mstsa(x, y), Q=10, eta=eta, S=S),
        "SOBA": lambda x, y, eta: SOBA(gamma=x, rho=y, rho_v=eta, S=S),
        "SRBA": lambda x, y, eta: SRBA(gamma=x, rho=y, rho_v=eta, q=11_314 // S, S=S),
    }


@dataclass(frozen=True)
class Family:
    """Settings that several figures share."""

    search: str  # the table of tuned.toml that holds the step sizes of the tuned variant
    recipes: dict[str, Recipe]
    steps: dict[str, tuple[float, float]]  # method -> the paper's outer and inner step; "": all others
    tuned_on: Task
    budget: float  # seconds in the algorithm, per run

    def algorithm(self, method: str, variant: str) -> Algorithm:
        if variant == "paper" or method in UNTUNED:
            return self.recipes[method](*self.steps.get(method, self.steps[""]), 0.5)
        found = tuned()[self.search][method.split("-")[0] if method.startswith("VRBO-") else method]
        return self.recipes[method](found["outer"], found["inner"], "auto")


# One step of STABLE on MNIST factorises a dense matrix of order 7,850: a search would take hours. It keeps its steps.
UNTUNED = ("STABLE",)
FULL_BATCH = ("AID-FP", "reverse")

MNIST = Family(
    "mnist",
    CLEANING,
    {"": (0.1, 0.1), "SUSTAIN": (0.1, 0.03), "STABLE": (1e-10, 0.01)},
    Task("mnist", 0.1),
    5.0,
)
NEWS_100, NEWS_1000 = (
    Family("newsgroups", _documents(S), {"": (30, 30), "stocBiO": (100, 100)}, Task("newsgroups"), 10.0)
    for S in (100, 1000)
)
FAMILIES = (MNIST, NEWS_100, NEWS_1000)
SEARCHED = (MNIST, NEWS_100)  # batches of 1000 use the steps found with batches of 100


@lru_cache
def tuned() -> dict[str, dict[str, dict[str, float]]]:
    return tomllib.loads(files("bilax.paper").joinpath("tuned.toml").read_text())


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper."""

    name: str
    title: str
    family: Family
    task: Task
    methods: tuple[str, ...]
    x: str = "seconds"
    y: str = "train_loss"

    def guests(self, variant: str) -> tuple[str, ...]:
        """Return the later methods that a figure of all methods shows as well, once a search has found their steps."""
        shows_all = variant == "tuned" and {"stocBiO", "MSTSA"} <= set(self.methods)
        return tuple(name for name in GUESTS if shows_all and name in tuned()[self.family.search])


_ALL = ("VRBO", "stocBiO", "MRBO", "AID-FP", "reverse", "BSA", "MSTSA", "SUSTAIN", "STABLE")
_MOMENTUM = ("VRBO", "MRBO", "MSTSA", "SUSTAIN", "STABLE")
_BATCHES = ("VRBO", "MRBO", "stocBiO", "AID-FP", "reverse")
_SINGLE = ("VRBO", "MRBO", "BSA", "MSTSA", "SUSTAIN", "STABLE")
_LOOPS = tuple(f"VRBO-{m}" for m in (1, 10, 20, 50, 100))


def _cleaning(name: str, title: str, noise: float, methods: tuple[str, ...], x: str = "seconds") -> Experiment:
    task = Task("mnist", noise)
    return Experiment(name, f"Figure {title}: {task.title}", MNIST, task, methods, x)


def _news(name: str, title: str, family: Family, y: str) -> Experiment:
    methods = tuple(method for method in family.recipes if method not in GUESTS)
    return Experiment(name, f"Figure {title}", family, Task("newsgroups"), methods, "seconds", y)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        _cleaning("fig1a", "1 (a), all methods", 0.1, _ALL),
        _cleaning("fig1b", "1 (b), all methods", 0.15, _ALL),
        _cleaning("fig1c", "1 (c), momentum methods", 0.1, _MOMENTUM),
        _cleaning("fig2", "2, momentum methods", 0.15, _MOMENTUM),
        _cleaning("fig3a", "3 (a), inner steps of VRBO", 0.1, _LOOPS),
        _cleaning("fig3b", "3 (b), inner steps of VRBO", 0.15, _LOOPS),
        _cleaning("fig4a", "4 (a), batch methods against samples", 0.1, _BATCHES, "samples"),
        _cleaning("fig4b", "4 (b), batch methods against samples", 0.15, _BATCHES, "samples"),
        _cleaning("fig5a", "5 (a), single-sample methods against samples", 0.1, _SINGLE, "samples"),
        _cleaning("fig5b", "5 (b), single-sample methods against samples", 0.15, _SINGLE, "samples"),
        _news("fig6a", "6 (a): 20 Newsgroups, batches of 100, accuracy", NEWS_100, "test_accuracy"),
        _news("fig6b", "6 (b): 20 Newsgroups, batches of 100, loss", NEWS_100, "test_loss"),
        _news("fig7a", "7 (a): 20 Newsgroups, batches of 1000, accuracy", NEWS_1000, "test_accuracy"),
        _news("fig7b", "7 (b): 20 Newsgroups, batches of 1000, loss", NEWS_1000, "test_loss"),
    )
}


def jobs(
    experiment: Experiment, variant: str, seeds: Sequence[int], budget: float | None, task: Task | None = None
) -> Iterator[Job]:
    """Return the runs of an experiment; ``task`` replaces the paper's data."""
    for seed in seeds:
        for method in (*experiment.methods, *experiment.guests(variant)):
            algorithm = experiment.family.algorithm(method, variant)
            yield Job(task or experiment.task, algorithm, seed, sampler_of(method), FOREVER, budget, method, variant)


def sampler_of(method: str) -> str:
    return "full" if method in FULL_BATCH else "iid"
