"""A state of a run on disk: arrays and facts in one file, read back bit for bit. Nothing is unpickled."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax.storage.files import replacing
from bilax.types import PyTree

NAME = "checkpoint.npz"
FORMAT = 1


class Damaged(ValueError):
    """A file that cannot be read as what it should be."""


def save(path: Path, tree: PyTree, facts: dict[str, Any]) -> None:
    """Write the leaves of a tree and facts that JSON has, in place of what was there."""
    leaves = [np.asarray(_plain(leaf)) for leaf in jax.tree.leaves(tree)]
    described = [{"shape": leaf.shape, "dtype": leaf.dtype.name} for leaf in leaves]
    head = json.dumps({"format": FORMAT, "leaves": described, "facts": facts})
    buffer = io.BytesIO()
    arrays = {f"leaf{i}": np.frombuffer(leaf.tobytes(), np.uint8) for i, leaf in enumerate(leaves)}
    np.savez(buffer, head=np.frombuffer(head.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    with replacing(path) as file:
        file.write(buffer.getbuffer())


def load(path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return the leaves and the facts of a file that `save` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise Damaged(f"{path} is compressed, which no checkpoint is.")
        with np.load(path, allow_pickle=False) as file:
            head = json.loads(bytes(file["head"]).decode())
            if head["format"] != FORMAT:
                raise Damaged(f"{path} has the format {head['format']!r}; this version of bilax reads {FORMAT}.")
            leaves = [
                np.frombuffer(bytes(file[f"leaf{i}"]), np.dtype(leaf["dtype"])).reshape(leaf["shape"])
                for i, leaf in enumerate(head["leaves"])
            ]
            return leaves, dict(head["facts"])
    except Damaged:
        raise
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise Damaged(f"{path} is damaged ({type(error).__name__}: {error}).") from None


def like(template: PyTree, leaves: list[np.ndarray]) -> PyTree | None:
    """Return the leaves in the shape of a template, or None if they do not fit."""
    expected, structure = jax.tree.flatten(template)
    plain = [_plain(leaf) for leaf in expected]
    fits = len(leaves) == len(plain) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(leaves, plain, strict=True)
    )
    if not fits:
        return None
    back = [_back(leaf, to) for leaf, to in zip(leaves, expected, strict=True)]
    return jax.block_until_ready(jax.tree.unflatten(structure, back))


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _back(leaf: np.ndarray, template: Any) -> Any:
    if jax.numpy.issubdtype(template.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jax.numpy.array(leaf), impl=jax.random.key_impl(template))
    return jax.numpy.array(leaf)
