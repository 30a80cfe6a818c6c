"""Mistakes on the command line."""

import itertools
import os
import re
import subprocess
import sys

import pytest
from mistakes import FACTS, kept, row

import bilax
from bilax import Doubtful
from bilax.cli import main
from bilax.experiments import demo, jobs, search, tasks


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command in this process and in an empty folder; the work itself must not begin."""

    def work(*_, **__):
        raise AssertionError("the work began")

    for module, name in ((tasks, "_load"), (demo, "run_demo"), (jobs, "solve")):
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bilax", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, " ".join(capsys.readouterr().err.replace("│", " ").split())

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        row(["run"], 2, r"Missing argument '(SETTING|setting)'", id="run: nothing"),
        row(["run", "mrbo", "--step", "5"], 2, r"No such option: --step.*--steps", id="run: an unknown option"),
        row(["run", "mrbo", "--steps", "0"], 2, r"Invalid value for '--steps'", id="run: steps 0"),
        row(["run", "mrbo", "--steps", "many"], 2, r"Invalid value for '--steps'", id="run: steps text"),
        row(["run", "mrbo", "--seed", "-1"], 2, r"Invalid value for '--seed'", id="run: seed negative"),
        row(["run", "mrbo", "--seed", "4294967296"], 2, r"Invalid value for '--seed'", id="run: seed 2**32"),
        row(
            ["run", "mrbo", "--noise", "1.5"],
            1,
            r"^error: digits needs a noise rate .*at least 0 and below 1; got 1\.5",
            id="run: noise 1.5",
        ),
        row(
            ["run", "mrbo", "--noise", "nan"], 1, r"^error: digits needs a noise rate .*; got nan", id="run: noise NaN"
        ),
        row(
            ["run", "mrbo", "--budget", "0"],
            1,
            r"^error: --budget must be a number of seconds > 0; got 0\.0",
            id="run: budget 0",
        ),
        row(
            ["run", "mrbo", "--budget", "nan"],
            1,
            r"^error: --budget must be a number of seconds > 0; got nan",
            id="run: budget NaN",
        ),
        row(
            ["run", "mrbo", "--budget", "inf"],
            1,
            r"^error: --budget must be a number of seconds > 0; got inf",
            id="run: budget infinite",
        ),
        row(
            ["run", "mrbo", "--out", "file"],
            1,
            r"^error: cannot write into file: .*file is not a folder",
            id="run: out a file",
        ),
        row(
            ["run", "mrbo", "--out", "file/deeper"],
            1,
            r"^error: cannot write into file/deeper: .*file is not a folder",
            id="run: out below a file",
        ),
        row(["run", "folder"], 1, r"^error: folder: no method is called 'folder'", id="run: a folder"),
        row(
            ["run", "mrbo[S=2000000000000]"],
            1,
            r"^error: MRBO: S .* must be an integer ",
            id="run: a huge batch",
        ),
        row(["run", "mrbo", "vrbo"], 2, r"Got unexpected extra argument\S* \(vrbo\)", id="run: two methods"),
        row(["tune", "mrbo", "--problem", "none.py:x"], 1, r"^error: there is no file none\.py", id="tune: no file"),
        row(
            ["tune", "mrbo", "--grid", "gamma="],
            1,
            r"^error: --grid gamma=: write it like gamma=1,10,100",
            id="tune: no values",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,,2"],
            1,
            r"^error: --grid gamma=1,,2: write it like gamma=1,10,100",
            id="tune: two commas",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=auto,1"],
            1,
            r"^error: --grid gamma=auto,1: write it like",
            id="tune: a word",
        ),
        row(
            ["tune", "mrbo", "--grid", "=1,2"],
            1,
            r"^error: --grid =1,2: write it like gamma=1,10,100",
            id="tune: no name",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1", "--grid", "gamma=2"],
            1,
            r"^error: --grid gamma is given twice",
            id="tune: a name twice",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=-1,1"],
            1,
            r"^error: MRBO: gamma .* must be a finite number >= 0.*got -1",
            id="tune: a negative step",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=nan,1"],
            1,
            r"^error: MRBO: gamma .* must be a finite number >= 0.*got nan",
            id="tune: NaN",
        ),
        row(
            ["tune", "mrbo", "--grid", "S=8,16"],
            1,
            r"^error: .*may differ in real numbers only",
            id="tune: batch sizes",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--rungs", "0"],
            2,
            r"Invalid value for '--rungs'",
            id="tune: no rungs",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--sampler", "random"],
            1,
            r"^error: unknown sampler 'random'",
            id="tune: sampler",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--out", "folder"],
            1,
            r"^error: cannot write folder: give a file name",
            id="tune: out a folder",
        ),
        row(
            ["tune", "mrbo", "--grid", "gamma=1,2", "--out", "winner.txt"],
            1,
            r"^error: .*winner\.txt.*\.toml",
            id="tune: out another kind",
        ),
        row(["reproduce", "fig1a", "--seeds", "0"], 2, r"Invalid value for '--seeds'", id="reproduce: no seeds"),
        row(
            ["reproduce", "fig1a", "--data", "digts"],
            1,
            r"^error: no choice of --data is called 'digts'\. Did you mean digits\?",
            id="reproduce: data",
        ),
        row(
            ["reproduce", "fig1a", "--budget", "inf"],
            1,
            r"^error: --budget must be a number of seconds > 0; got inf",
            id="reproduce: budget",
        ),
        row(["report", "file"], 1, r"^error: .*file is (a file, )?not a folder", id="report: a file"),
        row(
            ["report", "folder", "--out", "file"],
            1,
            r"^error: cannot write into file: .*file is not a folder",
            id="report: out a file",
        ),
        row(["report", "folder"], 1, r"^error: folder holds no runs", id="report: an empty folder"),
        row(
            ["demo", "--out", "demo.xyz"],
            1,
            r"^error: cannot write demo\.xyz: .*\.png",
            id="demo: another kind of file",
        ),
        row(["demo", "--out", "demo.txt"], 1, r"^error: cannot write demo\.txt: .*\.png", id="demo: a text"),
        row(["demo", "--out", "demo"], 1, r"^error: cannot write demo: .*\.png", id="demo: no ending"),
        row(
            ["demo", "--out", "folder"],
            1,
            r"^error: cannot write folder: give a file name in a folder that exists",
            id="demo: a folder",
        ),
        row(["demo", "--out", "nowhere/demo.png"], 1, r"^error: cannot write nowhere/demo\.png", id="demo: nowhere"),
        row(["demo", "--seed", "x"], 2, r"Invalid value for '--seed'", id="demo: seed text"),
        row(["list", "mrbo", "vrbo"], 2, r"Got unexpected extra argument\S* \(vrbo\)", id="list: two methods"),
        row(["list", ""], 1, r"^error: no method is called ''", id="list: an empty name"),
        row(["doctor", "--jsn"], 2, r"No such option: --jsn.*--json", id="doctor: an unknown option"),
        row(["rnu"], 2, r"No such command 'rnu'.*run", id="an unknown command"),
    ],
)
def test_commands(arguments, code, message, command):
    status, told = command(*arguments)
    assert status == code
    assert re.search(message, told), told
    assert "Traceback" not in told


def test_help_is_given_without_a_command(command):
    assert command()[0] == 2


def test_a_grid_of_four_million_settings_is_refused_before_it_is_made(command, monkeypatch):
    def product(*axes):
        for number, values in enumerate(itertools.product(*axes)):
            assert number < 200_000, "the grid was made"
            yield values

    monkeypatch.setattr(search, "product", product)
    axes = [
        f"{name}={','.join(str(i + 1) for i in range(n))}" for name, n in (("gamma", 200), ("lam", 200), ("c1", 100))
    ]
    status, told = command("tune", "mrbo", *(word for axis in axes for word in ("--grid", axis)))
    assert status == 1
    assert re.search(r"^error: .*4,000,000 settings", told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        row(["list", "mrbo"], {"COLUMNS": "0"}, 0, r"^mrbo .*gamma", id="a terminal of no width"),
        row(["list", "mrob"], {"COLUMNS": "0"}, 1, r"^error: no method", id="a mistake on such a terminal"),
        row(["list", "soba"], {"PYTHONIOENCODING": "ascii"}, 0, r"^soba .*rho_v", id="ASCII only"),
        row(
            ["run", "sema[S=2]", "--steps", "1"],
            {"JAX_PLATFORMS": "abacus"},
            1,
            r"error: .*JAX_PLATFORMS.*abacus",
            id="a platform that does not exist",
        ),
        row(
            ["doctor"],
            {"JAX_PLATFORMS": "abacus"},
            1,
            r"^(?!.*reinstall jax).*JAX_PLATFORMS",
            id="what the doctor says about it",
        ),
    ],
)
def test_environments(arguments, environment, code, message, tmp_path):
    """The command ends with this code, and with a text like this: on standard output, or after a mistake the other."""
    home = os.path.dirname(os.path.dirname(bilax.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "bilax", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": home, **environment},
        cwd=tmp_path,
        timeout=60,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == code
    told = " ".join((done.stdout + done.stderr).decode().split())
    assert re.search(message, told), told


@pytest.mark.parametrize(
    "manifest",
    [
        row({"setting": "mrbo", "status": "done"}, id="two facts only"),
        row({**FACTS, "budget": None, "title": "digits"}, id="no sampler"),
    ],
)
def test_a_page_of_runs_that_lack_facts(manifest, tmp_path, command):
    (tmp_path / "results").mkdir()
    kept(tmp_path / "results" / "run", manifest)
    with pytest.warns(Doubtful, match=r"manifest\.json lacks .*sampler.*this run is left out"):
        status, told = command("report", "results")
    assert status == 1
    assert re.search(r"^error: results holds no runs", told)
