"""Pages and pictures are what the kept measurements give: `make figures` writes nothing new."""

import json
import sys
from pathlib import Path

import pytest
from test_experiments import finished, written

import bilax
from bilax.experiments.pages import stored_runs
from bilax.results import load

WEBSITE = Path(__file__).parent.parent / "website"


@pytest.fixture(scope="module")
def figures():
    before = list(sys.path)
    sys.path.insert(0, str(WEBSITE))
    import figures

    yield figures
    sys.path[:] = before


def test_every_page_has_the_tables_that_its_measurements_give(figures):
    found = figures.texts()
    assert {path.name for path in found} >= {"performance.md", "scale.md", "benchmark.md", "experiments.md"}
    for path, text in found.items():
        assert path.read_text() == text, f"{path.name} is not what docs/measured gives; run: make figures"


def test_every_picture_of_a_measurement_is_drawn_again(figures, tmp_path):
    figures.pictures(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    there = {path.name for path in (WEBSITE.parent / "docs" / "images").glob("*.png")}
    assert drawn <= there
    assert "benchmark-ijcnn1.png" in drawn


def test_kept_runs_are_the_runs(figures, tmp_path):
    algorithm = bilax.MRBO(S=10)
    for seed in range(2):
        finished(tmp_path / "runs", method="MRBO", **written(algorithm), seed=seed, budget=1.0)
    path = figures.keep(tmp_path / "runs", "mine", ("k", "train_loss"), tmp_path / "kept")
    figures.unpack(path, tmp_path / "again")
    before, after = (
        sorted((run.facts for run in stored_runs(tmp_path / name)), key=json.dumps) for name in ("runs", "again")
    )
    assert before == after
    one, two = (load(tmp_path / name) for name in ("runs", "again"))
    assert one[["k", "train_loss"]].equals(two[["k", "train_loss"]])
