"""Several processes share a run, over the loopback address."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from one_of_many import ALGORITHM, problem

import bilax
from bilax.storage.checkpoints import NAME

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals")]
PROGRAM = Path(__file__).parent / "one_of_many.py"


FOREVER = 10**8


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def started(count, folder, steps):
    """Return processes that share a run, and a folder or one each."""
    port = free_port()
    folders = folder if isinstance(folder, list) else [folder] * count
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(index), str(count), str(port), str(folders[index]), str(steps)],
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


def under_way(count, folder):
    """Return processes that have begun to take steps."""
    processes, rows = started(count, folder, FOREVER), 0
    while rows < 3:
        line = processes[0].stdout.readline()
        assert line, processes[0].communicate()
        rows += line.startswith("row")
    return processes


def on_one_device(steps, folder=None):
    mesh = jax.make_mesh((1,), ("data",))
    return bilax.solve(problem(), ALGORITHM, steps=steps, every=10, mesh=mesh, checkpoint_dir=folder)


@pytest.mark.parametrize("count", [2, 4])
def test_processes_share_a_run_and_one_of_them_tells(count, tmp_path):
    expected = on_one_device(30)
    told = ended(started(count, tmp_path, 30))
    for status, gradients, _, whole, y in told:
        assert (status, int(gradients), whole) == ("done", expected.counts.G, "False")
        np.testing.assert_allclose(json.loads(y), expected.y, rtol=0, atol=1e-12)
    assert [int(rows) for _, _, rows, _, _ in told] == [4] + [0] * (count - 1)
    if count == 2:  # four go on where two have stopped
        assert {path.name for path in tmp_path.iterdir()} == {NAME, "spread-30"}
        for _, _, _, _, y in ended(started(4, tmp_path, 40)):
            np.testing.assert_allclose(json.loads(y), on_one_device(40).y, rtol=0, atol=1e-12)
        assert {path.name for path in tmp_path.iterdir()} == {NAME, "spread-40"}
    np.testing.assert_allclose(on_one_device(50, tmp_path).y, on_one_device(50).y, rtol=0, atol=1e-12)
    assert {path.name for path in tmp_path.iterdir()} == {NAME}


def test_parts_that_are_lost_are_told(tmp_path):
    ended(started(2, tmp_path, 10))
    (folder,) = tmp_path.glob("spread-*")
    shutil.rmtree(folder)
    with pytest.warns(bilax.Doubtful, match="keeps arrays apart in spread-10, and they cannot be read"):
        run = on_one_device(10, tmp_path)
    assert run.history[0]["k"] == 0
    assert (tmp_path / f"{NAME}.damaged").exists()


def test_a_signal_to_one_stops_all_with_what_is_saved_where_no_folder_is_shared(tmp_path):
    processes = under_way(2, [tmp_path, tmp_path / "of the other"])
    processes[1].send_signal(signal.SIGINT)
    told = ended(processes)
    assert [status for status, *_ in told] == ["interrupted"] * 2
    assert not list(tmp_path.glob("**/spread-*"))  # the first has written all of it
    taken = int(told[0][1]) // ALGORITHM.cost(1).G
    assert told[0][1] == told[1][1]
    further, at_once = on_one_device(taken + 5, tmp_path), on_one_device(taken + 5)
    np.testing.assert_allclose(further.y, at_once.y, rtol=0, atol=1e-10)
    assert [row["k"] for row in further.history] == [row["k"] for row in at_once.history]


def test_a_process_that_dies_ends_the_others_which_say_so(tmp_path):
    processes = under_way(2, tmp_path)
    processes[1].kill()
    processes[1].communicate()
    _, error = processes[0].communicate(timeout=60)
    assert processes[0].returncode != 0
    assert "ConnectionError: another process of this run has ended, or cannot be reached" in error
    assert f"the run goes on from {tmp_path}" in error
    on_one_device(25, tmp_path)


def test_the_command_runs_under_a_launcher_and_goes_on(tmp_path):
    def run(steps):
        address = f"127.0.0.1:{free_port()}"
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bilax", "run", "soba[S=120]", "--steps", steps, "--out", str(tmp_path)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=os.environ | {
                    "JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": str(index)
                },
            )
            for index in range(2)
        ]  # fmt: skip
        told = [process.communicate(timeout=200) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], told
        return [out for out, _ in told]

    first, second = run("10")
    assert "done: 10 steps taken." in first
    assert "steps" not in second
    assert re.search("finished already", run("10")[0])


def test_different_data_are_refused(tmp_path):
    for process in started(2, tmp_path, "mixed"):
        _, error = process.communicate(timeout=200)
        assert "ValueError: the processes were given different data" in error


def test_a_launcher_that_says_half_of_it(tmp_path):
    command = [sys.executable, "-m", "bilax", "run", "soba", "--out", str(tmp_path)]
    told = subprocess.run(command, env=os.environ | {"JAX_NUM_PROCESSES": "2"}, capture_output=True, text=True)
    assert told.returncode == 1
    assert told.stderr.startswith("error: JAX_NUM_PROCESSES is set, and JAX_COORDINATOR_ADDRESS and JAX_PROCESS_ID not")
