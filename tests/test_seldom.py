"""The list of proofs for the slow set names tests and methods that exist."""

import re
from pathlib import Path

import pytest
from seldom import PROOFS, SELDOM

import bilax


def test_methods_that_seldom_change_exist():
    assert SELDOM < set(bilax.ALGORITHMS)


@pytest.mark.parametrize("module", PROOFS)
def test_proofs_exist(module):
    defined = re.findall(r"^def (test_\w+)\(", (Path(__file__).parent / f"{module}.py").read_text(), re.MULTILINE)
    assert PROOFS[module] < set(defined)  # and the quick set keeps some of this room
