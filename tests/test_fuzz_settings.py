"""Settings, as text and in files, that are anything at all."""

import json
import re
import time

import pytest
from fuzzing import NUMBERS, answer, fuzz, mutated
from hypothesis import strategies as st

import bilax
from bilax import settings

pytestmark = pytest.mark.slow


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


def test_settings():
    edited = mutated(*(text.encode() for text in WRITTEN)).map(lambda content: content.decode(errors="replace"))
    texts = st.text(max_size=80) | st.text("mrbo[]=, \t\n", max_size=60) | written_settings() | edited
    fuzz(check_parse, texts, explicit=[("\0.toml",), ("\ud800.toml",), ("\ud800",), ("[",), ("",)])


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


def test_setting_files(tmp_path):
    path = tmp_path / "setting.toml"

    def check(content):
        path.write_bytes(content)
        algorithm = answer(settings.parse, str(path))
        assert algorithm is None or type(algorithm) in bilax.ALGORITHMS.values()

    check(VALID_TOML)
    fuzz(check, st.binary(max_size=200) | toml() | mutated(VALID_TOML))


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
