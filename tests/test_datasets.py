"""Data: the right files or a message that says what to do, and the splits as stated. The network is not touched."""

import errno
import gzip
import hashlib
import importlib
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from real_data import needs_data

from bilax import datasets
from bilax.datasets import store

# The functions of these names hide the modules.
mnist_module = importlib.import_module("bilax.datasets.mnist")
newsgroups_module = importlib.import_module("bilax.datasets.newsgroups")
availability_module = importlib.import_module("bilax.datasets.availability")

NOBODY = "http://127.0.0.1:9/"  # the discard port of this machine, on which nothing listens


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
    monkeypatch.setattr(availability_module, "FILES", tuple(files))
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
        (dict(noise=1.5), r"noise rate must be a number from 0 to 1; got 1\.5"),
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


# CIFAR-10


@pytest.fixture
def cifar(monkeypatch, tmp_path):
    """A folder of the user's with the first training file and the test file. Returns it, and what they hold."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rows = RNG.integers(256, size=(10_000, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (folder / name).write_bytes(rows.tobytes())
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    return folder, rows


def test_cifar10_from_one_training_file(cifar):
    _, rows = cifar
    assert datasets.cifar10_batches() == ("data_batch_1.bin",)
    task = datasets.cifar10(0.4, train=50, trusted=10, test=20, seed=3)
    assert task.features.shape == (50, 3073)
    assert task.corrupted.sum() == 20
    np.testing.assert_array_equal(task.true_labels, rows[:50, 0])
    np.testing.assert_array_equal(task.trusted_labels, rows[50:60, 0])
    np.testing.assert_array_equal(task.test_labels, rows[:20, 0])
    red, _, blue = rows[0, 1:].reshape(3, 32, 32) / 255
    image = task.features[0, :-1].reshape(32, 32, 3)
    np.testing.assert_allclose(image[..., 0], (red - 0.4914) / 0.247, atol=1e-5)
    np.testing.assert_allclose(image[..., 2], (blue - 0.4465) / 0.2616, atol=1e-5)


def test_cifar10_takes_the_training_files_that_are_there(cifar):
    folder, rows = cifar
    with pytest.raises(
        ValueError, match="holds 10,000 training images, in 1 of 5 files; train = 10000 and trusted = 5"
    ):
        datasets.cifar10(train=10_000, trusted=5)
    (folder / "data_batch_3.bin").write_bytes(rows[::-1].tobytes())
    assert datasets.cifar10_batches() == ("data_batch_1.bin", "data_batch_3.bin")
    task = datasets.cifar10(train=10_000, trusted=5, test=1)
    np.testing.assert_array_equal(task.trusted_labels, rows[::-1][:5, 0])


def test_cifar10_refuses_what_is_missing_or_broken(cifar):
    folder, rows = cifar
    with pytest.raises(ValueError, match=r"CIFAR-10 has 10,000 test images; test = 0"):
        datasets.cifar10(test=0)
    wrong = rows.copy()
    wrong[7, 0] = 200
    (folder / "data_batch_1.bin").write_bytes(wrong.tobytes())
    with pytest.raises(ValueError, match=r"data_batch_1.bin is damaged.*image 7 has the label 200, and there are 10"):
        datasets.cifar10()
    (folder / "data_batch_1.bin").write_bytes(rows.tobytes()[:-1])
    with pytest.raises(ValueError, match=r"it has 30,729,999 bytes, a file of CIFAR-10 has 30,730,000\. Replace it"):
        datasets.cifar10()
    (folder / "data_batch_1.bin").unlink()
    (folder / "test_batch.bin").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"lacks data_batch_1.bin and test_batch.bin\. Put the files of CIFAR-10"
    ):
        datasets.cifar10()


@needs_data
def test_cifar10_itself():
    task = datasets.cifar10()
    assert task.features.shape == (9_000, 3073)
    assert np.abs(task.features[:, :-1].mean()) < 0.05
    assert np.bincount(task.test_labels).tolist() == [1_000] * 10


# What is there


def test_status_of_own_files(own):
    digits, mnist, newsgroups, ijcnn1, covtype, cifar10 = datasets.status()
    assert ijcnn1.state == covtype.state == cifar10.state == "missing"
    assert cifar10.remedy.startswith(
        f"put data_batch_1.bin and test_batch.bin into {own.parent / 'cifar-10-batches-bin'}"
    )
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
    assert [entry.state for entry in before] == ["present"] + ["missing"] * 5
    assert before[1].remedy == 'python -c "import bilax; bilax.datasets.mnist()"'
    assert before[2].remedy == 'python -c "import bilax; bilax.datasets.newsgroups()"'
    assert asked == []
    assert not small.exists()
    datasets.mnist(**SMALL)
    assert datasets.status()[1] == ("mnist", "present", str(small / "mnist"), "")


def test_status_without_the_extra(monkeypatch):
    monkeypatch.setattr(availability_module, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    assert [(entry.state, entry.remedy) for entry in datasets.status()] == [
        ("missing", "pip install 'bilax[data]'")
    ] * 6


@needs_data
def test_status_of_the_real_data():
    assert [entry.state for entry in datasets.status()] == ["present"] * 6


def test_the_digits_are_those_of_scikit_learn_wherever_their_file_lies(monkeypatch):
    from sklearn.datasets import load_digits

    module = importlib.import_module("bilax.datasets.digits")
    expected = np.column_stack(load_digits(return_X_y=True))
    np.testing.assert_array_equal(module._table(), expected)
    monkeypatch.setattr(module.Path, "is_file", lambda path: False)
    np.testing.assert_array_equal(module._table(), expected)
