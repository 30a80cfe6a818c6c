"""Compiled programs are kept in the user's cache, so that a second start is quicker."""

import os
from collections.abc import Iterator
from pathlib import Path

SWITCH = "BILAX_COMPILE_CACHE"
LIMIT = 2**29  # bytes at most; what was not used for longest goes first


def folder() -> str | None:
    """Return the folder, or None if the cache is switched off; a folder that the user has given to JAX comes first."""
    if chosen := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return chosen
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    import platformdirs

    # Not "compiled", which held programs without the time of their last use: with a limit, JAX stumbles over them.
    return str(platformdirs.user_cache_path("bilax") / "programs")


def switch_on() -> None:
    """Tell JAX, which is not imported yet, where to keep compiled programs, and how many."""
    place = folder()
    if place is None:
        return
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a folder of the user's own is not ours to limit
        os.environ["JAX_COMPILATION_CACHE_DIR"] = place
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LIMIT))
    # Small programs, too: a run has thirty, which take two seconds to compile and are a few kilobytes each.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def kept_bytes() -> int:
    return sum(file.stat().st_size for file in _files())


def empty() -> int:
    """Remove what JAX has kept, and nothing else; return how many bytes that were."""
    found = kept_bytes()
    for file in _files():
        file.unlink(missing_ok=True)
    return found


def _files() -> Iterator[Path]:
    place = folder()
    for pattern in ("*-cache", "*-atime") if place else ():
        yield from Path(str(place)).glob(pattern)
