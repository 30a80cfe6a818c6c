"""A state of a run on disk: arrays and facts in one file, read back bit for bit. Nothing is unpickled."""

import hashlib
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bilax.storage.files import replacing
from bilax.types import PyTree

NAME = "checkpoint.bin"
FORMAT = b"bilax checkpoint 1 "


class Damaged(ValueError):
    """A file that cannot be read as what it should be."""


def save(path: Path, tree: PyTree, facts: dict[str, Any]) -> None:
    """Write the leaves of a tree and facts that JSON has, in place of what was there.

    Of a leaf that is kept apart (a `jax.ShapeDtypeStruct`), only shape and type are written.
    """
    leaves = [leaf if is_apart(leaf) else np.asarray(_plain(leaf)) for leaf in jax.tree.leaves(tree)]
    described = [{"shape": leaf.shape, "dtype": leaf.dtype.name, "apart": is_apart(leaf)} for leaf in leaves]
    head = json.dumps({"leaves": described, "facts": facts})
    buffer = io.BytesIO()
    arrays = {
        f"leaf{i}": np.frombuffer(leaf.tobytes(), np.uint8) for i, leaf in enumerate(leaves) if not is_apart(leaf)
    }
    np.savez(buffer, head=np.frombuffer(head.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    with replacing(path) as file:
        file.write(FORMAT + hashlib.sha256(buffer.getbuffer()).hexdigest().encode() + b"\n")
        file.write(buffer.getbuffer())


def load(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the leaves and the facts of a file that `save` wrote."""
    return read(path, path.read_bytes())


def read(path: Path, content: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Return the leaves and the facts of what stands in a file; a `jax.ShapeDtypeStruct` for what is kept apart."""
    line, _, body = content.partition(b"\n")
    if not line.startswith(FORMAT):
        raise Damaged(f"{path} is damaged, or not a checkpoint of this version of bilax.")
    if line.removeprefix(FORMAT).decode(errors="replace") != hashlib.sha256(body).hexdigest():
        raise Damaged(f"{path} is damaged: its checksum is wrong.")
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise Damaged(f"{path} is damaged: no checkpoint is compressed.")
        with warnings.catch_warnings(), np.load(io.BytesIO(body), allow_pickle=False) as file:
            warnings.simplefilter("ignore")
            head = json.loads(bytes(file["head"]).decode())
            leaves = [_read(file, i, leaf) for i, leaf in enumerate(head["leaves"])]
            return leaves, dict(head["facts"])
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"{path} is damaged ({type(error).__name__}: {error}).") from None


def _read(file: Any, i: int, told: dict[str, Any]) -> Any:
    shape, dtype = tuple(told["shape"]), np.dtype(told["dtype"])
    if told.get("apart"):
        return jax.ShapeDtypeStruct(shape, dtype)
    return np.frombuffer(bytes(file[f"leaf{i}"]), dtype).reshape(shape)


def like(template: PyTree, leaves: list[Any]) -> PyTree | None:
    """Return the leaves in the shape of a template, or None if they do not fit."""
    expected, structure = jax.tree.flatten(template)
    plain = [_plain(leaf) for leaf in expected]
    fits = len(leaves) == len(plain) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(leaves, plain, strict=True)
    )
    if not fits:
        return None
    back = [leaf if is_apart(leaf) else _back(leaf, to) for leaf, to in zip(leaves, expected, strict=True)]
    return jax.block_until_ready(jax.tree.unflatten(structure, back))


def is_apart(leaf: Any) -> bool:
    """Tell whether this stands for an array that is kept elsewhere."""
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _back(leaf: np.ndarray, template: Any) -> Any:
    if jax.numpy.issubdtype(template.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jax.numpy.array(leaf), impl=jax.random.key_impl(template))
    return jax.numpy.array(leaf)
