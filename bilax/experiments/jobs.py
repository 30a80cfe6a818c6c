"""Run methods on tasks and keep what they did: one folder per run, never twice unless asked."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax import settings
from bilax.experiments.specs import FULL_BATCH, Experiment
from bilax.experiments.tasks import Made, Task
from bilax.results import FINISHED, Record, Result, manifests
from bilax.runner import solve
from bilax.unsafe_eta import UnsafeEta

MEASUREMENTS = 40  # per run, about
LEAST_TRUSTED = 40  # images kept for the gallery
FOREVER = 10**9

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One run: a setting on a task with a seed, for so many steps or seconds."""

    task: Task
    setting: str
    seed: int = 0
    sampler: str = "iid"
    steps: int = FOREVER
    budget: float | None = None
    method: str = ""  # the name of its curve
    variant: str = "own"

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the outcome. The names do not, so figures share the runs that they have in common."""
        algorithm = settings.parse(self.setting)
        facts = {"task": self.task.name, "setting": settings.write(algorithm), "sampler": self.sampler}
        return {**facts, "seed": self.seed, "steps": self.steps, "budget": self.budget}

    @property
    def folder(self) -> str:
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.task.name}.{self.setting.partition('[')[0]}.seed{self.seed}.{digest}"

    @property
    def command(self) -> str:
        """Return what a person types to repeat this run."""
        noise = "" if self.task.noise is None else f" --noise {self.task.noise:g}"
        steps = "" if self.steps == FOREVER else f" --steps {self.steps}"
        budget = "" if self.budget is None else f" --budget {self.budget:g}"
        sampler = "" if self.sampler == "iid" else f" --sampler {self.sampler}"
        return (
            f'bilax run "{self.setting}" --problem {self.task.data}{noise}{steps}{budget}{sampler} --seed {self.seed}'
        )


def jobs(
    experiment: Experiment, variant: str, seeds: Sequence[int], budget: float | None, task: Task | None = None
) -> Iterator[Job]:
    """Return the runs of an experiment; ``task`` replaces the paper's data."""
    for seed in seeds:
        for method in experiment.methods:
            setting = experiment.family.setting(method, variant)
            yield Job(task or experiment.task, setting, seed, sampler_of(method), FOREVER, budget, method, variant)


def sampler_of(method: str) -> str:
    return "full" if method in FULL_BATCH else "iid"


def run(job: Job, out: Path, *, again: bool = False, on_row: Callable[[dict], None] | None = None) -> Path:
    """Run a job unless it is finished already; return its folder."""
    folder = Path(out) / job.folder
    known = manifests(folder).get(folder) if folder.is_dir() else None
    if known is not None and known["status"] in FINISHED and not again:
        return folder
    algorithm, made = settings.parse(job.setting), job.task.make(job.seed)
    names = {"method": job.method or job.setting.partition("[")[0], "variant": job.variant, "title": job.task.title}
    record = Record.begin(folder, {**job.identity, **names, "command": job.command})

    def measured(row: dict[str, Any]) -> None:
        record.row(row)
        if on_row is not None:
            on_row(row)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnsafeEta)
        try:
            result = solve(
                made.problem,
                algorithm,
                steps=job.steps,
                seed=job.seed,
                sampler=job.sampler,
                every_seconds=None if job.budget is None else job.budget / MEASUREMENTS,
                time_limit=job.budget,
                on_row=measured,
                progress=None if on_row is None else False,  # who sees the rows needs no bar
            )
        except MemoryError as error:
            record.end(status="failed", message=str(error))
            return folder
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            record.end(status=status, message=f"{type(error).__name__}: {error}")
            raise
    for warning in caught:
        if not issubclass(warning.category, UnsafeEta):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    _keep(record, made, result)
    record.end(
        status=result.status,
        message=result.message,
        warnings=[str(warning.message) for warning in caught if issubclass(warning.category, UnsafeEta)],
        seconds=result.seconds,
        compile_seconds=result.compile_seconds,
        eval_seconds=result.eval_seconds,
    )
    return folder


def _keep(record: Record, made: Made, result: Result) -> None:
    """Store the learned weights, and the images that are trusted least."""
    if made.cleaning is None:
        return
    weights = np.asarray(jax.nn.sigmoid(result.x))
    least = np.argsort(weights, kind="stable")[:LEAST_TRUSTED]
    images = made.cleaning.features[least, :-1]
    side = int(images.shape[1] ** 0.5)
    record.arrays(
        weights=weights,
        given=made.cleaning.labels.astype(np.uint8),
        true=made.cleaning.true_labels.astype(np.uint8),
        least=least,
        images=images.reshape(-1, side, side).astype(np.float16),
    )


def run_all(todo: Sequence[Job], out: Path, *, again: bool = False, announce: Announce = lambda text: None) -> set[str]:
    """Run the jobs in an order that loads each data set once per seed; return how they ended, up to a Ctrl-C."""
    ends = set()
    unique: dict[str, Job] = {}
    for job in sorted(todo, key=lambda job: (job.seed, job.task.name)):
        unique.setdefault(job.folder, job)
    for number, job in enumerate(unique.values(), 1):
        folder = run(job, out, again=again)
        facts = manifests(folder)[folder]
        announce(f"{number}/{len(unique)}  {job.task.title}, {job.method}, seed {job.seed}: {_told(facts)}")
        ends.add(facts["status"])
        if "interrupted" in ends:
            break
    return ends


def _told(facts: dict[str, Any]) -> str:
    seconds = facts.get("seconds")
    return facts["status"] if seconds is None else f"{facts['status']}, {seconds:.1f} s"
