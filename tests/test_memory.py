"""Memory: what cannot fit is refused, and what runs long or often does not grow."""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from bilax import MRBO, Problem, iterate, solve, sweep
from bilax.numerics import memory
from bilax.problems import quadratic

PROBLEM = quadratic().problem


@pytest.mark.slow
def test_what_cannot_fit_is_refused_with_figures(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    with pytest.raises(
        MemoryError, match=r"needs? at least .* GiB .*what every step tells .* GiB.*has 1.0 GiB to spare"
    ):
        iterate(PROBLEM, MRBO(), steps=10**9)
    with pytest.raises(MemoryError, match="what every step tells"):
        sweep(PROBLEM, [MRBO(gamma=g) for g in (0.1, 0.2)], steps=10**7, seeds=range(10))
    with pytest.raises(MemoryError, match="batches"):
        solve(PROBLEM, MRBO(S=5_000_000), steps=1)
    big = Problem(lambda x, y, b: b.mean(), lambda x, y, b: b.mean(), np.ones(4), np.ones(4))
    with pytest.raises(MemoryError, match="states"):
        solve(big, MRBO(), jnp.zeros(20_000_000), jnp.zeros(20_000_000), steps=1)


SOAK = """
import gc, resource, sys
import jax, jax.numpy as jnp, numpy as np
from bilax import Problem, Reverse, MRBO, solve
from bilax.running import programs

programs.KEPT = 16

def resident():
    gc.collect()
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) / 1024

def fresh(i):
    return Problem(
        lambda x, y, b: jnp.mean((y - b) ** 2),
        lambda x, y, b: jnp.mean((y - x - b) ** 2) + i * 0,
        np.ones(10),
        np.zeros(10),
        x0=jnp.zeros(()),
        y0=jnp.zeros(()),
    )

seen = []
if sys.argv[1] == "calls":
    for i in range(52):
        solve(fresh(i), Reverse(T=1, S=2), steps=1)
        if i in (18, 35, 51):
            seen.append(resident())
else:
    problem = fresh(0)
    for i in range(4):
        solve(problem, MRBO(S=2), steps=250_000, every=1000)
        seen.append(resident())
print(*seen)
"""


def soak(what):
    flags = "--xla_cpu_use_fusion_emitters=false"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SOAK, what],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XLA_FLAGS": flags},
    )
    return [float(text) for text in run.stdout.split()]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_many_calls_with_fresh_problems_keep_memory_flat():
    """After 18, 35 and 51 calls, of 16 that are kept: programs were forgotten three times."""
    first, second, third = soak("calls")
    assert third < 1.1 * second
    assert third < 1.3 * first


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_million_steps_keep_memory_flat():
    seen = soak("steps")
    assert seen[-1] < 1.05 * seen[0]


def test_a_program_is_kept_for_functions_that_come_again(monkeypatch):
    from bilax.running import programs

    monkeypatch.setattr(programs, "KEPT", 2)
    monkeypatch.setattr(programs, "_seen", set())
    sizes = []
    for name in "aabab":
        programs.make_room(name)
        sizes.append(len(programs._seen))
    solve(PROBLEM, MRBO(S=2, eta=0.1), steps=1)
    assert programs.loop.advance.chosen._cache_size() >= 1
    programs.make_room("c")
    programs.make_room("d")
    assert sizes == [1, 1, 2, 2, 2]
    assert programs.loop.advance.chosen._cache_size() == 0
