"""Compiled programs are kept in the user's cache, so that a second start is quicker."""

import os
from pathlib import Path

SWITCH = "BILAX_COMPILE_CACHE"


def folder() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("bilax") / "compiled"


def keep() -> None:
    """Tell JAX, which is not imported yet, where to keep them; what the user has told it goes first."""
    if switched_off():
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def switched_off() -> bool:
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")
