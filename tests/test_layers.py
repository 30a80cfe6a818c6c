"""The shape of the library: imports go one way, the public names are these, --help is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bilax

PACKAGE = Path(bilax.__file__).parent

# Lower layers first; a module imports only from its own layer or from layers above it in this list.
LAYERS = [
    {"types", "errors", "phase", "report", "storage"},
    {"numerics", "sparse", "sources"},
    {"sampling"},
    {"functions", "given"},
    {"problem"},
    {"oracle", "optimisers"},
    {"hyperparameters", "results"},
    {"hypergrad"},
    {"algorithms", "testing"},
    {"theory", "settings"},
    {"running"},
    {"problems"},
    {"datasets"},
    {"sklearn"},
    {"cleaning"},
    {"experiments"},
    {"benchmark", "paper"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path):
    """Modules of bilax that a file imports when it is loaded (not inside functions)."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bilax":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


def test_imports_go_down_the_list_only():
    seen = set()
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        seen.add(layer)
        for name in imported(path):
            assert RANK[name] <= RANK[layer], f"{path.relative_to(PACKAGE)} imports bilax.{name}"
    assert seen == set(RANK)


def test_nothing_but_the_command_line_depends_on_the_paper():
    """Not even inside functions."""
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0]
        if folder not in ("paper", "cli"):
            assert "bilax.paper" not in path.read_text().replace("`bilax.paper", ""), path


@pytest.mark.registry
def test_public_names():
    methods = {cls.__name__ for cls in bilax.ALGORITHMS.values()}
    assert {"MRBO", "VRBO", "StocBiO"} <= methods
    assert set(bilax.__all__) - methods == {
        "ALGORITHMS", "Counts", "Doubtful", "GaussNewton", "History", "Info", "Oracle", "Problem", "Result", "UnsafeEta", "__version__",
        "algorithms", "datasets", "hypergrad", "hypergradient", "hyperparameters", "iterate", "make_oracle", "optimisers",
        "problems", "results", "settings", "solve", "sources", "sparse", "sweep", "testing", "theory",
    }  # fmt: skip
    for name in bilax.__all__:
        assert getattr(bilax, name) is not None
    assert set(dir(bilax)) == set(bilax.__all__)
    scope = {}
    exec("from bilax import *", scope)
    assert set(bilax.__all__) <= set(scope)
    with pytest.raises(AttributeError, match="module 'bilax' has no attribute 'MRBOO'"):
        bilax.MRBOO  # noqa: B018


def test_help_does_not_import_jax():
    code = (
        "import sys; from bilax.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_core_imports_jax_and_numpy_only():
    code = (
        "import sys, bilax; bilax.solve, bilax.MRBO, bilax.problems\n"
        "heavy = {'sklearn', 'matplotlib', 'pandas', 'rich', 'typer', 'scipy.optimize', 'optax'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
