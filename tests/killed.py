"""One attempt at a run that kills its own process: ``python tests/killed.py FOLDER POINT N BEFORE``.

At the N-th call of POINT the process gets SIGKILL, before the call if BEFORE is 1, else right after it. Without POINT the
run comes to its end, and leaves all that it computed in ``end.npz``.
"""

import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np

STEPS = 600
POINTS = ("stepping", "measuring", "row", "sync", "replace", "write")


def die_at(point: str, n: int, before: bool) -> None:
    """Replace the function of a point by one that kills."""
    import bilax.running.measuring as measuring
    import bilax.storage.checkpoints as checkpoints
    import bilax.storage.runs as runs
    from bilax.running import loop

    places = {
        "stepping": (loop, "advance"),
        "measuring": (measuring.Measurements, "_measured"),
        "row": (runs, "append_line"),
        "sync": (os, "fsync"),
        "replace": (os, "replace"),
        "write": (checkpoints, "save"),
    }
    holder, name = places[point]
    called, real = [0], getattr(holder, name)

    def counted(*arguments, **named):
        called[0] += 1
        if before and called[0] == n:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if called[0] == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, counted)


def main(folder: Path) -> None:
    from bilax import MRBO, settings, solve
    from bilax.experiments.jobs import Job, run_job
    from bilax.experiments.tasks import Task
    from bilax.running import keeping, limits

    keeping.SHARE, limits.LONGEST = 0, 10  # save as often as can be
    task = Task("digits", 0.3)
    algorithm = settings.parse("mrbo[gamma=100,lam=0.5,S=16]")
    assert isinstance(algorithm, MRBO)
    run = run_job(Job(task, algorithm, steps=STEPS // 10), folder / "job")
    result = solve(task.load(0).problem, algorithm, steps=STEPS, every=40, checkpoint_dir=folder / "solve", tol=1e-9)
    leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(result.state))}
    counts = {kind: np.array(getattr(result.counts, kind)) for kind in ("F", "G", "JV", "HV")}
    rows = [
        [float(row.get(name, np.nan)) for name in result.history.names if name != "seconds"] for row in result.history
    ]
    np.savez(folder / "end.npz", run=run.name, rows=np.array(rows), **leaves, **counts)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        die_at(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    main(Path(sys.argv[1]))
