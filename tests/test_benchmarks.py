"""The benchmarks compare with what they say: the bare products are those of the step."""

import importlib
import json
import sys
from math import prod
from pathlib import Path

import jax
import pytest

import bilax
from bilax.datasets import digits
from bilax.oracle import make_oracle
from bilax.problems import hyper_cleaning
from bilax.sampling import keys

FOLDER = Path(__file__).parents[1] / "benchmarks"
PROBLEM = hyper_cleaning(digits(0.3))
FEATURES = PROBLEM.y0.shape[1]


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("bare")
    sys.modules.pop("bare", None)


@pytest.mark.parametrize(("name", "stored"), [("penalties", "penalties.jsonl"), ("cleaning", "cleaning.jsonl")])
def test_the_tables_of_the_estimators_are_what_was_measured(monkeypatch, name, stored):
    monkeypatch.syspath_prepend(FOLDER)
    benchmark = importlib.import_module(name)
    docs = FOLDER.parent / "docs"
    rows = [json.loads(line) for line in (docs / "measured" / stored).read_text().splitlines()]
    page = (docs / f"{name}.md").read_text()
    assert f"<!-- {name} -->\n{benchmark.markdown(rows)}\n<!-- end -->" in page
    if name == "cleaning":
        assert f"<!-- precision -->\n{benchmark.details(rows)}\n<!-- end -->" in page
    for commit in {row["commit"][:7] for row in rows}:
        assert f"commit {commit}" in page
    if name == "cleaning":
        assert benchmark.won(rows) in page
    sys.modules.pop(name, None)


def flops(jaxpr, every=1):
    """Floating-point operations of the products of a step; branches are taken in one of so many steps."""
    total = 0.0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contract, _), _ = eqn.params["dimension_numbers"]
            total += 2 * prod(eqn.outvars[0].aval.shape) * prod(eqn.invars[0].aval.shape[a] for a in contract)
        elif eqn.primitive.name == "scan":
            total += eqn.params["length"] * flops(eqn.params["jaxpr"].jaxpr)
        elif eqn.primitive.name == "cond":
            total += sum(flops(branch.jaxpr) for branch in eqn.params["branches"]) / every
        elif "jaxpr" in eqn.params:
            inner = eqn.params["jaxpr"]
            total += flops(getattr(inner, "jaxpr", inner), every)
    return total


@pytest.mark.parametrize(
    ("algorithm", "products", "every"),
    [
        (bilax.MRBO(S=60, Q=3, eta=0.1), lambda bare: bare.mrbo(60, 3), 1),
        (bilax.MRBO(S=60, Q=1, eta=0.1), lambda bare: bare.mrbo(60, 1), 1),
        (bilax.VRBO(S1=90, S2=60, m=4, q=3, Q=2, eta=0.1), lambda bare: bare.vrbo(90, 60, 4, 3, 2), 3),
        (bilax.StocBiO(S=60, D=7, Q=3, eta=0.1), lambda bare: bare.stocbio(60, 7, 3), 1),
    ],
)
def test_the_bare_products_are_those_of_a_step(bare, algorithm, products, every):
    oracle = make_oracle(PROBLEM)
    state = algorithm.init(oracle, PROBLEM.x0, PROBLEM.y0)
    jaxpr = jax.make_jaxpr(lambda state: algorithm.step(oracle, keys.at(keys.root(0), 0), state)[0])(state)
    assert flops(jaxpr.jaxpr, every) == pytest.approx(bare.flops(products(bare), FEATURES))
