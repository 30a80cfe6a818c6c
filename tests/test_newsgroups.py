"""The 20 newsgroups, and digits as documents: the splits as stated, or a message that says what to do."""

import importlib
import os
import sys
import time

import numpy as np
import pytest
import sklearn.datasets
from real_data import needs_data
from scipy.sparse import csr_matrix

from bilax import datasets
from bilax.datasets import store

# The functions of these names hide the modules.
mnist_module = importlib.import_module("bilax.datasets.mnist")
newsgroups_module = importlib.import_module("bilax.datasets.newsgroups")
availability_module = importlib.import_module("bilax.datasets.availability")

NOBODY = "http://127.0.0.1:9/"  # the discard port of this machine, on which nothing listens


def check_documents(data, sizes, features, classes):
    """Shapes, types, unit rows, nothing writable, nothing dense."""
    parts = [(data[0], data[1]), (data[2], data[3]), (data[4], data[5])]
    assert data.classes == classes
    assert [matrix.shape for matrix, _ in parts] == [(size, features) for size in sizes]
    for matrix, labels in parts:
        assert matrix.format == "csr"
        assert matrix.dtype == np.float32
        assert matrix.has_canonical_format
        assert labels.dtype == np.int32
        assert labels.shape == (matrix.shape[0],)
        assert set(np.unique(labels)) == set(range(classes))
        np.testing.assert_allclose((matrix.multiply(matrix)).sum(axis=1), 1, rtol=1e-5)
        for array in (matrix.data, matrix.indices, matrix.indptr, labels):
            assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        data.features.data[0] = 1


def same(a, b):
    return all(
        np.array_equal(x, y) if isinstance(x, np.ndarray) else (x.shape == y.shape and (x != y).nnz == 0)
        for x, y in zip(a[:-1], b[:-1], strict=True)
    )


def test_digit_documents():
    data = datasets.digit_documents(seed=1)
    check_documents(data, (700, 700, 397), features=64, classes=10)
    assert same(data, datasets.digit_documents(seed=1))
    assert not same(data, datasets.digit_documents(seed=2))
    stored = sum(matrix.nnz for matrix in data[:-1:2])
    assert stored == np.count_nonzero(sklearn.datasets.load_digits().data)  # the same pixels, each in one part
    assert 0 < data.features.data.min() <= data.features.data.max() <= 1


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Stands in for scikit-learn: data of the right shape with a row's number in it. Returns the cache."""
    place = tmp_path / "cache" / "sklearn"

    def fake(*, subset, data_home, download_if_missing, return_X_y):
        counts = place / newsgroups_module.COUNTS
        assert data_home == str(store.folder("sklearn"))
        assert download_if_missing == (not os.environ.get("BILAX_DATA_DIR"))
        if counts.is_file() and counts.read_text() == "broken":
            raise EOFError
        n = {"train": 11_314, "test": 7_532}[subset]
        columns = np.column_stack([np.full(n, 130_106), np.arange(n)])  # not in order
        values = np.tile([0.6, 0.8], n)
        indptr = np.arange(0, 2 * n + 1, 2)
        return csr_matrix((values, columns.ravel(), indptr), shape=(n, 130_107)), np.arange(n) % 20

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups_vectorized", fake)
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    place.mkdir(parents=True)
    return place


def test_newsgroups_are_halved(fetch):
    data = datasets.newsgroups(seed=3)
    check_documents(data, (5_657, 5_657, 7_532), features=130_107, classes=20)
    first, second = data.features.indices[::2], data.validation_features.indices[::2]
    assert sorted([*first, *second]) == list(range(11_314))  # every document once
    np.testing.assert_array_equal(data.labels, first % 20)  # with its own label
    np.testing.assert_array_equal(data.validation_labels, second % 20)
    assert np.abs(np.bincount(data.labels) - np.bincount(data.validation_labels)).max() <= 1
    assert same(data, datasets.newsgroups(seed=3))
    assert not same(data, datasets.newsgroups(seed=4))


def test_broken_counts_in_the_cache_are_made_again(fetch):
    counts = fetch / newsgroups_module.COUNTS
    counts.write_text("broken")
    assert datasets.newsgroups().classes == 20
    assert not counts.exists()


def test_other_data_are_refused(fetch, monkeypatch):
    monkeypatch.setattr(newsgroups_module, "FEATURES", 7)
    with pytest.raises(ValueError, match=r"found \(11314, 130107\) training .* expected \(11314, 7\)"):
        datasets.newsgroups()


def test_newsgroups_that_are_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"lacks .*pkz and 20newsgroup_vectorized_py3\.pkl\. Run sklearn"):
        datasets.newsgroups()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / newsgroups_module.TEXTS).write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"sklearn lacks 20newsgroup_vectorized_py3\.pkl\."):
        datasets.newsgroups()


def test_own_newsgroups_that_are_broken(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    (tmp_path / "sklearn").mkdir()
    for name in (newsgroups_module.TEXTS, newsgroups_module.COUNTS):
        (tmp_path / "sklearn" / name).write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"cannot be read \(OSError: .*\); expected scikit-learn's cached data"):
        datasets.newsgroups()
    assert capsys.readouterr().out == ""
    assert (tmp_path / "sklearn" / newsgroups_module.TEXTS).read_bytes() == b"broken"


@pytest.mark.filterwarnings("ignore:Retry downloading")
def test_newsgroups_without_a_network(monkeypatch, tmp_path):
    source = importlib.import_module("sklearn.datasets._twenty_newsgroups")
    monkeypatch.setattr(source, "ARCHIVE", source.ARCHIVE._replace(url=NOBODY))
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(FileNotFoundError, match=r"could not fetch them \(URLError: .*or set BILAX_DATA_DIR"):
        datasets.newsgroups()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_without_scikit_learn(monkeypatch):
    for name in ("sklearn", "sklearn.model_selection", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    for load in (datasets.digits, datasets.digit_documents, datasets.newsgroups):
        with pytest.raises(ImportError, match=r"pip install 'bilax\[data\]'"):
            load()


@needs_data
def test_newsgroups():
    data = datasets.newsgroups(seed=1)
    check_documents(data, (5_657, 5_657, 7_532), features=130_107, classes=20)
    stored = [matrix.nnz for matrix in data[:-1:2]]
    assert stored[0] + stored[1] == 1_787_565
    assert stored[2] == 1_107_956
    assert np.abs(np.bincount(data.labels) - np.bincount(data.validation_labels)).max() <= 1

    def rows(matrix, labels):
        ends = zip(matrix.indptr, matrix.indptr[1:], labels, strict=False)
        return [(matrix.indices[a:b].tobytes(), matrix.data[a:b].tobytes(), int(label)) for a, b, label in ends]

    place = os.path.join(os.environ["BILAX_DATA_DIR"], "sklearn")
    whole, labels = sklearn.datasets.fetch_20newsgroups_vectorized(
        data_home=place, download_if_missing=False, return_X_y=True
    )
    halves = rows(data.features, data.labels) + rows(data.validation_features, data.validation_labels)
    assert sorted(halves) == sorted(rows(whole.astype(np.float32), labels))  # every document once
