"""What the tables of mistakes share: a problem, a quick run of it, and how a refusal is checked."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from bilax import MRBO, Problem, solve

row = pytest.param

ONES = np.ones(6)
QUICK = MRBO(eta=0.1, S=2, Q=1)
NUMBER = r"a finite number >= 0, or an optimiser such as optax.adam\(1e-2\)"


def loss(x, y, batch):
    return jnp.mean((y - x - batch) ** 2)


def problem(**changes):
    given = {"outer_loss": loss, "inner_loss": loss, "outer_data": ONES, "inner_data": ONES, "x0": 0.0, "y0": 0.0}
    return Problem(**given | changes)


PROBLEM = problem()


def run(algorithm=QUICK, of=PROBLEM, **options):
    return solve(of, algorithm, **{"steps": 1} | options)


def refused(call, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        call()


FACTS = {"task": "digits-p0.3", "variant": "own", "method": "MRBO", "setting": "mrbo[S=1]", "seed": 3, "status": "done"}


def kept(folder, manifest=FACTS, rows='{"k": 0, "seconds": 0.0}\n'):
    """Write what a run leaves, as text."""
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    (folder / "rows.jsonl").write_text(rows)
