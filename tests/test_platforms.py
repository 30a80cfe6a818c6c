"""Nothing assumes a CPU: every method lowers for GPUs and TPUs, and what is tuned to a CPU stays there."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import scipy.sparse
from jax import export
from seldom import SELDOM

import bilax
from bilax.numerics import matmuls, platforms
from bilax.oracle import traced
from bilax.running import loop
from bilax.sampling import keys

X = jnp.sin(jnp.arange(200.0)).reshape(50, 4)


def problem_of(X):
    def loss(x, y, batch):
        return jnp.mean((batch["X"] @ y - batch["t"]) ** 2)

    data = {"X": X, "t": jnp.ones(50)}
    penalised = lambda x, y, batch: loss(x, y, batch) + jnp.sum(jnp.exp(x) * y**2)
    return bilax.Problem(loss, penalised, data, data, jnp.zeros(4), jnp.zeros((4, 2)).at[0].set(1.0)[:, 0])


@pytest.fixture
def elsewhere(monkeypatch):
    """As if there were another device."""
    for module in (platforms, matmuls, loop):
        monkeypatch.setattr(module, "on_cpu", lambda: False)


def lowered(algorithm, problem, platform):
    parts, stream = traced(problem, "iid"), keys.root(0)
    state = algorithm.init(parts.oracle(), problem.x0, problem.y0)
    begun = loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state))

    def run(begun):
        return loop.advance.chosen(parts, algorithm, stream, loop.Goal(0.0, 0), begun, 10, False)

    return export.export(jax.jit(run), platforms=platform)(begun)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SELDOM)) for name in bilax.ALGORITHMS]
)
def test_every_method_lowers_for_gpus_and_tpus(name, elsewhere):
    exported = lowered(bilax.ALGORITHMS[name](), problem_of(X), ("cuda", "tpu"))
    assert exported.platforms == ("cuda", "tpu")
    assert "optimization_barrier" not in exported.mlir_module()


def test_sparse_rows_lower_for_gpus_and_tpus(elsewhere):
    lowered(bilax.MRBO(), problem_of(scipy.sparse.csr_array(X)), ("cuda", "tpu"))


def test_barriers_stand_in_programs_for_a_cpu():
    assert "optimization_barrier" in lowered(bilax.MRBO(), problem_of(X), ("cpu",)).mlir_module()


def test_only_a_cpu_gets_its_options_of_the_compiler(monkeypatch):
    double = platforms.Jitted(lambda x: 2 * x)
    on_cpu = double.chosen
    assert double(2.0) == 4
    monkeypatch.setattr(platforms, "on_cpu", lambda: False)
    assert double.chosen is not on_cpu
    assert double(2.0) == 4


def test_importing_looks_for_no_device():
    # jax.distributed must be able to start after the import.
    code = "import bilax; from jax._src import xla_bridge; assert not xla_bridge.backends_are_initialized()"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
