"""How much memory there is to spare, and a refusal, with figures, of what would not fit."""

import os
from collections.abc import Mapping
from pathlib import Path

import jax

from bilax.types import PyTree


def bytes_of(tree: PyTree) -> int:
    """Return the bytes of the arrays in a tree, or of what `jax.eval_shape` says of them."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available_bytes() -> int:
    """Return the bytes that this process may still take: of the machine, and of the group that it is confined to."""
    return min(_of_machine(), _of_group())


def refuse_if_too_large(what: str, parts: Mapping[str, int], remedy: str) -> None:
    """Raise a MemoryError with the bytes of each part, before anything is allocated."""
    needed, available = sum(parts.values()), available_bytes()
    if needed > available:
        listing = ", ".join(f"{name} {_size(n)}" for name, n in parts.items())
        raise MemoryError(
            f"{what} would need at least {_size(needed)} of memory ({listing}), and this machine has "
            f"{_size(available)} to spare. {remedy}"
        )


def _size(n: int) -> str:
    return f"{n / 2**30:,.1f} GiB" if n >= 2**29 else f"{n / 2**20:,.1f} MiB"


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def _of_group() -> int:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            folder = Path("/sys/fs/cgroup")
            return max(0, int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):
            continue
    return 2**62
