"""Run methods on tasks and keep what they did: one folder per run, never twice unless asked."""

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bilax import settings
from bilax.algorithms.protocol import Algorithm
from bilax.errors import Doubtful
from bilax.experiments.tasks import Task
from bilax.numerics.processes import as_the_first_says, gathered
from bilax.phase import Stop
from bilax.running.devices import mesh_of
from bilax.running.keeping import rows_kept
from bilax.running.solve import solve
from bilax.storage.environment import environment
from bilax.storage.runs import FINISHED, Record, alone, finish_exchange, in_words, is_finished, manifests

FOREVER = 10**9

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One run: a method on a task with a seed, for a number of steps or seconds."""

    task: Task
    algorithm: Algorithm
    seed: int = 0
    sampler: str = "iid"
    steps: int = FOREVER
    budget: float | None = None
    method: str = ""  # the name of its curve
    variant: str = "own"
    devices: int = 0  # that share the run; 0: it is not laid out on a mesh

    @property
    def setting(self) -> str:
        return settings.write(self.algorithm)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the outcome. The names do not, so figures share the runs that they have in common."""
        method = {"algorithm": settings.name_of(self.algorithm), "parameters": settings.parameters(self.algorithm)}
        limits = {"seed": self.seed, "sampler": self.sampler, "steps": self.steps, "budget": self.budget}
        mesh = {"mesh": True} if self.devices else {}  # how many devices there are changes nothing but rounding
        return {"task": self.task.name, **method, **limits, **mesh}

    @property
    def folder(self) -> str:
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.task.name}.{settings.name_of(self.algorithm)}.seed{self.seed}.{digest}"

    @property
    def command(self) -> str:
        """Return what a person types to repeat this run."""
        noise = "" if self.task.noise is None else f" --noise {self.task.noise:g}"
        steps = "" if self.steps == FOREVER else f" --steps {self.steps}"
        budget = "" if self.budget is None else f" --budget {self.budget:g}"
        sampler = "" if self.sampler == "iid" else f" --sampler {self.sampler}"
        devices = f" --devices {self.devices}" if self.devices else ""
        limits = f"{noise}{steps}{budget}{sampler}{devices}"
        return f'bilax run "{self.setting}" --problem {self.task.data}{limits} --seed {self.seed}'


def run_job(job: Job, out: Path, *, again: bool = False, on_row: Callable[[dict], None] | None = None) -> Path:
    """Run a job unless it is finished already, or go on with it; return its folder."""
    folder = Path(out) / job.folder
    if as_the_first_says(not again and is_finished(folder) and is_current(folder)):
        return folder
    with alone(folder):
        finish_exchange(folder)
        if not again and is_finished(folder) and is_current(folder):
            return folder
        return _run(job, folder, on_row)


def is_current(folder: Path) -> bool:
    """Tell whether a result was made by the versions of today, which decide its numbers."""
    manifest = manifests(folder).get(folder, {})
    return manifest.get("versions", {}) == environment()["versions"]


def _run(job: Job, folder: Path, on_row: Callable[[dict], None] | None) -> Path:
    loaded = job.task.load(job.seed)
    names = {"method": job.method or settings.name_of(job.algorithm), "variant": job.variant, "title": job.task.title}
    for_people = {"setting": job.setting, "command": job.command}
    record = Record(folder, {**job.identity, **names, **for_people, "picture": job.task.picture})
    kept = rows_kept(record.work)
    record.begin(kept)
    show = on_row or (lambda row: None)
    for row in kept:
        show(row)

    def measured(row: dict[str, Any]) -> None:
        record.row(row)
        show(row)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Doubtful)  # they are kept with the run
            result = solve(
                loaded.problem,
                job.algorithm,
                steps=job.steps,
                seed=job.seed,
                sampler=job.sampler,
                every_seconds=None if job.budget is None else job.task.measured_every(job.budget),
                time_limit=job.budget,
                on_row=measured,
                progress=None if on_row is None else False,  # a caller that sees the rows needs no bar
                checkpoint_dir=record.work,
                mesh=mesh_of(job.devices) if job.devices else None,
            )
    except MemoryError as error:
        record.end(status="failed", message=str(error))
        return record.work
    except BaseException as error:
        status = "interrupted" if isinstance(error, (KeyboardInterrupt, Stop)) else "failed"
        record.end(status=status, message=f"{type(error).__name__}: {error}")
        raise
    result = replace(result, x=gathered(result.x), y=gathered(result.y))
    if arrays := loaded.keep(result):
        record.arrays(**arrays)
    record.end(
        status=result.status,
        message=result.message,
        warnings=list(result.warnings),
        seconds=result.seconds,
        compile_seconds=result.compile_seconds,
        eval_seconds=result.eval_seconds,
    )
    return folder if result.status in FINISHED else record.work


def run_all(todo: Sequence[Job], out: Path, *, again: bool = False, announce: Announce = lambda text: None) -> set[str]:
    """Run the jobs, until a Ctrl-C, in an order that loads each data set once per seed; return how they ended."""
    ends = set()
    unique: dict[str, Job] = {}
    for job in sorted(todo, key=lambda job: (job.seed, job.task.name)):
        unique.setdefault(job.folder, job)
    for number, job in enumerate(unique.values(), 1):
        folder = run_job(job, out, again=again)
        facts = manifests(folder)[folder]
        announce(f"{number}/{len(unique)}  {job.task.title}, {job.method}, seed {job.seed}: {_told(facts)}")
        ends.add(facts["status"])
        if "interrupted" in ends:
            break
    return ends


def _told(facts: dict[str, Any]) -> str:
    seconds = facts.get("seconds")
    status = in_words(facts["status"])
    return status if seconds is None else f"{status}, {seconds:.1f} s"
