"""Data files that are anything at all."""

import gzip
import hashlib
import importlib
import struct

import numpy as np
import pytest
from fuzzing import answer, fuzz, in_little_memory, mutated
from hypothesis import strategies as st

import bilax
from bilax.datasets import store

pytestmark = pytest.mark.slow
mnist_module = importlib.import_module("bilax.datasets.mnist")  # a function of this name hides it


def idx(*shape, content=None, kind=8):
    content = bytes(range(np.prod(shape, dtype=int))) if content is None else content
    return struct.pack(f">BBBB{len(shape)}i", 0, 0, kind, len(shape), *shape) + content


VALID_IDX = idx(3, 4, 5)
BOMB = gzip.compress(idx(1, content=b"1")) + 16 * gzip.compress(bytes(16 << 20))  # 256 megabytes of zeros


@pytest.fixture
def read_idx(tmp_path, monkeypatch):
    """Return a reader of bytes as if they were MNIST's file, with the right checksum."""
    path = tmp_path / "images.gz"
    monkeypatch.setattr(mnist_module, "fetch", lambda file, part, mirrors: path)

    def read(content):
        path.write_bytes(content)
        return mnist_module._read(store.RemoteFile(path.name, len(content), hashlib.sha256(content).hexdigest()))

    return read


@st.composite
def idx_files(draw):
    """Files whose header is of the right form, and may promise anything."""
    shape = draw(st.lists(st.integers(-2, 6) | st.integers(-(2**31), 2**31 - 1), max_size=4))
    content = draw(st.binary(max_size=130))
    return idx(*shape, content=content, kind=draw(st.sampled_from([8, 8, 9, 13])))


def check_idx(read, content):
    array = answer(read, content)
    if array is not None:
        plain = gzip.decompress(content)
        assert plain[:3] == b"\0\0\x08"
        assert struct.unpack(f">{plain[3]}i", plain[4 : 4 + 4 * plain[3]]) == array.shape
        assert array.tobytes() == plain[4 + 4 * plain[3] :]


def test_idx_files_that_are_whole(read_idx):
    np.testing.assert_array_equal(read_idx(gzip.compress(VALID_IDX)), np.arange(60).reshape(3, 4, 5))
    check_idx(read_idx, gzip.compress(idx(0, 5)))


def test_idx_files(read_idx):
    """Behind the checksum, so that only a wrong entry in the table of files would lead here."""
    shapes = [(-1,), (2**31 - 1, 2**31 - 1), (2**31 - 1, 0), (5,)]
    headers = [b"", b"\0\0\x08", b"\0\0\x08\xff", *(idx(*shape, content=b"ab") for shape in shapes)]
    whole = gzip.compress(VALID_IDX)
    explicit = [(gzip.compress(header),) for header in headers] + [(b"",), (b"x",), (whole[:-9],), (whole[:15] + b"x",)]
    inputs = st.binary(max_size=100) | (idx_files() | mutated(VALID_IDX)).map(gzip.compress) | mutated(whole)
    fuzz(lambda content: check_idx(read_idx, content), inputs, explicit=explicit)


def test_a_gzip_bomb_in_an_idx_file(read_idx):
    with in_little_memory(), pytest.raises(ValueError, match=r"promises|bytes"):
        read_idx(BOMB)


def test_an_idx_file_that_promises_more_than_there_is(read_idx):
    with in_little_memory():
        for shape in ((2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (100_000, 28, 28)):
            assert answer(read_idx, gzip.compress(idx(*shape, content=b"abc"))) is None


def test_other_files_than_mnist(tmp_path, monkeypatch):
    """Whatever is in the user's folder, its checksum is wrong, and it is not even decompressed."""
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    path = tmp_path / "mnist" / mnist_module.FILES[0].name
    path.parent.mkdir()

    def check(content):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or another file"):
            bilax.datasets.mnist()

    with in_little_memory():
        check(BOMB)
    inputs = st.binary(max_size=100) | mutated(gzip.compress(VALID_IDX)) | idx_files().map(gzip.compress)
    fuzz(check, inputs)
