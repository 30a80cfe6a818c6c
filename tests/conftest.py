"""Tests run in float64, so that agreement can be asked for to many digits."""

import gc
import os
import tempfile

# Most of the time of a test would go into compiling a program that runs for milliseconds: these flags halve that.
FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"

os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # nobody reads which line an operation of a program comes from

# All tests of one call of pytest, in all of its processes, share what they compile.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    SHARED = tempfile.TemporaryDirectory(prefix="bilax-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = SHARED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import jax  # noqa: E402
import pytest  # noqa: E402
from seldom import ON_BOTH, PROOFS, SELDOM, VARIANTS  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
os.environ["BILAX_COMPILE_CACHE"] = "off"  # programs that tests start leave nothing in the user's cache


@pytest.fixture
def compiled():
    """The names of what has been compiled since the test began."""
    names: list[str] = []

    def listen(event, seconds, **facts):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(facts["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


def pytest_addoption(parser):
    parser.addoption("--method", help="only the tests that concern one method, by its name in bilax.ALGORITHMS")


def pytest_configure(config):
    config.addinivalue_line("markers", "registry: concerns every registered method at once")
    config.addinivalue_line("markers", "slow: a proof that seldom changes; `make test` leaves it to .ci/run")


def pytest_collection_finish(session):
    """Tracing makes many short-lived objects: look for garbage seldom, and never among what was imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


ALIKE = {
    "test_carried", "test_contract", "test_loop", "test_optimisers", "test_oracle", "test_outcomes",
    "test_problem_options", "test_projections",
}  # fmt: skip


# Examples of docstrings that read data sets which do not come with the package
READS_DATA = tuple(f"bilax.datasets.{part}." for part in ("cifar10", "mnist", "newsgroups", "tables"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        method, name = (getattr(values.get("algorithm"), what, None) for what in ("method", "name"))
        on_quadratic = getattr(values.get("case"), "name", None) == "quadratic"
        easier = on_quadratic and (name not in ON_BOTH or values.get("sampler") == "epoch")
        module = getattr(getattr(item, "module", None), "__name__", "")
        rare = name in VARIANTS or (method in SELDOM and module in ALIKE)
        proof = getattr(item, "originalname", None) in PROOFS.get(module, ())
        if item.name.startswith(READS_DATA):
            there = os.environ.get("BILAX_DATA_DIR")
            item.add_marker(pytest.mark.skipif(not there, reason="needs BILAX_DATA_DIR"))
            item.add_marker(pytest.mark.slow)
        in_browser = "browser" in getattr(item, "fixturenames", ())
        if proof or easier or in_browser or rare:
            item.add_marker(pytest.mark.slow)
        if method:  # in one process: what is compiled is shared
            item.add_marker(pytest.mark.xdist_group(method))
    name = config.getoption("--method")
    if name is None:
        return
    import bilax

    if name not in bilax.ALGORITHMS:
        raise pytest.UsageError(f"no method is called {name!r}; there are {', '.join(bilax.ALGORITHMS)}")
    chosen = [item for item in items if item.get_closest_marker("registry") or _concerns(item, name)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _concerns(item, name):
    import bilax

    values = getattr(item, "callspec", None)
    for value in values.params.values() if values else ():
        told = (value, getattr(value, "name", None), getattr(value, "method", None))
        if any(isinstance(one, str) and one in (name, f"transcript_{name.replace('-', '_')}") for one in told):
            return True
    return item.name.endswith(f".{bilax.ALGORITHMS[name].__name__}")  # its doctest
