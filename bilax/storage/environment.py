"""What a result depends on besides its settings. Importing it imports no JAX, so a broken JAX can be reported."""

import os
import platform
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import bilax


def environment() -> dict[str, Any]:
    """Return what a result depends on besides its settings: versions, machine, commit."""
    import jax
    import numpy

    versions = {"bilax": bilax.__version__, "python": platform.python_version(), "jax": jax.__version__}
    device = jax.devices()[0]
    return {
        "versions": versions | {"numpy": numpy.__version__},
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "device": f"{device.platform}: {device.device_kind}",
        },
        "commit": commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of the checkout that bilax runs from, marked if files were changed; None elsewhere."""
    root = Path(bilax.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        git = partial(subprocess.run, cwd=root, capture_output=True, text=True, check=True, timeout=10)
        commit = git(["git", "rev-parse", "HEAD"]).stdout.strip()
        changed = git(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit} with changes" if changed else commit
