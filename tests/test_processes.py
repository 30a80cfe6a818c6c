"""Several processes share a run, over the loopback address."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from one_of_many import ALGORITHM, problem

import bilax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals")]
PROGRAM = Path(__file__).parent / "one_of_many.py"


def started(count, folder, steps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(index), str(count), str(port), str(folder), str(steps)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
        )
        for index in range(count)
    ]  # fmt: skip


def ended(processes):
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), [
        error[-2000:] for _, error in outputs
    ]
    lines = [[line for line in out.splitlines() if not line.startswith(("row", "["))][-1] for out, _ in outputs]
    return [line.split(" ", 4) for line in lines]


def on_one_device(steps):
    return bilax.solve(problem(), ALGORITHM, steps=steps, every=10, mesh=jax.make_mesh((1,), ("data",)))


@pytest.mark.parametrize("count", [2, 4])
def test_processes_share_a_run_and_one_of_them_tells(count, tmp_path):
    expected = on_one_device(30)
    told = ended(started(count, tmp_path, 30))
    for status, gradients, _, whole, y in told:
        assert (status, int(gradients), whole) == ("done", expected.counts.G, "False")
        np.testing.assert_allclose(json.loads(y), expected.y, rtol=0, atol=1e-12)
    assert [int(rows) for _, _, rows, _, _ in told] == [4] + [0] * (count - 1)
    again = bilax.solve(
        problem(), ALGORITHM, steps=40, every=10, mesh=jax.make_mesh((1,), ("data",)), checkpoint_dir=tmp_path
    )
    np.testing.assert_allclose(again.y, on_one_device(40).y, rtol=0, atol=1e-12)
