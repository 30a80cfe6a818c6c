"""Nothing lost: a run that was killed, interrupted or stopped goes on as if it had not been."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import METHOD_CASES
from killed import POINTS
from problem_cases import PROBLEM_CASES

import bilax
from bilax import MRBO, Doubtful, solve
from bilax.problems import quadratic
from bilax.running import keeping

HERE = Path(__file__).parent
CASE = PROBLEM_CASES[0]
PROBLEM = quadratic().problem
QUICK = ("mrbo", "reverse")  # the other methods are in the slow set
ALG = MRBO(gamma=0.02, lam=0.3, Q=3, S=8)


def without_time(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize(
    "algorithm", [pytest.param(c, marks=() if c.name in QUICK else pytest.mark.slow) for c in METHOD_CASES], ids=str
)
def test_every_method_goes_on_bit_for_bit(algorithm, tmp_path):
    """From a state, from what was written down, and when it is begun anew; with what the loop remembers for "auto"."""
    alg = algorithm.make(eta="auto")
    whole = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=17, every=5)
    first = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=3)
    rest = solve(CASE.problem, alg, steps=14, every=7, state=first.state)
    assert [row["k"] for row in rest.history] == [3, 10, 17]
    jax.tree.map(np.testing.assert_array_equal, rest.state, whole.state)
    assert first.counts + rest.counts == whole.counts
    for steps in (4, 11, 17):
        parts = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=steps, every=5, checkpoint_dir=tmp_path)
    jax.tree.map(np.testing.assert_array_equal, parts.state, whole.state)
    assert parts.counts == whole.counts
    assert without_time(parts.history) == without_time(whole.history)
    again = solve(CASE.problem, alg, CASE.x0, CASE.y0, steps=17, every=5, checkpoint_dir=tmp_path)
    assert (again.message, again.seconds, len(again.history)) == (parts.message, parts.seconds, len(parts.history))


def test_an_optimiser_goes_on_with_what_it_remembers(tmp_path):
    import optax

    alg = MRBO(gamma=optax.adam(1e-2), lam=optax.chain(optax.add_noise(0.1, 0.5, key=7), optax.sgd(0.1, 0.9)), S=8)
    whole = solve(PROBLEM, alg, steps=12)
    for steps in (5, 12):
        parts = solve(PROBLEM, alg, steps=steps, checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(parts.x, whole.x)
    np.testing.assert_array_equal(parts.y, whole.y)


def test_what_converged_stays_converged_and_a_smaller_tol_goes_on(tmp_path):
    alg = bilax.StocBiO(alpha=0.3, beta=0.05, D=20, Q=30)
    first, again = (
        solve(PROBLEM, alg, steps=2000, tol=1e-2, sampler="full", checkpoint_dir=tmp_path) for _ in range(2)
    )
    assert first.status == again.status == "converged"
    assert first.message == again.message
    further = solve(PROBLEM, alg, steps=2000, tol=1e-4, sampler="full", checkpoint_dir=tmp_path)
    assert further.status == "converged"
    assert int(further.state.k) > int(first.state.k)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    solve(PROBLEM, ALG, steps=3, checkpoint_dir=tmp_path)
    other = quadratic(seed=9).problem
    for problem, alg, seed, what in (
        (PROBLEM, MRBO(), 0, "algorithm is"),
        (PROBLEM, ALG, 1, "seed is 0 there and 1 here"),
        (other, ALG, 0, ".*data and start"),
    ):
        with pytest.raises(ValueError, match=rf"is of another run: {what}.*remove that file to begin anew"):
            solve(problem, alg, steps=5, seed=seed, checkpoint_dir=tmp_path)


def test_an_edited_loss_or_optimiser_is_another_run(tmp_path):
    """Else the old result would be returned for the new question."""
    import optax

    def problem(factor):
        loss = lambda x, y, batch: factor * jnp.mean((y - x - batch) ** 2)
        return bilax.Problem(lambda x, y, b: jnp.mean((y - b) ** 2), loss, np.ones(4), np.zeros(4), x0=0.0, y0=0.0)

    for name, first, second, what in (
        ("a", (problem(1.0), ALG), (problem(2.0), ALG), "losses and projections"),
        ("b", (PROBLEM, MRBO(gamma=optax.adam(0.01))), (PROBLEM, MRBO(gamma=optax.adam(0.02))), "optimisers"),
    ):
        whole = solve(*first, steps=4, checkpoint_dir=tmp_path / name)
        assert solve(*first, steps=4, checkpoint_dir=tmp_path / name).seconds == whole.seconds
        with pytest.raises(ValueError, match=f"is of another run: {what}"):
            solve(*second, steps=4, checkpoint_dir=tmp_path / name)


@pytest.mark.slow
def test_the_identity_of_a_run_is_the_same_in_another_process(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import jax; jax.config.update("jax_enable_x64", True)
import optax
from bilax import MRBO, solve
from bilax.problems import quadratic
print(solve(quadratic().problem, MRBO(gamma=optax.adam(0.01)), steps=3, checkpoint_dir={str(tmp_path)!r}).seconds)
"""
    told = [
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert told[0].stdout == told[1].stdout


@pytest.mark.parametrize("how", ["junk", "cut", "flipped", "empty"])
def test_a_damaged_checkpoint_is_set_aside(tmp_path, how):
    whole = solve(PROBLEM, ALG, steps=6)
    solve(PROBLEM, ALG, steps=3, checkpoint_dir=tmp_path)
    path = tmp_path / "checkpoint.bin"
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    path.write_bytes({"junk": b"junk", "cut": good[: len(good) // 2], "flipped": bytes(flipped), "empty": b""}[how])
    with pytest.warns(Doubtful, match=r"checkpoint.bin is damaged.* set aside as checkpoint.bin.damaged"):
        result = solve(PROBLEM, ALG, steps=6, checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(result.x, whole.x)
    assert (tmp_path / "checkpoint.bin.damaged").exists()


def test_other_versions_are_told(tmp_path, monkeypatch):
    solve(PROBLEM, ALG, steps=3, checkpoint_dir=tmp_path)
    monkeypatch.setattr(bilax, "__version__", "9.9")
    with pytest.warns(Doubtful, match=r"was saved with bilax .*; the rest is computed with bilax 9\.9"):
        solve(PROBLEM, ALG, steps=5, checkpoint_dir=tmp_path)


def test_an_error_in_metrics_ends_with_a_result(tmp_path):
    calls = []

    def metrics(x, y):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the disk of the metrics is full")
        return {"sum": float(jnp.sum(x))}

    result = solve(PROBLEM, ALG, steps=40, every=10, metrics=metrics, checkpoint_dir=tmp_path)
    assert result.status == "failed"
    assert result.message.startswith("RuntimeError: the disk of the metrics is full The run ended at step 20")
    assert [row["k"] for row in result.history] == [0, 10, 20]
    rest = solve(PROBLEM, ALG, steps=40, every=10, metrics=metrics, checkpoint_dir=tmp_path)
    whole = solve(PROBLEM, ALG, steps=40, every=10, metrics=lambda x, y: {"sum": float(jnp.sum(x))})
    assert without_time(rest.history) == without_time(whole.history)

    def on_row(row):
        if row["k"] == 20:
            raise OSError("gone")

    result = solve(PROBLEM, ALG, steps=40, every=10, on_row=on_row)
    assert (result.status, len(result.history)) == ("failed", 3)


def attempt(folder, *arguments):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(folder.parents[1] / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONWARNINGS": "ignore",
    }
    return subprocess.run(
        [sys.executable, HERE / "killed.py", folder, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    assert attempt(folder).returncode == 0
    return folder


def survive(folder, left_alone, seed, kills):
    """Kill a run at random points until it was killed often enough; compare its end with that of one left alone."""
    choose = random.Random(seed)
    killed = 0
    while killed < kills:
        point = choose.choice(POINTS)
        n = choose.randint(1, 12 if point in ("stepping", "measuring", "row") else 40)
        end = attempt(folder, point, n, choose.randint(0, 1))
        assert end.returncode in (0, -signal.SIGKILL), end.stderr
        if end.returncode == 0:
            break
        killed += 1
    assert attempt(folder).returncode == 0
    with np.load(folder / "end.npz") as a, np.load(left_alone / "end.npz") as b:
        assert a.files == b.files
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        run = str(a["run"])
    for path in (folder, left_alone):
        assert sorted(p.name for p in (path / "job").iterdir()) == [run]
        assert sorted(p.name for p in (path / "job" / run).iterdir()) == ["arrays.npz", "manifest.json", "rows.jsonl"]
        assert json.loads((path / "job" / run / "manifest.json").read_text())["status"] == "done"
    texts = [(path / "job" / run / "rows.jsonl").read_text() for path in (folder, left_alone)]
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    assert without_time(rows[0]) == without_time(rows[1])
    with (
        np.load(folder / "job" / run / "arrays.npz") as kept,
        np.load(left_alone / "job" / run / "arrays.npz") as other,
    ):
        assert kept.files == other.files
        for name in kept.files:
            np.testing.assert_array_equal(kept[name], other[name])
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_runs_killed_at_random_moments(left_alone, part):
    """Three kills in each part: the parts are there to run beside each other."""
    killed, seed = 0, 100 * part
    while killed < 3:
        killed += survive(left_alone.parent / f"killed{seed}", left_alone, seed, kills=3 - killed)
        seed += 1


COMMAND = [sys.executable, "-m", "bilax", "run", "mrbo[gamma=100,lam=0.5]", "--steps", "1000000", "--out"]


def started(folder):
    program = subprocess.Popen([*COMMAND, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in program.stdout:
        if line.split()[:1] == ["0"]:  # the first measurement, before the compilation
            return program
    raise AssertionError(program.stderr.read())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_what_was_done(tmp_path, number, code):
    program = started(tmp_path)
    time.sleep(6)
    program.send_signal(number)
    out, err = program.communicate(timeout=60)
    assert program.returncode == code, err
    if "to go on from here: bilax run" in out:
        (manifest,) = tmp_path.glob("*/manifest.json")
        assert json.loads(manifest.read_text())["status"] == "interrupted"
        assert (manifest.parent / "checkpoint.bin").exists()
    else:
        assert "the same command goes on from what is saved" in err  # it was still compiling


@pytest.mark.slow
def test_a_compilation_is_left_at_once(tmp_path):
    program = started(tmp_path)
    time.sleep(0.3)
    tic = time.monotonic()
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130
    assert time.monotonic() - tic < 2


@pytest.mark.slow
def test_the_second_signal_is_obeyed_in_a_step_that_takes_long():
    """A step takes half a minute or more; two signals, and the state before it comes back."""
    code = """
import os, signal, threading, time
import jax, jax.numpy as jnp
from bilax import Problem, Reverse, solve
big = jnp.ones((1500, 1500))
def outer(x, y, batch):
    return jnp.mean((y - batch) ** 2)
def inner(x, y, batch):
    def body(i, a):
        return jnp.tanh(a @ big)
    wait = jax.lax.stop_gradient(jax.lax.fori_loop(0, 1000, body, big * batch.mean()))
    return jnp.mean((y - x - batch) ** 2) * (1 + 1e-20 * wait.sum())
problem = Problem(outer, inner, jnp.ones(4), jnp.ones(4), x0=jnp.zeros(()), y0=jnp.zeros(()))
def press():
    time.sleep(2.5)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
    global tic
    tic = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
import bilax.running.inspection as inspection
inspection.Inspector.losses = lambda self, x, y: {}
real = __import__("bilax.running.loop", fromlist=["loop"]).advance
def advance(*arguments):
    if not started:
        started.append(threading.Thread(target=press))
    elif len(started) == 1:
        started.append(1)
        started[0].start()
    return real(*arguments)
started = []
import bilax.running.loop as loop
loop.advance = advance
result = solve(problem, Reverse(T=1, S=2), steps=50)
print(result.status, int(result.state.k), time.monotonic() - tic, flush=True)
os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    status, _, seconds = run.stdout.split()
    assert status == "interrupted"
    assert float(seconds) < 2


@pytest.mark.slow
def test_a_pipe_that_closes_does_not_end_the_run(tmp_path):
    command = f"{sys.executable} -m bilax run mrbo --steps 60 --out {tmp_path} | head -n 1"
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=120)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(tmp_path.glob("*/manifest.json"))
        if found and json.loads(found[0].read_text())["status"] == "done":
            return
        time.sleep(0.5)
    raise AssertionError("the run did not come to its end")


def test_saving_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(keeping.checkpoints, "save", lambda *arguments: (saved.append(1), time.sleep(0.05)))
    solve(PROBLEM, ALG, steps=3000, every=10, checkpoint_dir=tmp_path)
    assert 1 <= len(saved) < 30


def test_a_search_goes_on(tmp_path):
    from bilax.experiments.search import search

    settings = [MRBO(gamma=gamma, lam=0.3, S=8) for gamma in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)]

    def score(x, y):
        return float(jnp.sum(x**2))

    whole = search(PROBLEM, settings, score, steps=16, lanes=2)
    for stop in range(5):
        told = []

        def announce(text, told=told, stop=stop):
            told.append(text)
            if len(told) > stop % 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            search(PROBLEM, settings, score, steps=16, lanes=2, checkpoint=tmp_path, announce=announce)
        if stop == 2:
            break
    parts = search(PROBLEM, settings, score, steps=16, lanes=2, checkpoint=tmp_path)
    assert [(t.algorithm, t.steps, t.score) for t in parts] == [(t.algorithm, t.steps, t.score) for t in whole]
    assert list(tmp_path.iterdir()) == []


def test_table1_goes_on(tmp_path, monkeypatch):
    from bilax.paper import table1

    options = dict(names=["mrbo"], targets=(2.0, 0.6), seeds=2, scale=0.002)
    first = table1.measure(**options, keep=tmp_path)
    monkeypatch.setattr(table1, "_measure", lambda *_: pytest.fail("it was measured already"))
    again = table1.measure(**options, keep=tmp_path)
    assert repr(again) == repr(first)


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep():
    code = """
import os, signal, threading, time
import jax.numpy as jnp
from bilax import MRBO, Problem, sweep
from bilax.problems import quadratic
started = []
def press():
    time.sleep(8)
    started.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press, daemon=True).start()
try:
    sweep(quadratic().problem, [MRBO(gamma=g) for g in (0.1, 0.2)], steps=2_000_000, seeds=range(8))
except KeyboardInterrupt:
    print(time.monotonic() - started[0], flush=True)
os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 2
