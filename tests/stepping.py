"""A method stepped in Python beside its transcript, and a comparison that says what differs."""

from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from bilax.oracle import make_oracle
from bilax.sampling import keys
from bilax.testing import python_loops, recording


class Batches(SimpleNamespace):
    """The batches of one step by name; it knows which of them were asked for."""

    def __getattribute__(self, name):
        if not name.startswith("_"):
            object.__getattribute__(self, "__dict__").setdefault("_used", set()).add(name)
        return object.__getattribute__(self, name)


def unused(batches):
    held = {name for name in vars(batches) if not name.startswith("_")}
    return sorted(held - vars(batches).get("_used", set()))


# One oracle of a problem for all tests of a process, so that what it compiles is compiled once.
oracle_of = cache(make_oracle)


def stepped(algorithm, problem, x0, y0, K, sampler="iid"):
    """Return the states after each of K steps, and the batches that each of them drew."""
    oracle, drawn = recording(oracle_of(problem, sampler))
    state, states, draws = algorithm.init(oracle, jnp.asarray(x0), jnp.asarray(y0)), [], []
    with python_loops():
        for k in range(K):
            state, _ = algorithm.step(oracle, keys.at(keys.root(7), k), state)
            states.append(state)
            draws.append(drawn.take())
    return states, draws


def compare(states, rows, draws, tol=1e-10):
    """Compare every field that state and transcript share; say where they part, and whether the draws agreed."""
    assert len(states) == len(rows)
    for k, (state, row) in enumerate(zip(states, rows, strict=True)):
        shared = [name for name in state._fields if name in row and name != "k"]
        assert {"x", "y"} <= set(shared)
        errors = {name: np.abs(np.ravel(getattr(state, name)) - np.ravel(row[name])).max() for name in shared}
        size = {name: 1 + np.abs(row[name]).max() for name in shared}
        wrong = {name: error for name, error in errors.items() if not error <= tol * size[name]}
        if wrong:
            left = unused(row["draws"]) if "draws" in row else []
            agreed = f"the transcript left {', '.join(left)} unused" if left else "every batch drawn was used"
            told = "; ".join(f"{name} by {error:.2g}" for name, error in wrong.items())
            fine = ", ".join(name for name in shared if name not in wrong) or "nothing"
            levels = " ".join(f"{level}({np.size(batch['number'])})" for level, batch in draws[k])
            raise AssertionError(
                f"step {k}: state and transcript differ in {told} (in agreement: {fine}). "
                f"Draws of this step: {levels}; {agreed}."
            )
