"""The shape of the library: imports go one way, the public names are these, --help is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import bilax

PACKAGE = Path(bilax.__file__).parent

# Lower layers first; a module imports only from its own layer or from layers above it in this list.
LAYERS = [
    {"types", "constants", "progress", "names", "report", "environment"},
    {"tree", "keys", "sparse", "products"},
    {"hyperparameters"},
    {"problem"},
    {"sampler"},
    {"oracle"},
    {"results", "inner"},
    {"hypergrad"},
    {"algorithms", "testing"},
    {"theory", "settings"},
    {"unsafe_eta"},
    {"loop"},
    {"runner"},
    {"sweeps"},
    {"problems"},
    {"datasets"},
    {"experiments"},
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


def test_public_names():
    assert set(bilax.__all__) == {
        "ALGORITHMS", "AIDCG", "AIDFP", "BSA", "Counts", "History", "Info", "MRBO", "MRBOD", "MSTSA", "Oracle",
        "Problem", "RSVRB", "Result", "Reverse", "SEMA", "STABLE", "SUSTAIN", "StocBiO", "TTSA", "UnsafeEta", "VRBO",
        "__version__", "algorithms", "datasets", "hypergrad", "hypergradient", "iterate", "make_oracle", "problems", "results", "solve", "sparse", "sweep", "testing", "theory",
    }  # fmt: skip
    for name in bilax.__all__:
        assert getattr(bilax, name) is not None
    assert set(dir(bilax)) == set(bilax.__all__)


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
