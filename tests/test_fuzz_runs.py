"""Runs whose rows, manifests or arrays are anything at all."""

import gc
import io
import json
import warnings

import numpy as np
import pytest
from fuzzing import JSON, altered, answer, fuzz, mutated
from hypothesis import strategies as st

from bilax.errors import Doubts
from bilax.paper import pages
from bilax.results import load
from bilax.storage.runs import Record, is_finished, manifests, read_manifest, read_rows

pytestmark = pytest.mark.slow


FACTS = {
    "task": "digits-p0.3",
    "variant": "own",
    "method": "MRBO",
    "setting": "mrbo[S=1]",
    "seed": 3,
    "title": "digits",
}
FACTS |= {"sampler": "iid", "steps": 5, "budget": None, "command": "bilax run", "algorithm": "mrbo", "parameters": {}}
ROWS = [{"k": 0, "seconds": 0.0, "loss": 2.0}, {"k": 5, "seconds": 0.1, "loss": float("nan"), "auroc": 0.9}]


@pytest.fixture
def run(tmp_path):
    """A finished run, in a folder of its own."""
    record = Record(tmp_path / "runs" / "a", FACTS).begin()
    for row in ROWS:
        record.row(row)
    record.end(status="done", message="5 steps taken.", warnings=[], seconds=0.1)
    return tmp_path / "runs" / "a"


def check_reading(run):
    rows = answer(read_rows, run, kinds=())
    assert all(isinstance(row, dict) for row in rows)
    manifest = answer(read_manifest, run, Doubts(), kinds=())
    assert manifest is None or isinstance(manifest["setting"], str)
    assert answer(manifests, run.parent, kinds=()) == ({} if manifest is None else {run: manifest})
    table = answer(load, run.parent)
    if table is not None:
        assert len(table) == len(rows)
        assert {"run", "task", "setting", "status"} <= set(table)


def lines(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_rows(run):
    valid = (run / "rows.jsonl").read_bytes()

    def check(content):
        (run / "rows.jsonl").write_bytes(content)
        check_reading(run)

    check(valid)
    assert len(load(run.parent)) == 2
    objects = st.lists(altered(ROWS[1]) | JSON, max_size=4).map(lines)
    nested = [(100_000 * b"[" + b"\n",), (100_000 * b'{"a":',), (b'{"k": 1' + 5000 * b"0" + b"}\n",)]
    fuzz(check, st.binary(max_size=200) | mutated(valid) | objects, explicit=nested)


def test_manifests(run):
    valid = (run / "manifest.json").read_bytes()

    def check(content):
        (run / "manifest.json").write_bytes(content)
        check_reading(run)

    check(valid)
    assert set(load(run.parent)["method"]) == {"MRBO"}
    objects = (altered(json.loads(valid)) | JSON).map(lambda value: json.dumps(value).encode())
    nested = [(100_000 * b"[",), (100_000 * b'{"a":',), (b"1" + 5000 * b"0",), (b"",), (b"\xff\xfe",)]
    fuzz(check, st.binary(max_size=200) | mutated(valid) | objects, explicit=nested)


def test_folders_in_place_of_files(run):
    for name in ("rows.jsonl", "manifest.json"):
        (run / name).unlink()
        (run / name).mkdir()
        check_reading(run)


@pytest.mark.parametrize("rows", ["2", None, [2], {}])
def test_a_run_is_not_finished_if_its_manifest_makes_no_sense(run, rows):
    assert is_finished(run)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"rows": rows}))
    assert not is_finished(run)


# The page of runs, whose manifests and arrays anybody may have written


def arrays():
    images, labels = np.zeros((3, 8, 8), np.float16), np.zeros(3, np.uint8)
    return {"weights": np.ones(3), "given": labels, "true": labels, "least": np.arange(3), "images": images}


def test_a_page_of_what_is_whole(run):
    np.savez_compressed(run / "arrays.npz", **arrays())
    page = pages.page(run.parent)
    assert len(page.figures) == 1
    assert len(page.galleries[0].specimens) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"task": ...},
        {"task": 5},
        {"seed": ...},
        {"title": ...},
        {"picture": {"nonsense": 1}},
        {"picture": []},
        {"versions": []},
        {"machine": None},
        {"started": ...},
        {"commit": ...},
        {"warnings": {"a": 1}},
        {"sampler": ...},
        {"status": ["x"]},
    ],
    ids=str,
)
def test_a_page_of_a_manifest_that_makes_no_sense(run, change):
    """The run is left out, or the error is a documented one that names the file."""
    manifest = json.loads((run / "manifest.json").read_text()) | change
    left = {name: value for name, value in manifest.items() if value is not ...}
    (run / "manifest.json").write_text(json.dumps(left))
    answer(pages.page, run.parent)


def test_a_page_of_damaged_arrays(run):
    """The gallery is left out, or the error is a documented one."""
    path = run / "arrays.npz"
    np.savez_compressed(path, **arrays())
    valid = path.read_bytes()

    def check(content):
        path.write_bytes(content)
        failure = None
        with warnings.catch_warnings():  # what is left open is closed here, not in the middle of another test
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                answer(pages.page, run.parent)
            except Exception as error:
                failure = repr(error)
            if failure:
                gc.collect()
        assert failure is None

    without, outside = io.BytesIO(), io.BytesIO()
    np.savez(without, weights=np.ones(3))
    np.savez(outside, **arrays() | {"least": np.array([7])})
    explicit = [(b"PK\x03\x04",), (valid[:-30],), (without.getvalue(),), (outside.getvalue(),)]
    fuzz(check, st.binary(max_size=100) | mutated(valid), explicit=explicit)
