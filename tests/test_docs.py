"""Everything a page shows is executed, and every link inside the project leads somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bilax
from bilax.cli.catalogue import markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def quickstart():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return code


def test_the_quickstart_runs_as_it_stands():
    """In a fresh interpreter, in float32, with warnings as errors; the penalties come out as the text says."""
    check = "\nassert result.status == 'done'\nassert result.x[:5].mean() < result.x[5:].mean() - 1\n"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", quickstart() + check], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("done mean log-penalty:")


def test_the_quickstart_is_short_and_on_the_first_screens():
    lines = [line for line in quickstart().splitlines() if line.strip()]
    assert len(lines) <= 20
    head = README.split("## Quickstart")[0]
    assert "make demo" in head
    assert "make test" in head
    assert "docs/images/demo.png" in head


def test_the_figures_of_the_first_page_are_those_of_the_others():
    (slower,) = re.findall(
        r"take ([\d.]+) times as long with independent samples and ([\d.]+)\s+times with blocks", README
    )
    performance = (ROOT / "docs" / "performance.md").read_text()
    (means,) = re.findall(r"\| geometric mean \|  \| ([\d.]+) \| ([\d.]+) \|", performance)
    assert slower == means
    assert f"{len(bilax.ALGORITHMS)} in all" in README


@pytest.mark.slow
def test_how_to_sweep_and_how_to_profile_run_as_they_stand(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "performance.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    run = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "(4, 3, 1000)\n"
    assert list(tmp_path.rglob("*.trace.json.gz"))


@pytest.mark.slow
def test_cleaning_runs_as_it_stands():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cleaning.md").read_text(), re.DOTALL)
    check = "\nassert np.mean(given[cleaner.suspicious_[:100]] != true[cleaner.suspicious_[:100]]) > 0.95\n"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code + check], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_penalties_run_as_they_stand():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "penalties.md").read_text(), re.DOTALL)
    check = "\nassert set(np.argsort(model.shrinkage_)[:2]) == {0, 1}\n"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code + check], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_a_method_of_your_own_runs_as_it_stands():
    page = (ROOT / "docs" / "your-own-method.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    listing = blocks[0].split("@hyperparameters")[1]
    assert len([line for line in listing.splitlines() if line.strip()]) <= 30
    run = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout == printed


@pytest.mark.slow
def test_the_start_runs_as_it_stands():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done True\n"


def test_batch_normalisation_runs_as_it_stands():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "networks.md").read_text(), re.DOTALL)
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done True\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["your-own-problem.md", "a-sweep.md", "interrupted-runs.md", "scale.md"])
def test_a_tutorial_prints_what_it_says(name, tmp_path):
    page = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    printed = "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))
    run = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == printed


def test_every_snippet_is_run_here():
    here = Path(__file__).read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if "```python" in page.read_text():
            assert f'"{page.name}"' in here, f"no test runs what {page.name} shows"


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")], ids=str
)
def test_links_inside_the_project(page):
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.registry
def test_the_table_of_methods_is_made_from_the_registry():
    page = (ROOT / "docs" / "methods.md").read_text()
    assert markdown() in page, "run: make docs"


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for page in folder.glob("0*.md"):
        assert page.name in index


def test_every_promise_names_a_test_that_exists():
    page = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", page)
    assert len(named) >= 40
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"
    promises = [part for part in page.split("\n## ")[1:] if "JAX forbids" not in part]
    assert all("::" in part for part in promises)
