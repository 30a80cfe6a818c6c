"""Data: the right files or a message that says what to do, and the splits as stated. The network is not touched."""

import errno
import gzip
import hashlib
import importlib
import os
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import sklearn.datasets
from scipy.sparse import csr_matrix

from bilax import datasets
from bilax.datasets import store

# The functions of these names hide the modules.
mnist_module = importlib.import_module("bilax.datasets.mnist")
newsgroups_module = importlib.import_module("bilax.datasets.newsgroups")
presence_module = importlib.import_module("bilax.datasets.presence")

NOBODY = "http://127.0.0.1:9/"  # the discard port of this machine, on which nothing listens
needs_data = pytest.mark.skipif(
    not os.environ.get("BILAX_DATA_DIR"), reason="needs data that are not bundled: set BILAX_DATA_DIR"
)


# Small files in MNIST's format, and a server of them on this machine.


def idx(array):
    return gzip.compress(struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(256, size=(40, 28, 28), dtype=np.uint8), RNG.integers(10, size=40, dtype=np.uint8)
CONTENT = {
    "train-images-idx3-ubyte.gz": idx(IMAGES[:30]),
    "train-labels-idx1-ubyte.gz": idx(LABELS[:30]),
    "t10k-images-idx3-ubyte.gz": idx(IMAGES[30:]),
    "t10k-labels-idx1-ubyte.gz": idx(LABELS[30:]),
}
FIRST = "train-images-idx3-ubyte.gz"
SMALL = dict(train=20, trusted=10, test=10)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """MNIST is the small files, the cache is empty, and no mirror answers. Returns the cache."""
    files = [store.RemoteFile(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in CONTENT.items()]
    monkeypatch.setattr(mnist_module, "FILES", tuple(files))
    monkeypatch.setattr(presence_module, "FILES", tuple(files))
    monkeypatch.setattr(mnist_module, "MIRRORS", (NOBODY,))
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def own(small, monkeypatch, tmp_path):
    """The small files are in a folder of the user's. Returns the folder."""
    folder = tmp_path / "own" / "mnist"
    folder.mkdir(parents=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path / "own"))
    return folder


@pytest.fixture
def mirror(small, monkeypatch):
    """A server whose folders are mirrors of different quality: good, wrong, short, absent."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            _, quality, name = self.path.split("/")
            asked.append(self.path)
            body = CONTENT[name] if quality != "wrong" else b"<html>log in first</html>"
            self.send_response(404 if quality == "absent" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if quality == "short" else body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def use(*qualities):
        urls = [f"http://127.0.0.1:{server.server_port}/{quality}/" for quality in qualities]
        monkeypatch.setattr(mnist_module, "MIRRORS", tuple(urls))
        return asked

    yield use
    server.shutdown()
    thread.join()
    server.server_close()


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def check_small(task):
    np.testing.assert_array_equal(task.true_labels, LABELS[:20])
    np.testing.assert_array_equal(task.trusted_labels, LABELS[20:30])
    np.testing.assert_array_equal(task.test_labels, LABELS[30:])
    np.testing.assert_allclose(task.test_features[:, :-1], (IMAGES[30:].reshape(10, -1) / 255 - 0.1307) / 0.3081, 1e-5)


# MNIST: files of the user's


def test_own_files_need_no_pooch(own, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    check_small(datasets.mnist(**SMALL))


def test_an_own_file_that_is_missing(own):
    (own / FIRST).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        datasets.mnist(**SMALL)
    message = str(caught.value)
    assert message.startswith(f"{own / FIRST} is missing.")
    assert f"from {NOBODY}{FIRST}" in message
    assert f"{len(CONTENT[FIRST]):,} bytes" in message
    assert "unset BILAX_DATA_DIR" in message


@pytest.mark.parametrize("damage", [lambda c: c[:-100], lambda c: c[:-1] + b"!", lambda c: b""])
def test_a_damaged_own_file_is_refused_and_not_touched(own, damage):
    bad = damage(CONTENT[FIRST])
    (own / FIRST).write_bytes(bad)
    with pytest.raises(ValueError, match="is damaged or another file") as caught:
        datasets.mnist(**SMALL)
    message = str(caught.value)
    assert str(own / FIRST) in message
    assert f"found {len(bad):,} bytes with SHA-256 {hashlib.sha256(bad).hexdigest()}" in message
    good = hashlib.sha256(CONTENT[FIRST]).hexdigest()
    assert f"expected {len(CONTENT[FIRST]):,} bytes with SHA-256 {good}" in message
    assert NOBODY in message
    assert (own / FIRST).read_bytes() == bad


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(train=25, trusted=10), "MNIST has 30 training images; train = 25 and trusted = 10"),
        (dict(train=0), "train = 0"),
        (dict(test=11), "MNIST has 10 test images; test = 11 must be from 1 to that"),
        (dict(test=0), "test = 0"),
        (dict(noise=1.5), r"noise rate must be from 0 to 1; got 1\.5"),
    ],
)
def test_sizes_that_do_not_fit(own, given, message):
    with pytest.raises(ValueError, match=message):
        datasets.mnist(**{**SMALL, **given})


# MNIST: downloads


def test_a_download_happens_once(small, mirror):
    asked = mirror("good")
    check_small(datasets.mnist(**SMALL))
    assert asked == [f"/good/{name}" for name in CONTENT]
    check_small(datasets.mnist(**SMALL))
    assert len(asked) == 4
    assert files(small) == sorted(CONTENT)  # and nothing else, such as a temporary file


@pytest.mark.parametrize("bad", ["wrong", "short", "absent"])
def test_the_next_mirror_is_tried(small, mirror, bad):
    asked = mirror(bad, "good")
    check_small(datasets.mnist(**SMALL))
    assert asked[:2] == [f"/{bad}/{FIRST}", f"/good/{FIRST}"]
    assert files(small) == sorted(CONTENT)


def test_a_damaged_file_in_the_cache_is_downloaded_again(small, mirror):
    asked = mirror("good")
    (small / "mnist").mkdir(parents=True)
    (small / "mnist" / FIRST).write_bytes(CONTENT[FIRST][:-50])
    check_small(datasets.mnist(**SMALL))
    assert len(asked) == 4
    assert (small / "mnist" / FIRST).read_bytes() == CONTENT[FIRST]


@pytest.mark.parametrize(
    ("bad", "kind", "reason"),
    [
        ("wrong", ValueError, "sent 25 bytes with SHA-256"),
        ("short", FileNotFoundError, "failed (ChunkedEncodingError)"),
        ("absent", FileNotFoundError, "failed (HTTP 404 Not Found)"),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(small, mirror, bad, kind, reason):
    mirror(bad)
    with pytest.raises(kind) as caught:
        datasets.mnist(**SMALL)
    message = str(caught.value)
    assert message.startswith(f"{FIRST} could not be downloaded: {mnist_module.MIRRORS[0]}{FIRST} {reason}")
    good = hashlib.sha256(CONTENT[FIRST]).hexdigest()
    assert f"Expected: {len(CONTENT[FIRST]):,} bytes with SHA-256 {good}" in message
    assert f"put the file at {small / 'mnist' / FIRST} by hand" in message
    assert files(small) == []


def test_without_a_network(small, monkeypatch):
    monkeypatch.setattr(mnist_module, "MIRRORS", (NOBODY, NOBODY + "again/"))
    with pytest.raises(FileNotFoundError) as caught:
        datasets.mnist(**SMALL)
    message = str(caught.value)
    assert f"{NOBODY}{FIRST} failed (ConnectionError); {NOBODY}again/{FIRST} failed (ConnectionError)" in message
    assert f"set BILAX_DATA_DIR to a folder that holds mnist/{FIRST}" in message
    assert "\n" not in message
    assert files(small) == []


def test_an_interrupted_download_leaves_nothing(small, monkeypatch):
    def interrupt(self, url, output, caller):
        with open(output, "wb") as file:
            file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        datasets.mnist(**SMALL)
    assert files(small) == []


def test_a_full_disk_is_not_a_network_failure(small, monkeypatch):
    def full(self, url, output, caller):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", full)
    with pytest.raises(OSError, match=r"cannot write .*train-images.*No space left.*set BILAX_DATA_DIR"):
        datasets.mnist(**SMALL)


def test_without_pooch(monkeypatch):
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"need pooch: pip install 'bilax\[data\]', or set BILAX_DATA_DIR"):
        datasets.mnist()
    with pytest.raises(ImportError, match=r"need pooch: pip install 'bilax\[data\]'"):
        datasets.newsgroups()


def test_where_data_live(monkeypatch):
    import pooch

    monkeypatch.setenv("BILAX_DATA_DIR", "~/somewhere")
    assert store.folder("mnist").parts[-2:] == ("somewhere", "mnist")
    assert "~" not in str(store.folder("mnist"))
    monkeypatch.setenv("BILAX_DATA_DIR", "")  # as good as not set
    assert store.folder("mnist") == pooch.os_cache("bilax") / "mnist"


def test_mirrors_are_folders():
    assert len(mnist_module.MIRRORS) >= 2
    for url in mnist_module.MIRRORS:
        assert url.startswith("https://")
        assert url.endswith("/mnist/")


# MNIST itself

PUBLISHED_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


@needs_data
def test_the_checksums_belong_to_the_published_files():
    assert [file.name for file in mnist_module.FILES] == list(PUBLISHED_MD5)
    for file in mnist_module.FILES:
        content = store.fetch(file, "mnist", mnist_module.MIRRORS).read_bytes()
        assert hashlib.md5(content).hexdigest() == PUBLISHED_MD5[file.name]
        assert hashlib.sha256(content).hexdigest() == file.sha256


@needs_data
def test_mnist():
    task = datasets.mnist(0.25, seed=5)
    assert task.features.shape == (20_000, 785)
    assert task.trusted_features.shape == (5_000, 785)
    assert task.test_features.shape == (10_000, 785)
    assert [len(task.labels), len(task.trusted_labels), len(task.test_labels)] == [20_000, 5_000, 10_000]
    assert task.classes == 10
    assert (task.labels != task.true_labels).sum() == 5_000
    assert set(np.unique(task.labels)) == set(range(10))

    labels = mnist_module._read(mnist_module.FILES[1])
    np.testing.assert_array_equal(task.true_labels, labels[:20_000])
    np.testing.assert_array_equal(task.trusted_labels, labels[20_000:25_000])  # clean
    for array in task[:-1]:
        assert not array.flags.writeable

    again, other = datasets.mnist(0.25, seed=5), datasets.mnist(0.25, seed=6, test=1)
    np.testing.assert_array_equal(task.labels, again.labels)
    assert (task.labels != other.labels).any()
    np.testing.assert_array_equal(task.true_labels, other.true_labels)


# The 20 newsgroups


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
    assert files(tmp_path) == []


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
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


# What is there


def test_status_of_own_files(own):
    digits, mnist, newsgroups = datasets.status()
    assert digits == ("digits", "present", "in scikit-learn", "")
    assert mnist == ("mnist", "present", str(own), "")
    assert newsgroups[:3] == ("newsgroups", "missing", str(own.parent / "sklearn"))
    assert "put 20news-bydate_py3.pkz, 20newsgroup_vectorized_py3.pkl into" in newsgroups.remedy
    (own / FIRST).write_bytes(b"half")
    mnist = datasets.status()[1]
    assert mnist.state == "missing"
    assert f"put {FIRST} into {own}: download" in mnist.remedy


def test_status_of_the_cache(small, mirror):
    asked = mirror("good")
    before = datasets.status()
    assert [entry.state for entry in before] == ["present", "missing", "missing"]
    assert before[1].remedy == 'python -c "import bilax; bilax.datasets.mnist()"'
    assert before[2].remedy == 'python -c "import bilax; bilax.datasets.newsgroups()"'
    assert asked == []
    assert not small.exists()
    datasets.mnist(**SMALL)
    assert datasets.status()[1] == ("mnist", "present", str(small / "mnist"), "")


def test_status_without_the_extra(monkeypatch):
    monkeypatch.setattr(presence_module, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    assert [(entry.state, entry.remedy) for entry in datasets.status()] == [
        ("missing", "pip install 'bilax[data]'")
    ] * 3


@needs_data
def test_status_of_the_real_data():
    assert [entry.state for entry in datasets.status()] == ["present"] * 3
