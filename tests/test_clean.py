"""bilax clean: from files to an answer, a file and a page."""

import csv
import io
import shutil
import signal
import subprocess
import sys
import time

import chromium
import numpy as np
import pandas
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from bilax.cleaning import columns, images, reading
from bilax.cleaning.clean import Request, _read, clean
from bilax.cleaning.page import Found, Suspect, write
from bilax.cli.app import app
from bilax.cli.shell import main


def people(n, seed):
    """Return a table with numbers, categories, text, a constant, and names of rows; and the true labels."""
    rng = np.random.default_rng(seed)
    age, city = rng.normal(40, 12, n), rng.choice(["Oslo", "Lima", "Rome"], n)
    true = np.where(0.2 * (age - 40) + 4 * (city == "Oslo") - 1 + rng.logistic(size=n) > 0, "yes", "no")
    mood = np.where(true == "yes", "gladly", "never")
    words = [
        f"would {how} come again to {town}, visit {rng.integers(10**9)}" for how, town in zip(mood, city, strict=True)
    ]
    frame = pandas.DataFrame({"name": [f"p{i:04d}" for i in range(n)], "age": age, "city": city, "said": words})
    frame["planet"] = "Earth"
    frame.loc[::17, "age"] = np.nan
    return frame, true


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    train, true = people(400, 0)
    trusted, right = people(80, 1)
    wrong = (true == "yes") & (np.random.default_rng(2).random(400) < 0.3)
    train["target"], trusted["target"] = np.where(wrong, "no", true), right
    trusted = pandas.concat([trusted, train.iloc[[int(np.flatnonzero(wrong)[0])]].assign(target="yes")])
    train.to_csv(folder / "train.csv", index=False)
    train.to_parquet(folder / "train.parquet")
    trusted.to_csv(folder / "trusted.csv", index=False)
    return folder, wrong


@pytest.fixture(scope="module")
def ran(files):
    folder, _ = files
    out, page = folder / "weights.csv", folder / "clean.html"
    arguments = ["clean", str(folder / "train.csv"), "--label", "target", "--trusted", str(folder / "trusted.csv")]
    arguments += ["--id", "name", "--steps", "100", "--out", str(out), "--report", str(page)]
    return CliRunner().invoke(app, arguments, catch_exceptions=False), out, page


def test_the_command_answers_and_says_what_it_did(files, ran):
    _, wrong = files
    result, out, _ = ran
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "age: missing values imputed by the median, standardised" in text
    assert "city: one-hot" in text
    assert "said: TF-IDF" in text
    assert "planet: left out: one value in all rows" in text
    assert "1 row of train.csv are also in trusted.csv" in text
    assert "of 400 labels look wrong" in text
    table = pandas.read_csv(out)
    assert list(table.columns[:6]) == ["id", "given", "suggested", "quality", "rank", "suspicious"]
    assert list(table["id"][:2]) == ["p0000", "p0001"]
    assert sorted(table["rank"]) == list(range(1, 401))
    assert roc_auc_score(wrong, -table["quality"]) > 0.9
    assert (table["suspicious"] == (table["quality"] < 0.5)).all()
    both = int(np.flatnonzero(wrong)[0])
    assert table.loc[both, "trusted"]
    assert table.loc[both, ["suggested", "quality"]].tolist() == ["yes", 0.0]
    assert not list(out.parent.glob(".*part"))


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as browser:
        yield browser


def opened(browser, path, **options):
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}).new_page()
    trouble = []
    page.set_default_timeout(10_000)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or trouble.append(request.url))
    chromium.shown(page, path.as_uri())
    return page, trouble


def test_the_page_opens_with_the_answer_and_the_worst_row(browser, ran):
    _, out, path = ran
    for width, scheme in ((1280, "light"), (390, "dark")):
        page, trouble = opened(browser, path, viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert "labels look wrong" in page.inner_text("h1")
        assert page.locator("h1").bounding_box()["y"] < 200
        assert page.locator(".suspect").first.bounding_box()["y"] < 800
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert trouble == []
    table = pandas.read_csv(out)
    worst = table[~table["trusted"]].sort_values("rank").iloc[0]
    assert worst["id"] in page.inner_text(".suspect >> nth=0")
    assert "gladly" in page.inner_text(".suspect >> nth=0")


@pytest.mark.slow
def test_decisions_by_keyboard_are_exported_and_fed_back(browser, files, ran, tmp_path):
    folder, _ = files
    page, trouble = opened(browser, ran[2])
    assert page.is_disabled("#export")
    for key in ("a", "d", "a", "u", "a"):
        page.keyboard.press(key)
    assert page.inner_text("#decided").startswith("3 of ")
    page.locator(".suspect >> nth=4 >> select").select_option("no")
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "train-decisions.csv"
    path = tmp_path / "train-decisions.csv"
    download.value.save_as(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["decision"] for row in rows] == ["agree", "disagree", "agree", "agree"]
    assert [row["label"] for row in rows] == ["yes", "no", "yes", "no"]
    assert trouble == []
    request = Request(folder / "train.csv", "target", folder / "trusted.csv", path, "name", steps=20)
    table = clean(request, "").table
    decided = table.iloc[[int(row["row"]) - 1 for row in rows]]
    assert decided["trusted"].all()
    assert decided["quality"].tolist() == [0, 1, 0, 1]
    assert decided["suggested"].tolist() == ["yes", "no", "yes", "no"]


EVIL = "</script><img src=x onerror=alert(1)>\"',\n=1+1"


def test_no_text_of_a_table_can_break_the_page(browser, tmp_path):
    suspect = Suspect(1, EVIL, EVIL, EVIL, 0.1, EVIL, "", ((EVIL, EVIL),))
    write(
        Found(EVIL, EVIL, (EVIL,), (suspect,), (EVIL,), ((EVIL, EVIL, 1),), (EVIL,), ((EVIL, EVIL),), "e.csv"),
        tmp_path / "e.html",
    )
    page, trouble = opened(browser, tmp_path / "e.html")
    page.keyboard.press("a")
    with page.expect_download() as download:
        page.click("#export")
    row = next(csv.DictReader(io.StringIO(download.value.path().read_text(), newline="")))
    assert row["label"].replace("\r\n", "\n") == EVIL
    assert page.locator("img").count() == 0
    assert trouble == []


def test_a_page_without_suspects_says_so(browser, tmp_path):
    write(Found("t", "About 0 of 5 labels look wrong", (), (), ("a",), (), (), (), "e.csv"), tmp_path / "n.html")
    page, trouble = opened(browser, tmp_path / "n.html")
    assert "No label looks wrong" in page.inner_text("main")
    assert trouble == []


def small(folder, name="t.csv", text="a,target\n1,x\n2,y\n3,x\n4,y\n"):
    path = folder / name
    path.write_text(text)
    return path


MISTAKES = {
    "a wrong column": (dict(label="traget"), "no column .* is called 'traget'. Did you mean target"),
    "no such file": (dict(train="none.csv"), "there is no file"),
    "another format": (dict(train="t.xls"), "a table must be one of"),
    "an empty file": (dict(text=""), "is empty"),
    "no rows": (dict(text="a,target\n"), "no rows"),
    "one class": (dict(text="a,target\n1,x\n2,x\n"), "one class alone"),
    "a missing label": (dict(text="a,target\n1,x\n2,\n3,y\n"), "1 of 3 labels .* are missing, the first in row 2"),
    "numbers as labels": (dict(text="a,target\n1,0.5\n2,1.5\n"), "not classes"),
    "a label in every row": (
        dict(text="a,target\n" + "".join(f"{i},v{i}\n" for i in range(300))),
        "300 different values in 300 rows; is it the label",
    ),
    "nothing but the label": (dict(text="target\nx\ny\n"), "no column besides the label"),
    "only constants": (dict(text="a,target\n1,x\n1,y\n"), "no column is left to learn from: a: left out: one value"),
    "an empty trusted file": (dict(trusted="a,target\n"), "no rows"),
    "trusted without a column": (dict(trusted="b,target\n1,x\n"), "lacks the column 'a'"),
    "text where numbers were": (
        dict(text="a,target\n1,x\n2,y\n", trusted="a,target\nmany,x\n"),
        "the column 'a' holds numbers in one file, but not in another",
    ),
    "a decision beyond the table": (dict(decisions="row,label\n9,x\n"), "names row 9; t.csv has the rows 1 to 4"),
    "decisions of another table": (dict(decisions="row,given,label\n1,y,x\n"), "was made for another table"),
    "text among features": (dict(text="a,target\nu,x\nv,y\n", features_only=True), "must be numbers"),
    "a gap among features": (dict(text="a,target\n1,x\n,y\n", features_only=True), "missing or not finite"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name, tmp_path):
    what = dict(MISTAKES[name][0])
    path = small(tmp_path, **({"text": what.pop("text")} if "text" in what else {}))
    path = tmp_path / what.pop("train", "t.csv")
    for part in ("trusted", "decisions"):
        if part in what:
            what[part] = small(tmp_path, f"{part}.csv", what[part])
    with pytest.raises((ValueError, OSError), match=MISTAKES[name][1]):
        clean(Request(path, **{"label": "target", **what}), "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "w.txt"], "ends in .csv or .parquet"),
        (["--report", "no/such/folder/r.html"], "folder that exists"),
        (["--images", "nowhere"], "there is no folder nowhere"),
        (["--method", "mrob"], "Did you mean mrbo"),
    ],
)
def test_a_mistake_on_the_command_line_is_told_before_work(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bilax", "clean", str(small(tmp_path)), "--label", "target", *options])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_kinds_of_columns():
    n = 200
    frame = pandas.DataFrame(
        {
            "number": np.arange(n) / 3,
            "flag": np.arange(n) % 2 == 0,
            "city": np.resize(["a", "b"], n),
            "code": [f"x{i}" for i in range(n)],
            "text": ["a few words of prose here"] * (n - 1) + ["others"],
            "when": pandas.date_range("2020-01-01", periods=n),
            "gaps": [None, "x"] * (n // 2),
            "empty": [None] * n,
        }
    )
    found = {column.name: column.kind for column in columns.kinds(frame)}
    assert found == {
        "number": "number", "flag": "category", "city": "category", "code": "different", "text": "text", "when": "date",
        "gaps": "category", "empty": "constant",
    }  # fmt: skip


def test_every_feature_knows_its_column():
    frame, _ = people(100, 0)
    encoder = columns.Encoder(columns.kinds(frame)).fit(frame)
    X = encoder.transform(frame)
    assert X.shape[1] == len(encoder.source)
    assert set(encoder.source) == {"age", "city", "said"}
    unseen = frame.assign(city="Paris")
    assert encoder.transform(unseen).shape == X.shape


def test_a_table_with_whole_numbers_as_labels_and_gaps_elsewhere(tmp_path):
    path = small(tmp_path, text="a,target\n1,1.0\n,2.0\n3,1.0\n")
    assert reading.labels(reading.read(path), "target", path).tolist() == ["1", "2", "1"]


def test_parquet_and_csv_are_read_alike(files):
    folder, _ = files
    one, other = reading.read(folder / "train.csv"), reading.read(folder / "train.parquet")
    pandas.testing.assert_frame_equal(one, other, check_dtype=False)


def test_a_gap_does_not_hide_that_a_row_is_in_both_files(tmp_path):
    """With it, whole numbers are read as floating ones."""
    train = small(tmp_path, text="a,b,target\n1,5,x\n2,6,y\n3,7,x\n4,8,y\n")
    trusted = small(tmp_path, "trusted.csv", "a,b,target\n2,6,x\n,9,y\n")
    assert _read(Request(train, "target", trusted)).known.tolist() == [False, True, False, False]


def test_what_is_kept_of_an_interrupted_run_is_of_that_run_alone(tmp_path):
    path = small(tmp_path)
    one = Request(path, "target").fingerprint()
    assert one == Request(path, "target").fingerprint()
    assert one != Request(path, "target", seed=1).fingerprint()
    path.write_text("a,target\n1,x\n2,y\n5,x\n")
    assert one != Request(path, "target").fingerprint()


@pytest.mark.slow
def test_an_interrupted_command_says_so_goes_on_and_is_in_no_ones_way(files, tmp_path):
    folder, _ = files

    def command(steps, name="w"):
        table = [folder / "train.csv", "--label", "target", "--trusted", folder / "trusted.csv", "--steps", steps]
        written = ["--out", tmp_path / f"{name}.csv", "--report", tmp_path / f"{name}.html"]
        return [sys.executable, "-m", "bilax", "clean", *table, *written]

    run = subprocess.Popen(command("1500"), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".w.csv.*.part/checkpoint.bin")) and time.monotonic() < deadline:
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "interrupted; the same command goes on from here" in said
    assert not (tmp_path / "w.csv").exists()
    (kept,) = tmp_path.glob(".w.csv.*.part")
    shutil.copytree(kept, kept.with_name(kept.name.replace(".w.", ".other.", 1)))
    for steps, name in (("1500", "w"), ("1500", "at once"), ("30", "other")):  # other settings: another run, no error
        assert subprocess.run(command(steps, name), capture_output=True).returncode == 0
    assert (
        (tmp_path / "w.csv").read_text()
        == (tmp_path / "at once.csv").read_text()
        != (tmp_path / "other.csv").read_text()
    )
    assert not list(tmp_path.glob(".*part"))


@pytest.mark.slow
def test_a_folder_of_images(tmp_path, browser):
    from PIL import Image
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = np.flatnonzero(bunch.target < 3)[:400]
    (tmp_path / "pictures").mkdir()
    for i in chosen:
        Image.fromarray((255 - bunch.images[i] * 15).astype(np.uint8)).save(tmp_path / "pictures" / f"{i}.png")
    true = bunch.target[chosen]
    wrong = np.random.default_rng(0).random(len(true)) < 0.2
    table = pandas.DataFrame({"file": [f"{i}.png" for i in chosen], "class": np.where(wrong, (true + 1) % 3, true)})
    table[:300].to_csv(tmp_path / "labels.csv", index=False)
    table[300:].assign(**{"class": true[300:]}).to_csv(tmp_path / "checked.csv", index=False)
    request = Request(
        tmp_path / "labels.csv", "class", tmp_path / "checked.csv", images=tmp_path / "pictures", steps=100
    )
    found = clean(request, "")
    assert roc_auc_score(wrong[:300], -found.table["quality"]) > 0.95
    write(found.found, tmp_path / "clean.html")
    page, trouble = opened(browser, tmp_path / "clean.html")
    assert page.evaluate("document.querySelector('.suspect img').naturalWidth") == 8
    assert trouble == []
    (tmp_path / "pictures" / f"{chosen[0]}.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read as an image"):
        images.pixels(tmp_path / "pictures", [f"{chosen[0]}.png"])
    with pytest.raises(FileNotFoundError, match="there is no image"):
        images.pixels(tmp_path / "pictures", ["none.png"])


@pytest.mark.slow
def test_a_million_rows(tmp_path):
    rng = np.random.default_rng(0)
    n = 1_000_000
    true = rng.integers(2, size=n)
    wrong = (rng.random(n) < 0.2) & (true == 1)
    frame = pandas.DataFrame({"u": rng.normal(size=n) + 2 * true, "v": rng.normal(size=n) - 2 * true})
    frame.assign(target=np.where(wrong, 0, true)).to_parquet(tmp_path / "train.parquet")
    trusted = frame[:300].assign(u=lambda t: t["u"] + 1e-9, target=true[:300])
    trusted.to_parquet(tmp_path / "trusted.parquet")
    table = clean(Request(tmp_path / "train.parquet", "target", tmp_path / "trusted.parquet", steps=100), "").table
    assert roc_auc_score(wrong, -table["quality"]) > 0.95
