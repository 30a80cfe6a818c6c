"""The doctor: it sees what is there, advises on what is not, and never ends in a traceback."""

import importlib
import io
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import pytest
from rich.console import Console

import bilax
from bilax.cli import doctor
from bilax.storage import environment


@pytest.fixture(scope="module")
def report():
    return doctor.report()


def shown(found, width=200, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    good = doctor.show(Console(file=stream, width=width), found)
    stream.seek(0)
    return good, stream.read()


def test_the_report_is_true(report):
    assert report.ok
    assert report.bilax == bilax.__version__
    assert report.python == sys.version.split()[0]
    assert report.cpus >= 1
    assert report.memory is None or report.memory > 2**28
    assert report.jax.error == ""
    assert report.jax.backend == jax.default_backend()
    assert len(report.jax.devices) == len(jax.devices())
    assert report.jax.x64 is True  # as tests run
    versions = {package.name: package.version for package in report.packages}
    for name in ("jax", "jaxlib", "numpy", "rich", "scikit-learn"):
        assert versions[name] == version(name)
    assert [tuple(asdict(entry).values()) for entry in report.data] == bilax.datasets.status()
    assert json.loads(json.dumps(asdict(report))) == report.as_json()


def test_every_extra_is_known():
    path = Path(bilax.__file__).parents[1] / "pyproject.toml"
    if not path.is_file():
        pytest.skip("not a checkout")
    extras = tomllib.loads(path.read_text())["project"]["optional-dependencies"]
    for extra in set(extras) - {"all", "dev", "docs", "examples"}:  # the last three are for a checkout
        assert {need.split(">")[0] for need in extras[extra]} <= set(doctor.EXTRAS[extra])


def test_commit(monkeypatch, tmp_path):
    commit = environment.commit()
    assert commit is None or len(commit.split()[0]) == 40
    monkeypatch.setattr(doctor.bilax, "__file__", str(tmp_path / "bilax" / "__init__.py"))
    assert environment.commit() is None  # not a checkout
    (tmp_path / ".git").mkdir()
    assert environment.commit() is None  # git refuses
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: (_ for _ in ()).throw(FileNotFoundError("git")))
    assert environment.commit() is None  # no git


def test_all_is_well(report):
    packages = [replace(package, version="1.2.3", remedy="") for package in report.packages]
    data = [replace(entry, state="present", remedy="") for entry in report.data]
    good, text = shown(replace(report, packages=packages, data=data, commit="0123456789abcdef"))
    assert good
    assert f"bilax {bilax.__version__}, commit 0123456789\n" in text
    assert "✗" not in text
    assert "missing" not in text
    assert "✓ installed" in text
    assert "✓ works" in text
    assert "✓ present" in text
    assert "Everything required is here." in text


def test_what_is_optional_may_be_missing(monkeypatch, report):
    absent = {"matplotlib", "pandas", "plotly", "scikit-learn", "pooch"}

    def pretend(name):
        if name in absent:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", pretend)
    missing = replace(report.data[1], state="missing", where="/nowhere", remedy="get mnist [now]")
    found = replace(doctor.report(), data=[report.data[0], missing])
    assert found.ok
    good, text = shown(found)
    assert good
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "✗ missing matplotlib (bilax[plots], bilax[report])" in lines
    assert "✗ missing mnist /nowhere" in lines
    assert "scikit-learn, pooch: pip install 'bilax[data]'" in lines
    assert "matplotlib: pip install 'bilax[plots]'" in lines
    assert "pandas: pip install 'bilax[tables]'" in lines
    assert "plotly: pip install 'bilax[report]'" in lines
    assert "mnist: get mnist [now]" in lines


def test_what_is_required_may_not(monkeypatch):
    def pretend(name):
        if name == "numpy":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor, "version", pretend)
    good, text = shown(doctor.report())
    assert not good
    assert "✗ missing" in text
    assert "numpy: pip install numpy" in text
    assert "bilax cannot work like this." in text


@pytest.mark.parametrize("error", [ImportError("no jaxlib [here]"), RuntimeError("jaxlib is version 0.1")])
def test_a_broken_jax_is_a_message(monkeypatch, error):
    class Broken:
        def devices(self):
            raise error

    monkeypatch.setitem(sys.modules, "jax", Broken())
    found = doctor.report()
    assert not found.ok
    assert found.data is None
    good, text = shown(found)
    assert not good
    assert "✗ broken" in text
    assert f"{type(error).__name__}: {error}" in text
    assert "jax: pip install --upgrade --force-reinstall jax jaxlib" in text
    assert "Traceback" not in text


def test_a_jax_that_cannot_be_imported(tmp_path):
    """In a fresh interpreter, since this one has a working JAX."""
    (tmp_path / "jax.py").write_text("raise RuntimeError('jaxlib is too old')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from bilax.cli import doctor; from rich.console import Console\n"
        "sys.exit(0 if doctor.show(Console(width=200)) else 3)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", env=environment
    )
    assert run.returncode == 3, run.stderr
    assert "RuntimeError: jaxlib is too old" in run.stdout
    assert "not looked at, because JAX does not work" in run.stdout
    assert run.stderr == ""


def test_a_narrow_or_old_terminal(report):
    missing = replace(report.packages[-1], version=None, remedy="pip install 'bilax[report]'")
    found = replace(report, packages=[*report.packages[:-1], missing])
    _, text = shown(found, width=40)
    assert "pip install 'bilax[report]'\n" in text  # in one piece
    _, text = shown(found, encoding="ascii")
    assert "+ installed" in text
    assert "x missing" in text


def test_nothing_is_downloaded_or_loaded(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the doctor must not do this")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr(importlib.import_module("bilax.datasets.mnist"), "_read", refuse)
    monkeypatch.setattr(importlib.import_module("bilax.datasets.newsgroups"), "_load", refuse)
    assert shown(None)[0]


@pytest.mark.slow
def test_the_cache_of_compiled_programs_is_shown_limited_and_emptied(tmp_path):
    place = tmp_path / "compiled"
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(place), "JAX_COMPILATION_CACHE_MAX_SIZE": "200000"}
    compiles = (
        "from bilax.cli import compile_cache; compile_cache.switch_on()\n"
        "import jax, jax.numpy as jnp\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "for n in range(1, 12): jax.jit(lambda x: jnp.sort(x @ x) + n)(jnp.ones((n, n)))\n"
    )

    def run(*command):
        return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=True)

    run("-c", compiles)
    kept = sum(file.stat().st_size for file in place.glob("*-cache"))
    assert 0 < kept <= 200_000
    (place / "mine.txt").write_text("not JAX's")
    told = json.loads(run("-m", "bilax", "doctor", "--json").stdout)
    assert told["compiled"] == str(place)
    assert kept <= told["compiled_bytes"] <= 200_000 + 10_000
    assert "removed 0." in run("-m", "bilax", "doctor", "--empty-cache").stdout
    assert not list(place.glob("*-cache"))
    assert (place / "mine.txt").exists()
