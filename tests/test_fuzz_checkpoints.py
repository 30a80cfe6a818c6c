"""Checkpoints that are anything at all."""

import hashlib
import io
import json
import random
import struct
import zipfile

import numpy as np
import pytest
from fuzzing import JSON, altered, answer, fuzz, in_little_memory, mutated
from hypothesis import strategies as st

from bilax.storage import checkpoints
from bilax.storage.checkpoints import FORMAT, Damaged

pytestmark = pytest.mark.slow


LEAVES = [np.arange(6.0).reshape(2, 3), np.array(7, np.int32), np.zeros((0, 4), np.float32), np.array([True])]
HEAD = {
    "leaves": [{"shape": leaf.shape, "dtype": leaf.dtype.name} for leaf in LEAVES],
    "facts": {"identity": {"seed": 0}, "measured": {"rows": [{"k": 0}]}},
}


def signed(body):
    return FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def packed(head, *members, **options):
    """An archive like a checkpoint's: a head and leaves, each as the bytes of a file in NumPy's format."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for number, content in enumerate((npy(json.dumps(head).encode()), *members)):
            info = zipfile.ZipInfo(f"leaf{number - 1}.npy" if number else "head.npy")
            info.compress_type = archive.compression
            archive.writestr(info, content)
    return buffer.getvalue()


def npy(content, header=None):
    header = (header or f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(content)},), }}").encode() + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + content


BODY = packed(HEAD, *(npy(leaf.tobytes()) for leaf in LEAVES))


@pytest.fixture
def read_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.bin"

    def read(content):
        path.write_bytes(content)
        return checkpoints.load(path)

    return read


def check_checkpoint(read, content):
    found = answer(read, content, kinds=(Damaged,))
    if found is not None:
        leaves, facts = found
        assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
        assert isinstance(facts, dict)
    return found


def test_checkpoints_that_are_whole(tmp_path, read_checkpoint):
    checkpoints.save(tmp_path / "saved.bin", LEAVES, HEAD["facts"])
    for content in ((tmp_path / "saved.bin").read_bytes(), signed(BODY)):
        leaves, facts = check_checkpoint(read_checkpoint, content)
        assert facts == HEAD["facts"]
        for leaf, expected in zip(leaves, LEAVES, strict=True):
            assert leaf.dtype == expected.dtype
            np.testing.assert_array_equal(leaf, expected)


def test_checkpoints(read_checkpoint):
    """Any change is noticed."""

    def check(content):
        assert content == signed(BODY) or check_checkpoint(read_checkpoint, content) is None

    inputs = st.binary(max_size=100) | st.binary(max_size=100).map(lambda end: FORMAT + end) | mutated(signed(BODY))
    fuzz(check, inputs)


@st.composite
def heads(draw):
    """Heads that promise other leaves than there are."""
    names = st.sampled_from(["float64", "int8", "bool", "object", "str", "V5", "M8[s]", "uint8", "bfloat16"])
    leaf = st.fixed_dictionaries({"shape": st.lists(st.integers(-2, 2**40), max_size=3) | JSON, "dtype": names | JSON})
    return draw(altered(HEAD) | JSON | st.fixed_dictionaries({"leaves": st.lists(leaf, max_size=5), "facts": JSON}))


def flagged(bit):
    """The archive with a flag set for its first member, at its own head and in the directory."""
    body = bytearray(BODY)
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        body[body.index(sign) + offset] |= 1 << bit
    return bytes(body)


def of_dtype(dtype):
    return packed({"leaves": [{"shape": [-1], "dtype": dtype}], "facts": {}}, npy(b"abcdefgh"))


HEADERS = {
    "an open bracket in a": "{'descr': ('",
    "the size 10**30 in a": f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({10**30},), }}",
    "Python 2's number in a": "{'descr': '|u1', 'fortran_order': False, 'shape': (8L,), }",
}
BROKEN = {
    "encrypted": flagged(0),
    "patched": flagged(5),
    "strongly encrypted": flagged(6),
    "of a dtype with an open bracket": of_dtype("f8,("),
    "of a dtype with two commas": of_dtype("i4,,"),
    "of a dtype of old": of_dtype("a8"),
    **{
        f"with {name} header": packed({"leaves": [{"shape": [8], "dtype": "uint8"}], "facts": {}}, npy(b"8 bytes.", header))
        for name, header in HEADERS.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_checkpoint_with_the_right_checksum_and_nonsense_in_it(read_checkpoint, body):
    check_checkpoint(read_checkpoint, signed(body))


def test_checkpoints_with_the_right_checksum(read_checkpoint):
    content = [npy(leaf.tobytes()) for leaf in LEAVES]
    bodies = st.binary(max_size=100) | mutated(BODY) | heads().map(lambda head: packed(head, *content))
    explicit = [(body,) for body in BROKEN.values()]

    def check(body):
        check_checkpoint(read_checkpoint, signed(body))

    fuzz(check, bodies, explicit=explicit)


def test_a_checkpoint_that_promises_more_than_there_is(read_checkpoint):
    one = {"leaves": [{"shape": [10**10], "dtype": "uint8"}], "facts": {}}
    with in_little_memory():
        for size in (10**9, 10**10, 10**15):
            header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}"
            for body in (packed(one, npy(b"ab", header)), packed(one, npy(b"ab")), packed(one)):
                assert check_checkpoint(read_checkpoint, signed(body)) is None


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_checkpoint_is_not_decompressed(read_checkpoint, method):
    head = {"leaves": [{"shape": [-1], "dtype": "uint8"}], "facts": {}}
    body = packed(head, npy(bytes(10**6)), compression=method)
    with in_little_memory(), pytest.raises(Damaged, match="no checkpoint is compressed"):
        read_checkpoint(signed(body))


@pytest.mark.parametrize("nested", [100_000 * "[", 100_000 * '{"a":'])
def test_a_checkpoint_with_a_deep_head(read_checkpoint, nested):
    buffer = io.BytesIO()
    np.savez(buffer, head=np.frombuffer(nested.encode(), np.uint8))
    assert check_checkpoint(read_checkpoint, signed(buffer.getvalue())) is None


def test_noise_of_the_size_of_a_real_checkpoint(read_checkpoint):
    noise = random.Random(0).randbytes(5_000_000)
    with in_little_memory():
        for content in (noise, FORMAT + noise, signed(noise)):
            assert check_checkpoint(read_checkpoint, content) is None
