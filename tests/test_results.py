"""What runs leave on disk, and reading it back."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bilax import MRBO, STABLE, Doubtful, Problem, solve
from bilax.problems import quadratic
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
    with pytest.warns(Doubtful, match=r"line 1 of .*rows.jsonl is damaged and left out"):
        assert load(tmp_path)["k"].tolist() == [5]
    (tmp_path / "a" / "manifest.json").write_text("{")
    Record(tmp_path / "b", FACTS).begin().row({"k": 7})
    with pytest.warns(Doubtful, match=r"manifest.json is damaged .*, so this run is left out"):
        assert load(tmp_path)["k"].tolist() == [7]  # the others are there


@pytest.mark.parametrize("algorithm", [MRBO(S=4), MRBO(gamma=optax.adam(0.01), S=4), STABLE()], ids=str)
def test_a_result_is_saved_and_loaded_bit_for_bit(tmp_path, algorithm):
    problem = quadratic().problem
    result = solve(problem, algorithm, steps=8)
    result.save(tmp_path / "result")
    again = load(tmp_path / "result")
    jax.tree.map(np.testing.assert_array_equal, again.state, result.state)
    assert (again.counts, again.status, again.message) == (result.counts, result.status, result.message)
    assert again.history.rows == result.history.rows
    rest = [solve(problem, algorithm, steps=3, state=state) for state in (again.state, result.state)]
    np.testing.assert_array_equal(rest[0].x, rest[1].x)


def test_a_result_with_a_tree_and_a_file_that_is_no_result(tmp_path):
    loss = lambda x, y, b: jnp.mean((y["a"] - x[0] - b) ** 2) + jnp.sum((y["b"] - x[1]) ** 2)
    problem = Problem(loss, loss, np.ones(4), np.ones(4))
    start = (0.0, np.zeros(2)), {"b": np.zeros(2), "a": 0.0}
    result = solve(problem, MRBO(S=2), *start, steps=3)
    result.save(tmp_path / "result")
    again = load(tmp_path / "result")
    jax.tree.map(np.testing.assert_array_equal, (again.x, again.y), (result.x, result.y))
    solve(problem, MRBO(S=2), *start, steps=3, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="is a checkpoint of a run, not a result"):
        load(tmp_path / "checkpoint.bin")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="text is damaged, or not a checkpoint"):
        load(tmp_path / "text")


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no runs"):
        load(tmp_path)


def test_the_manifest_is_plain_json(tmp_path):
    Record(tmp_path, FACTS).begin()
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 3
