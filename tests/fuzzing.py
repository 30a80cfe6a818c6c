"""Readers given anything at all: an answer or a clear error of a documented kind, soon, and in little memory."""

import re
import resource
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, example, given
from hypothesis import settings as limits
from hypothesis import strategies as st

import bilax

EXAMPLES = 500  # others in every run of the tests
DOCUMENTED = (ValueError, FileNotFoundError)
SLOW = 5.0  # seconds that no single reading may take
LITTLE = 100  # megabytes that no single reading may take


def fuzz(check, *strategies, explicit=()):
    """Call a check with so many random inputs, after the explicit ones."""
    test = given(*strategies)(check)
    for inputs in explicit:
        test = example(*inputs)(test)
    limits(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))(test)()


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
