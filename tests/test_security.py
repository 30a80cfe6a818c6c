"""Files from elsewhere: nothing in them is run, none is written outside its folder, and no one is called for them."""

import ast
import contextlib
import gzip
import hashlib
import importlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import bilax
from bilax import datasets, solve
from bilax.datasets import store
from bilax.paper import pages
from bilax.problems import quadratic
from bilax.report import write
from bilax.storage import checkpoints
from bilax.storage.checkpoints import Damaged
from bilax.storage.runs import Record

pytestmark = pytest.mark.slow
mnist_module = importlib.import_module("bilax.datasets.mnist")  # a function of this name hides it
SOURCES = sorted(Path(bilax.__file__).parent.rglob("*.py"))


# Pickles


class Payload:
    """Once unpickled, it has made a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def disguises(path):
    """The payload as a plain pickle, as an object array, and as an archive of one."""
    plain, array, archive = pickle.dumps(Payload(path)), io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Payload(path)], object), allow_pickle=True)
    names = ("head", "leaf0", "weights", "given", "true", "least", "images")
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.writestr(f"{name}.npy", array.getvalue())
    return {"pickle": plain, "array": array.getvalue(), "archive": archive.getvalue()}


@pytest.fixture(params=["pickle", "array", "archive"])
def disguise(request, tmp_path):
    """Bytes that would make a file if they were unpickled; afterwards it must not be there."""
    made = tmp_path / "the payload has run"
    yield disguises(made)[request.param]
    assert not made.exists()


def test_the_payload_works(tmp_path):
    made = tmp_path / "made"
    pickle.loads(disguises(made)["pickle"]).close()
    assert made.exists()
    made.unlink()
    np.load(io.BytesIO(disguises(made)["array"]), allow_pickle=True)[0].close()
    assert made.exists()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_is_unpickled_or_run(path):
    """No import of what unpickles, no `allow_pickle` but False, no evaluation of text."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        for name in names:
            assert name.split(".")[0] not in ("pickle", "cPickle", "joblib", "dill", "cloudpickle", "marshal", "shelve")
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "os.system", "np.fromfile", "pandas.read_pickle")
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle":
                    assert ast.unparse(keyword.value) == "False"
                assert (keyword.arg, ast.unparse(keyword.value)) != ("shell", "True")


def test_a_pickle_in_place_of_a_checkpoint(tmp_path, disguise):
    path = tmp_path / "checkpoint.bin"
    signed = checkpoints.FORMAT + hashlib.sha256(disguise).hexdigest().encode() + b"\n" + disguise
    for content in (disguise, signed):
        path.write_bytes(content)
        with pytest.raises(Damaged, match="is damaged"):
            checkpoints.load(path)


def test_a_run_sets_a_pickle_aside(tmp_path, disguise):
    (tmp_path / "checkpoint.bin").write_bytes(disguise)
    with pytest.warns(bilax.Doubtful, match="set aside as checkpoint.bin.damaged, and the run begins anew"):
        result = solve(quadratic().problem, bilax.StocBiO(S=4), steps=2, checkpoint_dir=tmp_path)
    assert result.status == "done"
    assert (tmp_path / "checkpoint.bin.damaged").read_bytes() == disguise


FACTS = {
    "task": "digits-p0.3",
    "variant": "own",
    "method": "MRBO",
    "setting": "mrbo[S=1]",
    "seed": 0,
    "title": "digits",
}
FACTS |= {"sampler": "iid", "steps": 5, "budget": None, "command": "bilax run"}


def stored(folder, rows=({"k": 0, "loss": 2.0, "auroc": 0.8}, {"k": 5, "loss": 1.0, "auroc": 0.9}), **facts):
    """Write a finished run and return its folder."""
    record = Record(folder, FACTS | facts).begin()
    for row in rows:
        record.row(row)
    record.end(status="done", message="5 steps taken.", warnings=facts.get("warnings", []), seconds=0.1)
    return folder


def test_a_pickle_in_place_of_the_arrays_of_a_run(tmp_path, disguise):
    run = stored(tmp_path / "runs" / "a")
    (run / "arrays.npz").write_bytes(disguise)
    try:
        page = pages.page(tmp_path / "runs")
    except Exception:  # whatever it says, it says no
        return
    assert not page.galleries


def test_a_pickle_in_place_of_an_idx_file(tmp_path, monkeypatch, disguise):
    """Refused for its checksum; even if that were right, it would not be unpickled."""
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    content = gzip.compress(disguise)
    path = tmp_path / "mnist" / mnist_module.FILES[0].name
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or another file"):
        datasets.mnist()
    right = store.RemoteFile(path.name, len(content), hashlib.sha256(content).hexdigest())
    with pytest.raises(Exception, match=r"."):
        mnist_module._read(right)


# Names that lead elsewhere

ELSEWHERE = ["../evil", "../../evil", "/tmp/evil", "a/../../evil", "..\\evil", "C:\\evil", "a\0b", "", ".", "..", "a b"]


def everything_in(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_task_with_a_name_that_leads_elsewhere(tmp_path, name):
    """The name of a figure's files comes from a manifest."""
    stored(tmp_path / "runs" / "a", task=name)
    before = everything_in(tmp_path)
    page = pages.page(tmp_path / "runs")
    try:
        path = write(page, tmp_path / "page")
    except ValueError as error:
        refused = str(error)
        assert everything_in(tmp_path) == before
        assert "letters, digits" in refused
    else:
        assert path == tmp_path / "page" / "report.html"
        new = set(everything_in(tmp_path)) - set(before) - {tmp_path / "page"}
        assert all(path.is_relative_to(tmp_path / "page") for path in new)


def test_an_archive_with_names_that_lead_elsewhere(tmp_path):
    """Members of a checkpoint are read by their name, and never written."""
    folder = tmp_path / "inside" / "deep"
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    head = np.frombuffer(json.dumps({"leaves": [], "facts": {}}).encode(), np.uint8)
    np.savez(buffer, head=head, **{name: np.zeros(3) for name in ("../evil", "../../evil", "/tmp/evil-of-bilax")})
    body = buffer.getvalue()
    path = folder / "checkpoint.bin"
    path.write_bytes(checkpoints.FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    run = stored(tmp_path / "runs" / "a")
    (run / "arrays.npz").write_bytes(body)
    before = everything_in(tmp_path)
    assert checkpoints.load(path) == ([], {})
    with contextlib.suppress(Exception):  # a gallery needs other arrays; nothing else is asked here
        pages.page(tmp_path / "runs")
    assert everything_in(tmp_path) == before
    assert not Path("/tmp/evil-of-bilax.npy").exists()


def test_no_archive_is_unpacked():
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert not re.search(r"extractall|\.extract\(|unpack_archive|tarfile|Untar|Unzip", text), path


def test_names_of_files_to_download_are_plain():
    for file in mnist_module.FILES:
        assert re.fullmatch(r"[a-z0-9-]+\.gz", file.name)
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)


# Downloads


def retrieved(content):
    """A downloader that fetches this."""
    return lambda self, url, output, caller: Path(output).write_bytes(content)


@pytest.fixture
def expected(tmp_path, monkeypatch):
    monkeypatch.delenv("BILAX_DATA_DIR", raising=False)
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path / "cache")
    return store.RemoteFile("a.gz", 4, hashlib.sha256(b"good").hexdigest())


def test_the_right_file_is_taken(expected, monkeypatch):
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", retrieved(b"good"))
    assert store.fetch(expected, "part", ["https://example.org/"]).read_bytes() == b"good"


@pytest.mark.parametrize("content", [b"evil", b"", b"goo", b"good\n", bytes(1000)], ids=len)
def test_a_wrong_file_is_refused_and_not_kept(tmp_path, expected, monkeypatch, content):
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", retrieved(content))
    with pytest.raises(ValueError, match=r"could not be downloaded.*sent .* bytes with SHA-256"):
        store.fetch(expected, "part", ["https://example.org/", "https://example.com/"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_wrong_file_in_the_cache_is_not_used(tmp_path, expected, monkeypatch):
    (tmp_path / "cache" / "part").mkdir(parents=True)
    (tmp_path / "cache" / "part" / "a.gz").write_bytes(b"evil")
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", retrieved(b"good"))
    assert store.fetch(expected, "part", ["https://example.org/"]).read_bytes() == b"good"


def test_a_wrong_file_of_the_users_own_is_refused_and_left(tmp_path, expected, monkeypatch):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.gz").write_bytes(b"evil")
    with pytest.raises(ValueError, match="is damaged or another file"):
        store.fetch(expected, "part", ["https://example.org/"])
    assert (tmp_path / "part" / "a.gz").read_bytes() == b"evil"


def test_mirrors_are_asked_in_secret():
    assert all(mirror.startswith("https://") for mirror in mnist_module.MIRRORS)


# The page

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=alert(1) x='$title"


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.texts.append(text)


def evil(value):
    """The same thing with the script in every text."""
    if isinstance(value, dict):
        return {key: evil(part) for key, part in value.items()}
    return f"{value} {SCRIPT}" if isinstance(value, str) else value


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of runs whose manifests and rows have the script in every text that they can have it in."""
    folder = tmp_path_factory.mktemp("evil")
    texts = {name: f"{SCRIPT} {name}" for name in ("method", "setting", "title", "command", "variant", "sampler")}
    rows = [{"k": k, "loss": 2.0 - k, f"{SCRIPT} metric": k, "words": SCRIPT, "auroc": 0.9} for k in range(2)]
    for seed in (0, 1):
        run = stored(folder / "runs" / str(seed), rows, **texts, seed=seed, warnings=[f"{SCRIPT} warning"])
        manifest = json.loads((run / "manifest.json").read_text())
        manifest |= {name: evil(manifest[name]) for name in ("versions", "machine", "commit", "started", "status")}
        manifest["versions"][f"{SCRIPT} version"] = "1"
        manifest["picture"] = {"y": f"{SCRIPT} metric", "x": SCRIPT}
        (run / "manifest.json").write_text(json.dumps(manifest))
        images, labels = np.zeros((3, 8, 8), np.float16), np.array([f"{SCRIPT} label"] * 3)
        weights = {"weights": np.ones(3), "given": labels, "true": labels, "least": np.arange(3), "images": images}
        np.savez_compressed(run / "arrays.npz", **weights)
    return write(pages.page(folder / "runs"), folder / "page").read_text("utf-8")


def test_the_scripts_of_a_page_are_its_own(report):
    elements = Elements(report)
    scripts = [attributes for tag, attributes in elements.found if tag == "script"]
    assert scripts.count({}) == 2  # plotly and page.js
    assert all(attributes == {"type": "application/json"} for attributes in scripts if attributes)
    assert all(re.match("data:image/png;", given["src"]) for tag, given in elements.found if tag == "img")
    for tag, attributes in elements.found:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert tag not in ("iframe", "object", "embed", "link", "base", "form")
        assert attributes.get("href", "#").startswith("#")


@pytest.mark.parametrize("name", ["method", "setting", "title", "command", "warning", "metric", "version", "label"])
def test_what_a_manifest_says_is_shown_as_text(report, name):
    """It is there, letter for letter, and it is not markup."""
    elements = Elements(report)
    said = f"{SCRIPT} {name}"
    assert any(said in text for text in (*elements.texts, *(v or "" for _, a in elements.found for v in a.values())))
    assert said not in report


def test_what_a_page_may_do_is_its_own_scripts(report):
    policy = next(given["content"] for tag, given in Elements(report).found if given.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "unsafe-eval" not in policy


def test_the_script_in_a_verdict_is_shown_as_text():
    from bilax.report import Page, Verdict
    from bilax.report.page import assemble

    verdict = Verdict(SCRIPT, SCRIPT, SCRIPT, SCRIPT, SCRIPT)
    text = assemble(Page(SCRIPT, SCRIPT, (), (verdict,), (), ((SCRIPT, SCRIPT),)))
    assert SCRIPT not in text
    assert [given for tag, given in Elements(text).found if tag in ("script", "img")] == [{}, {}]


# The network

WITHOUT_NETWORK = """
import socket

def refuse(*_, **__):
    raise AssertionError("the network was asked")

socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
socket.create_connection = socket.getaddrinfo = socket.gethostbyname = refuse

import bilax
from bilax import datasets
from bilax.experiments import demo
from bilax.problems import hyper_cleaning, quadratic

datasets.status()
assert len(bilax.settings.write(bilax.settings.parse("mrbo[S=4]")))
problem = quadratic().problem
result = bilax.solve(problem, bilax.MRBO(gamma=0.02, lam=0.3, S=8), steps=3, seed=1)
assert result.status == "done"
bilax.hypergradient(problem, result.x, result.y)
small = hyper_cleaning(datasets.digits(0.3, train=50, trusted=20))
assert bilax.solve(small, bilax.StocBiO(S=8, eta=0.01), steps=2).status == "done"
task = datasets.digits(demo.NOISE, train=demo.TRAIN, trusted=demo.TRUSTED)
algorithm, _ = demo.METHODS["MRBO, weights"]
assert bilax.solve(hyper_cleaning(task, demo.C), algorithm, steps=2).status == "done"
try:
    datasets.mnist()
except AssertionError:
    print("only when asked for data")
"""


@pytest.mark.slow
def test_no_network_unless_data_are_asked_for(tmp_path):
    """Nor anything written beside: the folder of the user's cache is empty afterwards."""
    environment = {name: value for name, value in os.environ.items() if name != "BILAX_DATA_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "NO_PROXY": "*", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_NETWORK], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "only when asked for data\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
