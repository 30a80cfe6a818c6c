"""Readers given anything at all: an answer or a clear error of a documented kind, soon, and in little memory."""

import gc
import gzip
import hashlib
import importlib
import io
import json
import random
import re
import resource
import struct
import time
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as limits
from hypothesis import strategies as st

import bilax
from bilax import settings
from bilax.datasets import store
from bilax.errors import Doubts
from bilax.paper import pages
from bilax.results import load
from bilax.storage import checkpoints
from bilax.storage.checkpoints import FORMAT, Damaged
from bilax.storage.runs import Record, is_finished, manifests, read_manifest, read_rows

pytestmark = pytest.mark.slow

mnist_module = importlib.import_module("bilax.datasets.mnist")  # a function of this name hides it

often = pytest.mark.parametrize("examples", [100, pytest.param(2000, marks=pytest.mark.slow)])
DOCUMENTED = (ValueError, FileNotFoundError)
SLOW = 5.0  # seconds that no single reading may take
LITTLE = 100  # megabytes that no single reading may take


def fuzz(check, *strategies, examples, explicit=()):
    """Call a check with so many random inputs, after the explicit ones."""
    test = given(*strategies)(check)
    for inputs in explicit:
        test = example(*inputs)(test)
    limits(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))(test)()


def answer(read, *inputs, kinds=DOCUMENTED):
    """Return what a reader answers, None if it refuses with a documented error that says something."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", bilax.Doubtful)
        try:
            found = read(*inputs)
            said = None
        except kinds as error:
            found, said = None, str(error)
    assert time.monotonic() - started < SLOW
    assert said is None or len(said) > 10
    return found


@contextmanager
def in_little_memory():
    """Fail if the memory of this process grows by more than a bound."""
    before = _memory(reset=True)
    yield
    assert _memory() - before < LITTLE


def _memory(reset=False):
    """Return the most memory that this process has had, in megabytes; since now on, where that can be asked for."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    except (OSError, TypeError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# What is read


@st.composite
def mutated(draw, *originals):
    """A valid file after a few random edits."""
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(content))), draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["overwrite", "insert", "delete", "cut", "repeat", "flip"]))
        if kind == "overwrite":
            content[at : at + length] = draw(st.binary(min_size=length, max_size=length))
        elif kind == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=length + 1))
        elif kind == "delete":
            del content[at : at + length]
        elif kind == "cut":
            del content[at:]
        elif kind == "repeat":
            content[at:at] = content[at : at + 10 * length]
        elif at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)


NUMBERS = st.integers() | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=8), inside, max_size=4),
    max_leaves=8,
)


@st.composite
def altered(draw, original):
    """A JSON object some of whose entries are gone, or have other values; now and then another one is there."""
    content = dict(original)
    for name in draw(st.lists(st.sampled_from(sorted(original)), max_size=4, unique=True)):
        if draw(st.booleans()):
            content[name] = draw(JSON)
        else:
            del content[name]
    return content | draw(st.dictionaries(st.text(max_size=8), JSON, max_size=2))


# Settings

METHODS = sorted(bilax.ALGORITHMS)
FIELDS = sorted({name for cls in bilax.ALGORITHMS.values() for name in settings.parameters(cls())})
WRITTEN = [settings.write(cls()) for cls in bilax.ALGORITHMS.values()]
VALUES = (
    NUMBERS.map(str) | st.sampled_from(["auto", "true", "'auto'", "1_0", "٣", "nan", "1e999"]) | st.text(max_size=8)
)


@st.composite
def written_settings(draw):
    pairs = draw(st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), max_size=4))
    return f"{draw(st.sampled_from(METHODS))}[{','.join(f'{name}={value}' for name, value in pairs)}]"


def check_parse(text):
    algorithm = answer(settings.parse, text)
    if algorithm is not None:
        assert type(algorithm) in bilax.ALGORITHMS.values()
        assert settings.parse(settings.write(algorithm)) == algorithm


@often
def test_settings(examples):
    edited = mutated(*(text.encode() for text in WRITTEN)).map(lambda content: content.decode(errors="replace"))
    texts = st.text(max_size=80) | st.text("mrbo[]=, \t\n", max_size=60) | written_settings() | edited
    fuzz(check_parse, texts, examples=examples, explicit=[("\0.toml",), ("\ud800.toml",), ("\ud800",), ("[",), ("",)])


HUGE = "1" + 400 * "0"


def test_a_number_beyond_all_floats():
    """Of a whole number too; a batch size may be as large as it likes here, the run refuses it."""
    check_parse(f"mrbo[S={HUGE}]")
    check_parse(f"mrbo[gamma={HUGE}.0]")


@pytest.mark.parametrize("name", ["gamma", "c1", "d", "m", "eta"])
def test_a_whole_number_beyond_all_floats(name):
    with pytest.raises(ValueError, match=rf"MRBO: {name} .* must be"):
        settings.parse(f"mrbo[{name}={HUGE}]")


def test_a_file_name_that_is_too_long():
    with pytest.raises(FileNotFoundError, match="there is no file"):
        settings.parse(300 * "a" + ".toml")


def test_many_blanks_are_refused_at_once():
    started = time.monotonic()
    with pytest.raises(ValueError, match="is not a setting"):
        settings.parse(250 * " " + "=")
    assert time.monotonic() - started < 0.2


# Settings in files

LITERALS = (
    st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(
        ["'auto'", "true", "0x1F", "1979-05-27T07:32:00Z", "07:32:00", "[]", "[[1, 'a'], {}]", "{a = {}}"]
    )
    | st.text(max_size=10).map(json.dumps)
    | st.text(max_size=6)
)


@st.composite
def toml(draw):
    method = draw(st.sampled_from(METHODS).map(json.dumps) | LITERALS)
    pairs = draw(st.lists(st.tuples(st.sampled_from([*FIELDS, "a.b"]), LITERALS), max_size=4))
    head = draw(st.sampled_from(["[parameters]", "[parameters]", "[[parameters]]", "", "[other]"]))
    text = "\n".join([f"method = {method}", head, *(f"{name} = {value}" for name, value in pairs)])
    return text.encode(errors="surrogatepass")


VALID_TOML = b'method = "mrbo"\n\n[parameters]\ngamma = 0.1\nS = 1000\neta = "auto"\n'


@often
def test_setting_files(tmp_path, examples):
    path = tmp_path / "setting.toml"

    def check(content):
        path.write_bytes(content)
        algorithm = answer(settings.parse, str(path))
        assert algorithm is None or type(algorithm) in bilax.ALGORITHMS.values()

    check(VALID_TOML)
    fuzz(check, st.binary(max_size=200) | toml() | mutated(VALID_TOML), examples=examples)


@pytest.mark.parametrize(
    "value",
    [5000 * "[" + 5000 * "]", 5000 * "{a=" + "1" + 5000 * "}", HUGE, 5000 * "1"],
    ids=["lists", "tables", "above floats", "digits"],
)
def test_a_setting_file_of_extremes(tmp_path, value):
    path = tmp_path / "setting.toml"
    path.write_text(f"method = 'mrbo'\n[parameters]\ngamma = {value}\n")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}|gamma"):
        settings.parse(str(path))


def test_a_folder_in_place_of_a_setting_file(tmp_path):
    (tmp_path / "setting.toml").mkdir()
    with pytest.raises(FileNotFoundError, match="there is no file"):
        settings.parse(str(tmp_path / "setting.toml"))


# Rows and manifests

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


@often
def test_rows(run, examples):
    valid = (run / "rows.jsonl").read_bytes()

    def check(content):
        (run / "rows.jsonl").write_bytes(content)
        check_reading(run)

    check(valid)
    assert len(load(run.parent)) == 2
    objects = st.lists(altered(ROWS[1]) | JSON, max_size=4).map(lines)
    nested = [(100_000 * b"[" + b"\n",), (100_000 * b'{"a":',), (b'{"k": 1' + 5000 * b"0" + b"}\n",)]
    fuzz(check, st.binary(max_size=200) | mutated(valid) | objects, examples=examples, explicit=nested)


@often
def test_manifests(run, examples):
    valid = (run / "manifest.json").read_bytes()

    def check(content):
        (run / "manifest.json").write_bytes(content)
        check_reading(run)

    check(valid)
    assert set(load(run.parent)["method"]) == {"MRBO"}
    objects = (altered(json.loads(valid)) | JSON).map(lambda value: json.dumps(value).encode())
    nested = [(100_000 * b"[",), (100_000 * b'{"a":',), (b"1" + 5000 * b"0",), (b"",), (b"\xff\xfe",)]
    fuzz(check, st.binary(max_size=200) | mutated(valid) | objects, examples=examples, explicit=nested)


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


@often
def test_a_page_of_damaged_arrays(run, examples):
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
    fuzz(check, st.binary(max_size=100) | mutated(valid), examples=examples, explicit=explicit)


# IDX files


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


@often
def test_idx_files(read_idx, examples):
    """Behind the checksum, so that only a wrong entry in the table of files would lead here."""
    shapes = [(-1,), (2**31 - 1, 2**31 - 1), (2**31 - 1, 0), (5,)]
    headers = [b"", b"\0\0\x08", b"\0\0\x08\xff", *(idx(*shape, content=b"ab") for shape in shapes)]
    whole = gzip.compress(VALID_IDX)
    explicit = [(gzip.compress(header),) for header in headers] + [(b"",), (b"x",), (whole[:-9],), (whole[:15] + b"x",)]
    inputs = st.binary(max_size=100) | (idx_files() | mutated(VALID_IDX)).map(gzip.compress) | mutated(whole)
    fuzz(lambda content: check_idx(read_idx, content), inputs, examples=examples, explicit=explicit)


def test_a_gzip_bomb_in_an_idx_file(read_idx):
    with in_little_memory(), pytest.raises(ValueError, match=r"promises|bytes"):
        read_idx(BOMB)


def test_an_idx_file_that_promises_more_than_there_is(read_idx):
    with in_little_memory():
        for shape in ((2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (100_000, 28, 28)):
            assert answer(read_idx, gzip.compress(idx(*shape, content=b"abc"))) is None


@often
def test_other_files_than_mnist(tmp_path, monkeypatch, examples):
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
    fuzz(check, inputs, examples=examples)


# Checkpoints

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


@often
def test_checkpoints(read_checkpoint, examples):
    """Any change is noticed."""

    def check(content):
        assert content == signed(BODY) or check_checkpoint(read_checkpoint, content) is None

    inputs = st.binary(max_size=100) | st.binary(max_size=100).map(lambda end: FORMAT + end) | mutated(signed(BODY))
    fuzz(check, inputs, examples=examples)


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


@often
def test_checkpoints_with_the_right_checksum(read_checkpoint, examples):
    content = [npy(leaf.tobytes()) for leaf in LEAVES]
    bodies = st.binary(max_size=100) | mutated(BODY) | heads().map(lambda head: packed(head, *content))
    explicit = [(body,) for body in BROKEN.values()]

    def check(body):
        check_checkpoint(read_checkpoint, signed(body))

    fuzz(check, bodies, examples=examples, explicit=explicit)


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
