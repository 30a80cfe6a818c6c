"""Every file in examples/ runs alone, as the site offers it, and says what it promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES.parent / "website"))

import generated  # noqa: E402


def ran(name, folder, *arguments):
    (folder / name).write_text(generated.alone(EXAMPLES / name))  # as one file, with nothing beside it
    command = [sys.executable, folder / name, *arguments, "--picture", "picture.png"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert run.returncode == 0, run.stderr
    assert (folder / "picture.png").is_file()  # the gallery shows it
    return "\n".join(line.rstrip() for line in run.stdout.splitlines()) + "\n"


def test_every_example_is_run_here():
    here = Path(__file__).read_text()
    assert all(f'"{path.name}"' in here for path in EXAMPLES.glob("[!_]*.py"))


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


def recipe(name, folder):
    """Return the rows of a recipe's table, of its quick mode, and whether each comes from a bilevel problem."""
    file = folder / "recipes.json"
    ran(name, folder, "--quick", "--json", str(file))
    assert (folder / "picture.png").stat().st_size > 10_000
    return {row["name"]: row["figures"] for row in json.loads(file.read_text())[name]["rows"]}


@pytest.mark.slow
def test_distilled_images_are_better_than_real_ones_and_means(tmp_path):
    rows = {name: accuracy for name, (accuracy,) in recipe("distillation.py", tmp_path).items()}
    assert rows["20 distilled images"] > rows["two means for each digit, by k-means"] + 0.01
    assert rows["two means for each digit, by k-means"] > rows["20 real digits, mean of 20 draws"] + 0.05


@pytest.mark.slow
@pytest.mark.skipif("BILAX_DATA_DIR" not in os.environ, reason="needs MNIST")
def test_a_convolutional_network_gives_the_same_in_every_framework(tmp_path):
    rows = recipe("cnn_mnist.py", tmp_path)
    equinox, linen, nnx = (rows[f"reverse, {name}"] for name in ("equinox", "flax linen", "flax nnx"))
    assert equinox == pytest.approx(linen, abs=0.02)
    assert nnx == pytest.approx(linen, abs=0.02)
    assert linen[1] > 0.75


@pytest.mark.slow
def test_a_learned_start_makes_new_tasks_easier(tmp_path):
    rows = {name: error for name, (error,) in recipe("meta_learning.py", tmp_path).items()}
    learned = rows.pop("a learned network, its last layer adapted")
    assert all(learned < 0.8 * error for error in rows.values())


@pytest.mark.slow
def test_weight_decays_are_learned(tmp_path):
    rows = recipe("weight_decay_per_layer.py", tmp_path)
    assert rows["learned"][0] < 0.98 * rows["no decay"][0]
    assert rows["learned"][0] < 1.05 * rows["one, by grid"][0]


@pytest.mark.slow
@pytest.mark.skipif("BILAX_DATA_DIR" not in os.environ, reason="needs 20 Newsgroups")
def test_sources_of_text_are_weighted(tmp_path):
    rows = {name: bits for name, (bits,) in recipe("text_sources.py", tmp_path).items()}
    learned = rows["sources by their learned weights"]
    assert learned < rows["all sources alike"] - 0.01
    assert learned < rows["the trusted text alone"] - 0.1


@pytest.mark.slow
@pytest.mark.skipif("BILAX_DATA_DIR" not in os.environ, reason="needs CIFAR-10")
def test_wrong_labels_of_cifar10_are_found(tmp_path):
    rows = recipe("cifar10.py", tmp_path)
    assert rows["learned weights, by reverse"][1] > 0.55
    assert rows["learned weights, by reverse"][0] > rows["all labels as given"][0] - 0.02


ROWS = re.compile(r"^(\w[^\n]{10,39}?) +(\d\.\d{3})(?: +(\d\.\d{3}))?$", re.MULTILINE)
