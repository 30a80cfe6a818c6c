"""Arrays that no process holds alone: each writes its own part, with orbax, into a folder that all of them see."""

import importlib.util
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

PREFIX = "spread-"
WRITTEN, PART = "_CHECKPOINT_METADATA", r"\.orbax-checkpoint-tmp"  # in what orbax has written, and has begun


def is_spread(leaf: Any) -> bool:
    """Tell whether an array lies on the devices of several processes, in different parts."""
    return isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated)


def described(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return what stands for an array that is kept apart."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def installed() -> bool:
    """Tell whether orbax can write checkpoints; other packages of that family are called orbax, too."""
    return importlib.util.find_spec("orbax") is not None and importlib.util.find_spec("orbax.checkpoint") is not None


def save(folder: Path, arrays: Sequence[jax.Array]) -> None:
    """Write arrays into a folder that is there whole or not at all; every process calls this."""
    with _orbax().StandardCheckpointer() as writer:
        writer.save(folder.absolute(), {str(i): array for i, array in enumerate(arrays)}, force=True)


def load(folder: Path, templates: Sequence[jax.Array]) -> list[jax.Array]:
    """Return arrays laid out like the templates, whatever the layout was with which they were saved."""
    wanted = {
        str(i): jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=like.sharding) for i, like in enumerate(templates)
    }
    with _orbax().StandardCheckpointer() as reader:
        found = reader.restore(folder.absolute(), wanted)
    return [found[name] for name in wanted]


def remove(folder: Path, *, but: str | None = None) -> None:
    """Remove from a folder what earlier saves have left, whole or in parts, and nothing else."""
    for one in folder.glob(f"{PREFIX}*"):
        whole = re.fullmatch(rf"{PREFIX}\d+", one.name) and (one / WRITTEN).exists()
        if one.name != but and (whole or re.fullmatch(rf"{PREFIX}\d+{PART}.*", one.name)):
            shutil.rmtree(one, ignore_errors=True)


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError:
        raise ImportError(
            "a checkpoint that several processes wrote needs orbax-checkpoint: pip install 'bilax[cluster]'."
        ) from None
    return orbax.checkpoint
