"""Compiled programs are kept in the user's cache, so that a second start is quicker."""

import os

SWITCH = "BILAX_COMPILE_CACHE"


def folder() -> str | None:
    """Return the folder, or None if the cache is switched off; a folder that the user has given to JAX comes first."""
    if chosen := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return chosen
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    import platformdirs

    return str(platformdirs.user_cache_path("bilax") / "compiled")


def switch_on() -> None:
    """Tell JAX, which is not imported yet, where to keep compiled programs."""
    if (place := folder()) is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = place
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
