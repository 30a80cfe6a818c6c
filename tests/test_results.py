"""What runs leave on disk, and reading it back."""

import json

import numpy as np
import pytest

from bilax.results import load
from bilax.storage.runs import FINISHED, Record, manifests

FACTS = {"task": "digits-p0.3", "variant": "own", "method": "MRBO", "setting": "mrbo[S=1]", "seed": 3}


def test_a_run_is_written_as_it_happens(tmp_path):
    record = Record(tmp_path / "a", FACTS).begin()
    record.row({"k": 0, "seconds": 0.0, "loss": np.float32(2.0)})
    record.row({"k": 5, "seconds": 0.1, "loss": float("nan"), "diverging": np.bool_(False)})
    table = load(tmp_path)
    assert table["status"].tolist() == ["running", "running"]
    assert table["k"].tolist() == [0, 5]
    assert np.isnan(table["loss"][1])
    assert table["method"].tolist() == ["MRBO"] * 2
    record.end(status="done", message="5 steps taken.", seconds=0.1)
    manifest = manifests(tmp_path)[tmp_path / "a"]
    assert manifest["status"] in FINISHED
    assert manifest["versions"]["jax"]
    assert manifest["machine"]["cpus"] >= 1
    assert manifest["started"] <= manifest["finished"]
    assert (load(tmp_path)["status"] == "done").all()


def test_beginning_again_removes_what_was_left(tmp_path):
    record = Record(tmp_path / "a", FACTS).begin()
    record.row({"k": 0})
    record.arrays(weights=np.ones(3))
    Record(tmp_path / "a", FACTS).begin().row({"k": 1})
    assert load(tmp_path)["k"].tolist() == [1]
    assert not (tmp_path / "a" / "arrays.npz").exists()


def test_a_line_that_was_cut_off_is_left_out_and_a_damaged_one_is_told(tmp_path):
    record = Record(tmp_path / "a", FACTS).begin()
    record.row({"k": 0})
    rows = tmp_path / "a" / "rows.jsonl"
    rows.write_text(rows.read_text() + '{"k": 5, "los')
    assert load(tmp_path)["k"].tolist() == [0]
    rows.write_text('{"k": \n{"k": 5}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*rows.jsonl is damaged"):
        load(tmp_path)
    (tmp_path / "a" / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest.json is damaged; remove"):
        load(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no runs"):
        load(tmp_path)


def test_the_manifest_is_plain_json(tmp_path):
    Record(tmp_path, FACTS).begin()
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 3
