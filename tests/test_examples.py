"""Every file in examples/ runs as it stands, and says what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def ran(name, folder, *arguments):
    command = [sys.executable, EXAMPLES / name, *arguments, "--picture", "picture.png"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert run.returncode == 0, run.stderr
    assert (folder / "picture.png").is_file()  # the gallery shows it
    return "\n".join(line.rstrip() for line in run.stdout.splitlines()) + "\n"


def test_every_example_is_run_here():
    here = Path(__file__).read_text()
    assert all(f'"{path.name}"' in here for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
def test_a_table(tmp_path):
    said = ran("clean_a_table.py", tmp_path)
    assert int(re.search(r"of the 100 worst rows, (\d+) are", said)[1]) >= 60
    assert (tmp_path / "clean-a-table" / "clean.html").is_file()


@pytest.mark.slow
def test_a_pipeline(tmp_path):
    said = ran("search_in_a_pipeline.py", tmp_path)
    assert float(re.search(r"true labels: ([\d.]+)", said)[1]) > 0.9


@pytest.mark.slow
def test_embeddings(tmp_path):
    assert float(re.search(r"wrong labels: ([\d.]+);", ran("embeddings.py", tmp_path))[1]) > 0.9


@pytest.mark.slow
@pytest.mark.skipif("BILAX_DATA_DIR" not in os.environ, reason="needs MNIST")
def test_mnist(tmp_path):
    said = ran("noisy_mnist.py", tmp_path)
    ours, few = map(float, re.search(r"finding them: ([\d.]+); .* ([\d.]+)\n", said).groups())
    assert ours > few
    ours, few = map(float, re.search(r"accuracy: ([\d.]+); .* ([\d.]+)\n", said).groups())
    assert ours > few + 0.03


@pytest.mark.slow
def test_a_network_says_what_its_page_says(tmp_path):
    said = ran("network.py", tmp_path)
    page = (EXAMPLES.parent / "docs" / "networks.md").read_text()
    shown, found = ({name: (float(a), float(b or "nan")) for name, a, b in ROWS.findall(text)} for text in (page, said))
    assert shown.keys() == found.keys()
    for name in shown:  # another processor rounds otherwise, and a run of thousands of steps amplifies it
        assert shown[name] == pytest.approx(found[name], abs=0.04, nan_ok=True), name
    damped, undamped = found["AID-CG, damping 1"], found["AID-CG without damping"]
    assert damped[1] > undamped[1] + 0.15
    assert damped[0] > found["the trusted digits alone"][0] + 0.02
    assert "met negative curvature" in said


ROWS = re.compile(r"^(\w[^\n]{10,39}?) +(\d\.\d{3})(?: +(\d\.\d{3}))?$", re.MULTILINE)
