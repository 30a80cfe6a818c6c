"""How long a person waits: for help, for the first measurement, for the compilation of each method.

python benchmarks/startup.py [--out FOLDER]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bilax.storage.environment import environment

AS_INSTALLED = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}  # Python keeps what it compiles


def seconds(arguments, cache, until=None):
    """Return the seconds until the program has printed a line that begins with ``until``, or has ended."""
    tic = time.perf_counter()
    program = subprocess.Popen(
        [sys.executable, "-m", "bilax", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **AS_INSTALLED, "JAX_COMPILATION_CACHE_DIR": str(cache)},
    )
    assert program.stdout is not None
    found = None
    for line in program.stdout:
        if found is None and until is not None and line.strip().startswith(until):
            found = time.perf_counter() - tic
    program.wait()
    return found if until is not None else time.perf_counter() - tic


def compilations():
    """Return the seconds that `solve` takes to compile each method, on digits, with all defaults."""
    import bilax
    from bilax.experiments.tasks import Task
    from bilax.problems import quadratic

    problem = Task("digits", 0.3).load(0).problem
    bilax.solve(quadratic().problem, bilax.StocBiO(), steps=1)  # what is loaded once per process
    return {
        name: bilax.solve(problem, method(), steps=1, metrics=lambda x, y: {}).compile_seconds
        for name, method in bilax.ALGORITHMS.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for startup.json")
    options = parser.parse_args()
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        cache, out = Path(folder) / "cache", Path(folder) / "out"
        table["bilax --help"] = median(seconds(["--help"], cache) for _ in range(5))
        run = ["run", "mrbo", "--steps", "20", "--out", str(out), "--again"]
        table["bilax run, first measurement"] = seconds(run, cache, until="0 ")
        table["bilax run, first measurement after a step"] = seconds(run, Path(folder) / "other", until="1 ")
        table["the same, from the cache"] = median(seconds(run, cache, until="1 ") for _ in range(5))
    table["compilation"] = compilations()
    print(json.dumps(table, indent=2))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "startup.json").write_text(
        json.dumps({"table": table, "environment": environment()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
