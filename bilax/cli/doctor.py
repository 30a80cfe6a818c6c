"""What is installed, what JAX sees, which data are there, and how to get what is missing. No network is used."""

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import bilax
from bilax.cli import compile_cache
from bilax.storage.environment import commit

REQUIRED = ("jax", "jaxlib", "numpy")
# Extra -> the packages it brings. If two extras bring the same package, the first one is recommended.
EXTRAS = {
    "cli": ("typer", "rich", "platformdirs", "filelock"),
    "data": ("scikit-learn", "pooch"),
    "plots": ("matplotlib",),
    "tables": ("pandas",),
    "report": ("plotly", "matplotlib", "pandas"),
    "sklearn": ("scikit-learn", "optax"),
    "clean": (
        "typer",
        "rich",
        "platformdirs",
        "filelock",
        "scikit-learn",
        "optax",
        "pandas",
        "pyarrow",
        "pillow",
    ),
    "cluster": ("orbax-checkpoint",),
}


@dataclass(frozen=True)
class Package:
    name: str
    version: str | None  # None: not installed
    extras: list[str]  # those that bring it; empty for a package that bilax cannot do without
    remedy: str


@dataclass(frozen=True)
class Jax:
    error: str  # why it does not work, "" if it does
    remedy: str
    backend: str | None = None
    devices: list[str] | None = None
    x64: bool | None = None


@dataclass(frozen=True)
class Data:
    name: str
    state: str
    where: str
    remedy: str


@dataclass(frozen=True)
class Report:
    ok: bool  # all that is required is there and works
    bilax: str
    commit: str | None  # None: not a git checkout
    python: str
    system: str
    cpus: int
    memory: int | None  # bytes; None: the system does not say
    packages: list[Package]
    jax: Jax
    data: list[Data] | None  # None: not looked at, because JAX does not work
    compiled: str | None  # the folder that keeps compiled programs; None: switched off
    compiled_bytes: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def report() -> Report:
    """Look at everything, and change nothing."""
    packages = [_package(name, []) for name in REQUIRED]
    for name in dict.fromkeys(name for names in EXTRAS.values() for name in names):
        packages.append(_package(name, [extra for extra, names in EXTRAS.items() if name in names]))
    jax = _jax()
    return Report(
        ok=not jax.error and all(package.version for package in packages if not package.extras),
        bilax=bilax.__version__,
        commit=commit(),
        python=platform.python_version(),
        system=platform.platform(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=_memory(),
        packages=packages,
        jax=jax,
        data=None if jax.error else _data(),
        compiled=compile_cache.folder(),
        compiled_bytes=compile_cache.kept_bytes(),
    )


def show(console: Console, found: Report | None = None) -> bool:
    """Print the report; return whether all that is required is there."""
    found = found or report()
    _title(console, f"bilax {found.bilax}" + (f", commit {found.commit[:10]}" if found.commit else ""))
    memory = "" if found.memory is None else f", {found.memory / 2**30:.1f} GiB of memory"
    cpus = f"{found.cpus} CPU" + "s" * (found.cpus != 1)
    console.print(f"  Python {found.python}, {found.system}\n  {cpus}{memory}", highlight=False)

    _title(console, "Required")
    rows = [_row(package) for package in found.packages if not package.extras]
    _rows(console, [*rows, (not found.jax.error, *_jax_words(found.jax))])
    _title(console, "Optional")
    _rows(console, [_row(package) for package in found.packages if package.extras], grave=False)
    _title(console, "Data")
    if found.data is None:
        console.print("  not looked at, because JAX does not work", highlight=False)
    else:
        rows = [(data.state == "present", data.state, data.name, data.where) for data in found.data]
        _rows(console, rows, grave=False)

    _title(console, "Compiled programs")
    kept = (
        f"{found.compiled_bytes / 2**20:.1f} MiB, at most {compile_cache.LIMIT / 2**20:.0f}, kept in {found.compiled} "
        f"(to empty it: bilax doctor --empty-cache; {compile_cache.SWITCH}=off: not kept)"
        if found.compiled
        else f"not kept ({compile_cache.SWITCH}=off)"
    )
    console.print(f"  {kept}", highlight=False, soft_wrap=True)

    remedies: dict[str, list[str]] = {}
    for name, remedy in _missing(found):
        remedies.setdefault(remedy, []).append(name)
    if remedies:
        _title(console, "To get what is missing")
    for remedy, names in remedies.items():
        line = Text(f"  {', '.join(names)}: ").append(remedy, style="bold")
        console.print(line, soft_wrap=True)  # so that the command can be copied
    verdict = "Everything required is here." if found.ok else "bilax cannot work like this."
    console.print(Text(f"\n{verdict}", style="green" if found.ok else "red"))
    return found.ok


def _missing(found: Report) -> Iterable[tuple[str, str]]:
    """The name and the remedy of everything that is missing or broken."""
    if found.jax.error and all(package.version for package in found.packages if not package.extras):
        yield "jax", found.jax.remedy
    yield from ((package.name, package.remedy) for package in found.packages if not package.version)
    yield from ((data.name, data.remedy) for data in found.data or [] if data.state == "missing")


def _title(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))


def _rows(console: Console, rows: Iterable[tuple[bool, str, str, str]], grave: bool = True) -> None:
    tick, cross = ("✓", "✗") if console.encoding.lower().startswith("utf") else ("+", "x")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for good, word, name, detail in rows:
        style = "green" if good else "red" if grave else "yellow"
        table.add_row(Text(f"{tick if good else cross} {word}", style=style), Text(name), Text(detail))
    console.print(table)


def _row(package: Package) -> tuple[bool, str, str, str]:
    brought = f"  (bilax[{'], bilax['.join(package.extras)}])" if package.extras else ""
    there = package.version is not None
    return there, "installed" if there else "missing", package.name, (package.version or "") + brought


def _jax_words(jax: Jax) -> tuple[str, str, str]:
    if jax.error:
        return "broken", "JAX", jax.error
    x64 = "float64 on" if jax.x64 else "float64 off (jax_enable_x64)"
    return "works", "JAX", f"backend {jax.backend}; devices {', '.join(jax.devices or [])}; {x64}"


def _package(name: str, extras: list[str]) -> Package:
    try:
        installed = version(name)
    except PackageNotFoundError:
        installed = None
    remedy = f"pip install 'bilax[{extras[0]}]'" if extras else f"pip install {name}"
    return Package(name, installed, extras, "" if installed else remedy)


def _jax() -> Jax:
    try:
        import jax

        devices = [
            f"{d.platform}:{d.id}" + (f" ({d.device_kind})" if d.device_kind != d.platform else "")
            for d in jax.devices()
        ]
        return Jax("", "", jax.default_backend(), devices, bool(jax.config.read("jax_enable_x64")))
    except Exception as error:  # jax and its plugins raise more than ImportError
        remedy = "pip install --upgrade --force-reinstall jax jaxlib"
        if chosen := os.environ.get("JAX_PLATFORMS"):
            remedy = f"JAX_PLATFORMS is {chosen!r}; unset it, or set JAX_PLATFORMS=cpu"
        return Jax(f"{type(error).__name__}: {error}", remedy)


def _data() -> list[Data]:
    from bilax.datasets import status

    return [Data(*entry) for entry in status()]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return None
