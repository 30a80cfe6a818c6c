"""Mistakes with files: data sets, ready-made problems, folders of runs, checkpoints."""

import gzip
import importlib

import numpy as np
import pytest
from mistakes import kept, refused, row, run

import bilax
from bilax import datasets
from bilax.problems import corrupt_labels

FIRST = importlib.import_module("bilax.datasets.mnist").FILES[0].name


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    return tmp_path / "mnist"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        row(
            None,
            FileNotFoundError,
            rf"{FIRST} is missing\. Put it there, from https.*or unset BILAX_DATA_DIR",
            id="missing",
        ),
        row(b"", ValueError, rf"{FIRST} is damaged or another file: found 0 bytes", id="empty"),
        row(b"<html>", ValueError, r"is damaged or another file: found 6 bytes.*Replace it by", id="a page"),
        row(
            b"\0\0\x08\x03" + bytes(16), ValueError, r"is damaged or another file: found 20 bytes", id="not compressed"
        ),
        row(
            gzip.compress(b"\0\0\x08\x03"),
            ValueError,
            r"is damaged or another file: found",
            id="compressed, but cut off",
        ),
    ],
)
def test_data_files(content, error, message, own_folder):
    if content is not None:
        (own_folder / FIRST).write_bytes(content)
    refused(datasets.mnist, error, message)


def test_a_folder_in_place_of_a_data_file(own_folder):
    (own_folder / FIRST).mkdir()
    refused(datasets.mnist, FileNotFoundError, rf"{FIRST} is missing")


def test_a_file_in_place_of_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "data").touch()
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path / "data"))
    refused(datasets.mnist, FileNotFoundError, rf"{FIRST} is missing.*unset BILAX_DATA_DIR")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        row(
            lambda: datasets.digits(train=0),
            ValueError,
            r"there are 1797 digits; train = 0 and trusted = 297 must be at least 1",
            id="digits: none",
        ),
        row(
            lambda: datasets.digits(train=1500),
            ValueError,
            r"train = 1500 and trusted = 297 .*leave some to test on",
            id="digits: too many",
        ),
        row(
            lambda: datasets.digits(train=10.5),
            (TypeError, ValueError),
            r"train must be a whole number.*got 10\.5",
            id="digits: half of one",
        ),
        row(
            lambda: datasets.digits(train="all"),
            (TypeError, ValueError),
            r"train must be a whole number.*got 'all'",
            id="digits: text",
        ),
        row(
            lambda: datasets.digits(noise=-0.1),
            ValueError,
            r"the noise rate must be a number from 0 to 1; got -0\.1",
            id="digits: noise negative",
        ),
        row(
            lambda: datasets.digits(noise=float("nan")),
            ValueError,
            r"the noise rate must be a number from 0 to 1; got nan",
            id="digits: noise NaN",
        ),
        row(
            lambda: datasets.digits(noise="0.3"),
            (TypeError, ValueError),
            r"the noise rate must be .*from 0 to 1; got '0\.3'",
            id="digits: noise text",
        ),
        row(
            lambda: datasets.digits(seed=-1),
            ValueError,
            r"seed must be .*integer.*got -1",
            id="digits: seed negative",
        ),
        row(
            lambda: datasets.digits(seed="a"),
            (TypeError, ValueError),
            r"seed must be .*integer.*got 'a'",
            id="digits: seed text",
        ),
        row(
            lambda: corrupt_labels(np.zeros(3, int), 0.5, 1, 0),
            ValueError,
            r"among at least 2 classes; got 1",
            id="labels of one class",
        ),
        row(
            lambda: bilax.problems.hyper_cleaning(None),
            TypeError,
            r"HyperCleaning.*got NoneType",
            id="hyper_cleaning: nothing",
        ),
        row(
            lambda: bilax.problems.hyper_cleaning(datasets.digits(), C="small"),
            (TypeError, ValueError),
            r"C must be .*got 'small'",
            id="hyper_cleaning: C text",
        ),
        row(
            lambda: bilax.problems.quadratic(p=0),
            ValueError,
            r"p must be an integer >= 1; got 0",
            id="quadratic: p 0",
        ),
        row(
            lambda: bilax.problems.quadratic(mu=2.0, L=1.0),
            ValueError,
            r"mu .*L",
            id="quadratic: mu above L",
        ),
        row(
            lambda: bilax.problems.quadratic(mu=0.0),
            ValueError,
            r"mu must be .*> 0 and at most L; got mu = 0\.0",
            id="quadratic: mu 0",
        ),
    ],
)
def test_ready_made_data_and_problems(call, error, message):
    refused(call, error, message)


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        row(
            lambda path: kept(path, manifest="{"),
            bilax.Doubtful,
            r"manifest\.json is damaged.*left out; run it again",
            id="a damaged manifest",
        ),
        row(lambda path: kept(path, manifest="[]"), ValueError, r"holds no runs", id="a manifest of something else"),
        row(
            lambda path: kept(path, rows='{"k": \n{"k": 5}\n'),
            bilax.Doubtful,
            r"line 1 of .*rows\.jsonl is damaged",
            id="a damaged line",
        ),
        row(
            lambda path: kept(path, rows="5\n6\n"),
            bilax.Doubtful,
            r"line 1 of .*rows\.jsonl is damaged",
            id="numbers for rows",
        ),
        row(lambda path: kept(path, rows=""), ValueError, r"holds no runs", id="no rows"),
        row(lambda path: path.touch(), ValueError, r"holds no runs", id="a file in place of a run"),
    ],
)
def test_run_folders(write, error, message, tmp_path):
    write(tmp_path / "run")
    refused(lambda: bilax.results.load(tmp_path), error, message)


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        row(5, TypeError, r"give the name of a folder.*got 5", id="a number"),
        row(None, TypeError, r"give the name of a folder.*got None", id="None"),
        row(
            __file__, (ValueError, OSError), r"test_mistakes_in_files\.py is damaged, or not a checkpoint", id="a file"
        ),
    ],
)
def test_loading_what_is_no_folder(folder, error, message):
    refused(lambda: bilax.results.load(folder), error, message)


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        row(
            lambda path: path.touch(),
            ValueError,
            r"is a file, not a folder; remove it, or give another checkpoint_dir",
            id="a file",
        ),
        row(
            lambda path: (path / "checkpoint.bin").mkdir(parents=True),
            (OSError, ValueError),
            r"checkpoint\.bin is a folder|checkpoint\.bin is damaged",
            id="a folder in place of the checkpoint",
        ),
        row(
            lambda path: (path.mkdir(), (path / "checkpoint.bin").write_bytes(b"bilax checkpoint 0 x\n")),
            bilax.Doubtful,
            r"checkpoint\.bin is damaged, or not a checkpoint of this version.*set aside as checkpoint\.bin\.damaged",
            id="a checkpoint of another format",
        ),
        row(
            lambda path: run(seed=1, checkpoint_dir=path),
            ValueError,
            r"is of another run: seed is 1 there and 0 here.*remove that file to begin anew",
            id="a checkpoint of another seed",
        ),
    ],
)
def test_checkpoints(prepare, error, message, tmp_path):
    prepare(tmp_path / "kept")
    refused(lambda: run(checkpoint_dir=tmp_path / "kept"), error, message)
