"""The command line: what it prints, what it refuses, what it writes."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest

import bilax
from bilax.experiments import demo


def bilax_command(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", "bilax", *arguments], capture_output=True, text=True, cwd=cwd)


def test_help_and_version():
    run = bilax_command("--help")
    assert run.returncode == 0
    assert "demo" in run.stdout
    assert "list" in run.stdout
    assert bilax_command("--version").stdout.strip() == f"bilax {bilax.__version__}"
    for command in ("demo", "list", "reproduce"):
        run = bilax_command(command, "--help")
        assert run.returncode == 0
        assert "Example" in " ".join(run.stdout.split())


def test_list():
    entries = json.loads(bilax_command("list", "--json").stdout)
    assert [entry["name"] for entry in entries] == list(bilax.ALGORITHMS)
    assert {"name": "Q", "default": 3, "meaning": "Hessian-vector products per hypergradient",
            "allowed": "an integer >= 1"} in entries[0]["parameters"]  # fmt: skip
    text = " ".join(bilax_command("list").stdout.split())
    for entry in entries:
        assert f"{entry['name']} {entry['summary']}" in text
        assert entry["complexity"] in text
    assert "calls per iteration F 2 S, G 2 S, JV 2 S, HV 2 Q S" in text
    one = " ".join(bilax_command("list", "SUSTAIN").stdout.split())
    assert "outer step size" in one
    assert "stocbio" not in one
    wrong = bilax_command("list", "sustein")
    assert wrong.returncode == 1
    assert "no method is called 'sustein'. Did you mean sustain?" in " ".join(wrong.stderr.split())


@pytest.mark.parametrize("out", ["nowhere/demo.png", "."])
def test_a_mistake_gets_a_message_not_a_traceback(out, tmp_path):
    run = bilax_command("demo", "--out", out, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith("error: cannot write")
    assert "Traceback" not in run.stderr


def test_reproduce_refuses_what_it_does_not_know(tmp_path):
    run = bilax_command("reproduce", "fig7")
    assert run.returncode == 1
    assert "no experiment is called 'fig7'. There is table1." in run.stderr
    run = bilax_command("reproduce", "table1", "--out", str(tmp_path))
    assert run.returncode == 1
    assert "cannot write" in run.stderr


def test_unknown_command():
    run = bilax_command("clena")
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


def test_demo_end_to_end(tmp_path):
    run = bilax_command("demo", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    text = run.stdout
    assert "1000 digits, 400 of them with a wrong label; 200 trusted ones." in text
    for name in ("all labels", "trusted only", "MRBO", "VRBO", "HV"):
        assert name in text
    picture = (tmp_path / "bilax-demo.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 1000
    assert height > 300


def test_the_demo_finds_wrong_labels_and_beats_plain_training():
    outcome = demo.run(seed=2)
    rows = {row.method: row for row in outcome.rows}
    plain = rows["all labels"]
    for name in ("MRBO", "VRBO"):
        assert rows[name].auroc > 0.9
        assert rows[name].test_accuracy > plain.test_accuracy + 0.02
        assert rows[name].train_loss < plain.train_loss
        assert outcome.results[name].status == "done"
        steps = demo.METHODS[name][1]
        assert rows[name].counts.F == sum(demo.METHODS[name][0].cost(k).F for k in range(steps))
    assert np.isnan(plain.auroc)
