"""Files: whole or not at all, one process at a time, and what is damaged is named, set aside and stops nothing else."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from bilax import Doubtful, settings
from bilax.cli.app import app
from bilax.experiments import jobs
from bilax.experiments.jobs import Job, run_job
from bilax.experiments.tasks import Task
from bilax.results import load
from bilax.storage import files, shards
from bilax.storage.mending import damages
from bilax.storage.runs import Record, alone, is_finished, manifests, read_rows

JOB = Job(Task("digits", 0.3), settings.parse("mrbo[gamma=100,lam=0.5,S=16]"), steps=30)
FACTS = {"task": "digits", "variant": "own", "method": "MRBO", "setting": "mrbo", "seed": 0}


def stored(folder, rows=3, **facts):
    record = Record(folder, {**FACTS, **facts}).begin()
    for k in range(rows):
        record.row({"k": k, "loss": 1.0})
    record.arrays(weights=np.ones(4))
    record.end(status=facts.get("status", "done"), message="")
    return folder


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_text(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"could not write .*file: No space left on device. What was saved before is intact"
    ):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"k": 0}\n')
    with pytest.raises(OSError, match=r"could not write .*rows.jsonl"):
        files.append_line(rows, '{"k": 1}')
    assert rows.read_text() == '{"k": 0}\n'


def test_a_line_after_one_that_was_cut_off(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"k": 0}\n{"k": ')
    files.append_line(path, '{"k": 1}')
    with pytest.warns(Doubtful, match=r"line 2 of .* is damaged"):
        assert read_rows(tmp_path) == [{"k": 0}, {"k": 1}]


def test_again_keeps_the_old_result_until_the_new_one_is_complete(tmp_path, monkeypatch):
    folder = run_job(JOB, tmp_path)
    before = (folder / "rows.jsonl").read_text()
    real, rows = jobs.solve, []

    def stopped(*arguments, on_row, **named):
        def row(measured):
            rows.append(measured)
            on_row(measured)
            if len(rows) == 3:
                assert (folder / "rows.jsonl").read_text() == before
                raise KeyboardInterrupt

        return real(*arguments, on_row=row, **named)

    monkeypatch.setattr(jobs, "solve", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_job(JOB, tmp_path, again=True)
    assert (folder / "rows.jsonl").read_text() == before
    assert list(manifests(tmp_path)) == [folder]  # the half of the new one is no result
    assert manifests(folder)[folder]["status"] == "done"
    monkeypatch.setattr(jobs, "solve", real)
    assert run_job(JOB, tmp_path, again=True) == folder
    assert (folder / "rows.jsonl").read_text() != before  # its seconds differ
    assert [p.name for p in tmp_path.iterdir()] == [folder.name]


def test_a_result_of_other_versions_is_not_returned_as_new(tmp_path):
    folder = run_job(JOB, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["versions"]["jax"] = "0.0.1"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run_job(JOB, tmp_path)
    assert manifests(folder)[folder]["versions"]["jax"] != "0.0.1"


def test_a_manifest_that_says_done_without_its_rows_is_not_done(tmp_path):
    folder = run_job(JOB, tmp_path)
    assert is_finished(folder)
    (folder / "rows.jsonl").unlink()
    assert not is_finished(folder)
    run_job(JOB, tmp_path)
    assert is_finished(folder)


def test_the_second_process_is_told_by_whom_a_run_is_run(tmp_path):
    code = "import sys, time; from pathlib import Path; from bilax.storage.runs import alone\n"
    code += "with alone(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        told = rf"run is being run by process {other.pid} on .*, since"
        with pytest.raises(BlockingIOError, match=told), alone(tmp_path / "run"):
            pass
    finally:
        other.kill()
        other.communicate()
    with alone(tmp_path / "run"):  # the dead hold nothing
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_removed_while_running(tmp_path):
    import shutil

    def remove(row):
        if row["k"] > 0:
            shutil.rmtree(tmp_path, ignore_errors=True)

    with pytest.raises(OSError, match="could not write"):
        run_job(replace(JOB, seed=1), tmp_path, on_row=remove)


@pytest.mark.parametrize("name", ["manifest.json", "rows.jsonl", "arrays.npz", "checkpoint.bin"])
def test_one_damaged_file_is_named_and_mended(tmp_path, name):
    good, bad = stored(tmp_path / "good"), stored(tmp_path / "bad")
    (bad / name).write_bytes(b'{"k": 0}\n{"k": \xff\n{"k": 2}\n')
    (found,) = [damage for damage in damages(tmp_path) if damage.path.name == name]
    assert found.path == bad / name
    shown = CliRunner().invoke(app, ["doctor", "--results", str(tmp_path)])
    assert shown.exit_code == 1
    mended = CliRunner().invoke(app, ["doctor", "--results", str(tmp_path), "--mend"])
    assert mended.exit_code == 0
    assert (bad / f"{name}.damaged").exists()
    left = damages(tmp_path)
    for damage in left:  # rows that were lost show once they are left out
        damage.mend()
    assert damages(tmp_path) == []
    assert load(tmp_path)["run"].tolist().count("good") == 3
    assert is_finished(good)
    assert "all runs are intact" in CliRunner().invoke(app, ["doctor", "--results", str(tmp_path)]).output


def test_what_a_crash_leaves_is_found(tmp_path):
    run = stored(tmp_path / "run")
    (tmp_path / "run" / ".rows.jsonl.abc.part").write_text("x")
    run.rename(tmp_path / ".old-run")
    stored(tmp_path / ".new-run")
    assert {damage.what for damage in damages(tmp_path)} >= {"an exchange of results that was cut short"}
    for damage in damages(tmp_path):
        damage.mend()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
    assert is_finished(tmp_path / "run")


@pytest.mark.slow
def test_a_damaged_run_does_not_stop_report_or_run(tmp_path):
    folder = run_job(JOB, tmp_path)
    other = stored(tmp_path / "other")
    (other / "manifest.json").write_text("{")
    with pytest.warns(Doubtful, match="manifest.json is damaged"):
        assert load(tmp_path)["run"].unique().tolist() == [folder.name]
    run = subprocess.run(
        [sys.executable, "-m", "bilax", "report", tmp_path, "--out", tmp_path / "page"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "manifest.json is damaged" in run.stderr
    assert "Traceback" not in run.stderr


def test_nothing_writes_in_place():
    """Every file of a result goes through `bilax.storage.files`."""
    root = Path(files.__file__).parents[1]
    for path in root.rglob("*.py"):
        if path.name in ("files.py", "catalogue.py"):
            continue
        text = path.read_text()
        for way in (".write_text(", ".write_bytes(", 'open("w', "savefig(path"):
            for line in text.splitlines():
                if way in line and "note.write_text" not in line:
                    raise AssertionError(f"{path.relative_to(root)}: {line.strip()}")


def test_arrays_that_are_kept_apart_come_back_as_they_lay(tmp_path):
    along = jax.sharding.NamedSharding(jax.make_mesh((1,), ("data",)), jax.sharding.PartitionSpec("data"))
    array = jax.device_put(np.arange(6.0), along)
    shards.save(tmp_path / "spread-1", [array])
    (back,) = shards.load(tmp_path / "spread-1", [array])
    assert back.sharding == along
    np.testing.assert_array_equal(back, array)
    shards.save(tmp_path / "spread-2", [array])
    for of_the_user in ("spread-results", "spread-3"):
        (tmp_path / of_the_user).mkdir()
    (tmp_path / "spread-1.orbax-checkpoint-tmp-4").mkdir()  # of a save that was killed
    shards.remove(tmp_path, but="spread-2")
    assert {path.name for path in tmp_path.iterdir()} == {"spread-2", "spread-3", "spread-results"}
    assert not shards.is_spread(array)  # one process holds all of it


def test_without_orbax_the_remedy_is_told(monkeypatch, tmp_path):
    assert shards.installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "orbax" else None)
    assert not shards.installed()  # orbax-export alone
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"needs orbax-checkpoint: pip install 'bilax\[cluster\]'"):
        shards.load(tmp_path, [])
