"""A run that survives its process: what `checkpoint_dir` keeps, and how a run goes on from it."""

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bilax
from bilax.errors import Doubts
from bilax.numerics.processes import all_see, as_the_first_says, bytes_of_the_first, gathered, if_any, is_first, whole
from bilax.optimisers import Optimiser, fingerprint
from bilax.oracle import Traced, TracedProblem
from bilax.sampling.streamed import Streamed
from bilax.storage import checkpoints, shards
from bilax.storage.checkpoints import NAME, Damaged
from bilax.storage.files import remove_parts, said, set_aside
from bilax.types import PyTree

SHARE = 20  # times as long as saving took passes, at least, before it is done again
ROWS = 100  # of a source, likewise
SAMPLED = 100_000  # numbers of each array that decide whether data are the same


class Keeper:
    """Saves a run now and then; does nothing without a folder."""

    def __init__(self, folder: str | Path | None, identity: Callable[[], dict[str, Any]]):
        if folder is not None and not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"checkpoint_dir must be the name of a folder; got {folder!r}.")
        if folder is not None and not str(folder):
            raise ValueError("checkpoint_dir must be the name of a folder; got ''.")
        self.path = None if folder is None else Path(folder) / NAME
        self.next = 0.0
        for path, what in ((self.path, "a folder, not a checkpoint"), (Path(folder or "."), "a file, not a folder")):
            if path is not None and (path.is_dir() if path is self.path else path.is_file()):
                raise ValueError(f"{path} is {what}; remove it, or give another checkpoint_dir.")
        if self.path is not None:
            with said(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                if is_first():
                    remove_parts(self.path.parent)
            self.apart = ""  # the folder of the arrays that each process writes its own part of
            self.in_parts = all_see(self.path.parent) and not if_any(not shards.installed())
            self.identity = identity() | {"versions": {"bilax": bilax.__version__, "jax": jax.__version__}}

    def load(self, template: PyTree, doubts: Doubts) -> tuple[PyTree, dict[str, Any]] | None:
        """Return what was saved: the loop, and the facts; None if there is nothing to go on from.

        Of several processes, the first alone reads and writes the file; each reads and writes its own part of arrays
        that are spread over all, if they see the same folder and have orbax. Otherwise the first one gets such arrays.
        """
        if self.path is None:
            return None
        content = bytes_of_the_first(self.path.read_bytes() if is_first() and self.path.exists() else None)
        if content is None:
            return None
        try:
            leaves, facts = checkpoints.read(self.path, content)
            then, now = (dict(facts["identity"]), dict(self.identity))
        except (Damaged, KeyError, TypeError, ValueError) as error:
            return self._begin_anew(error, doubts)
        versions = then.pop("versions", {}), now.pop("versions")
        differ = [
            f"{name} is {then.get(name)!r} there and {now[name]!r} here" for name in now if then.get(name) != now[name]
        ]
        tree = checkpoints.like(template, leaves)
        if not differ and tree is not None:
            try:
                tree = self._with_parts(template, tree, facts)
            except Damaged as error:
                return self._begin_anew(error, doubts)
        if differ or tree is None:
            what = "; ".join(differ) or "its arrays have other shapes"
            raise ValueError(
                f"{self.path} is of another run: {what}. Give another checkpoint_dir, or remove that file to begin "
                "anew."
            )
        if versions[0] != versions[1]:
            doubts.add(
                f"{self.path} was saved with {_named(versions[0])}; the rest is computed with {_named(versions[1])}, "
                "so the numbers may differ in their last digits from those of an uninterrupted run."
            )
        return tree, facts

    def save(self, tree: PyTree, facts: dict[str, Any], *, now: bool = False) -> None:
        """Save, if it is time to or ``now``."""
        if self.path is None or not (as_the_first_says(time.monotonic() >= self.next) or now):
            return
        tic = time.monotonic()
        tree = self._without_parts(tree) if self.in_parts else gathered(tree)
        if is_first():
            checkpoints.save(self.path, tree, {**facts, "apart": self.apart, "identity": self.identity})
            shards.remove(self.path.parent, but=self.apart)
        toc = time.monotonic()
        self.next = toc + SHARE * (toc - tic)

    def _begin_anew(self, error: Exception, doubts: Doubts) -> None:
        assert self.path is not None
        name = set_aside(self.path).name if is_first() else "damaged"  # the others have no file
        doubts.add(f"{error} It was set aside as {name}, and the run begins anew.")

    def _without_parts(self, tree: PyTree) -> PyTree:
        """Write the arrays that are spread over processes; return the tree with a note in place of each."""
        assert self.path is not None
        spread = [leaf for leaf in jax.tree.leaves(tree) if shards.is_spread(leaf)]
        name = f"{shards.PREFIX}{int(tree.state.k)}" if spread else ""
        if name and name != self.apart:  # the same step again has the same arrays
            with said(self.path):
                shards.save(self.path.parent / name, spread)
        self.apart = name
        return jax.tree.map(lambda leaf: shards.described(leaf) if shards.is_spread(leaf) else leaf, tree)

    def _with_parts(self, template: PyTree, tree: PyTree, facts: dict[str, Any]) -> PyTree:
        """Return the tree with the arrays that were written apart, as the template is laid out."""
        assert self.path is not None
        leaves, structure = jax.tree.flatten(tree)
        apart = [checkpoints.is_apart(leaf) for leaf in leaves]
        if not any(apart):
            return tree
        wanted = [to for to, is_apart in zip(jax.tree.leaves(template), apart, strict=True) if is_apart]
        name = Path(facts["apart"]).name
        try:
            found = iter(shards.load(self.path.parent / name, wanted))
        except (OSError, ValueError, KeyError) as error:
            raise Damaged(
                f"{self.path} keeps arrays apart in {name}, and they cannot be read ({type(error).__name__})."
            ) from None
        if self.in_parts:
            self.apart = name
        return jax.tree.unflatten(
            structure, [next(found) if is_apart else leaf for leaf, is_apart in zip(leaves, apart, strict=True)]
        )


def identity(algorithm: Any, seed: int, sampler: Any, problem: Traced, start: PyTree) -> dict[str, Any]:
    """Return what decides a run, as text and numbers."""
    name = getattr(sampler, "__qualname__", type(sampler).__name__)
    given = sampler if isinstance(sampler, str) else f"{name} {fingerprint(sampler)}"
    data = (problem.outer_data, problem.inner_data) if isinstance(problem, TracedProblem) else ()
    carried = problem.carried
    data = [(one.samples, one.some(ROWS)) if isinstance(one, Streamed) else one for one in data]
    told = re.sub(r" at 0x[0-9a-f]+", "", repr(algorithm))  # where an object lies is no part of it
    steps = [leaf for leaf in jax.tree.leaves(algorithm, is_leaf=_is_step) if _is_step(leaf)]
    code = problem.functions if isinstance(problem, TracedProblem) else ()
    return {
        "algorithm": told,
        "optimisers": [fingerprint(step) for step in steps],
        "seed": seed,
        "sampler": given,
        "losses and projections": [fingerprint(part) for part in (*code[:4], *code[6:])],
        "data and start": _digest((start, data) if carried is None else (start, data, carried)),
    }


def _is_step(leaf: Any) -> bool:
    return isinstance(leaf, Optimiser)


def rows_kept(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the run that would go on from a folder."""
    try:
        return list(checkpoints.load(folder / NAME)[1]["measured"]["rows"])
    except (FileNotFoundError, Damaged, KeyError, TypeError):
        return []


def _digest(tree: PyTree) -> str:
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        leaf = np.asarray(leaf) if isinstance(leaf, int) else leaf
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        flat = np.asarray(whole(leaf)).reshape(-1)
        digest.update(flat[:: max(1, leaf.size // SAMPLED)].tobytes())
    return digest.hexdigest()[:16]


def _named(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "an unknown version"
