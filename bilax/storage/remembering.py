"""Parts of long work that are kept as they are done, so that the same command goes on with what is left."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bilax
from bilax.storage.files import said, write_text


def remembered(folder: Path | None, identity: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """Return what ``compute`` returned for the same identity before, or call it; both as JSON has it."""
    if folder is None:
        return compute()
    path = Path(folder) / f"{digest_of(identity)}.json"
    try:
        return json.loads(path.read_text())["value"]
    except (OSError, ValueError, KeyError, TypeError):
        value = compute()
    with said(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"identity": identity, "value": value}, indent=2) + "\n")
    return value


def digest_of(identity: dict[str, Any]) -> str:
    """Return a short name for what decides a computation, the versions of bilax and JAX included."""
    import jax

    versions = {"bilax": bilax.__version__, "jax": jax.__version__}
    return hashlib.sha256(json.dumps({**identity, **versions}, sort_keys=True).encode()).hexdigest()[:16]
