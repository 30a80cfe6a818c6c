"""Find what is damaged among stored runs, and mend it: nothing is thrown away, damaged files are set aside."""

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilax.errors import Doubts
from bilax.storage import checkpoints
from bilax.storage.files import set_aside, write_text
from bilax.storage.runs import ARRAYS, FINISHED, MANIFEST, ROWS, beside, finish_exchange, read_manifest, read_rows


class Damage(NamedTuple):
    path: Path
    what: str
    remedy: str
    mend: Callable[[], object]


def damages(folder: str | Path) -> list[Damage]:
    """Return what is wrong with the runs below a folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `bilax run` and `bilax reproduce` make one.")
    runs = sorted({path.parent for name in (MANIFEST, ROWS, ARRAYS, checkpoints.NAME) for path in folder.rglob(name)})
    return [*_leftovers(folder), *(damage for run in runs for damage in _in_run(run))]


def _leftovers(folder: Path) -> Iterator[Damage]:
    for path in sorted(folder.rglob(".*.part")):
        yield Damage(path, "a file that was not written to its end", "removed", path.unlink)
    for old in sorted(folder.rglob(".old-*")):
        run = old.with_name(old.name.removeprefix(".old-"))
        if beside(run, "old") == old:
            yield Damage(
                old, "an exchange of results that was cut short", "finished", lambda run=run: finish_exchange(run)
            )


def _in_run(run: Path) -> Iterator[Damage]:
    quiet = Doubts(quiet=True)
    manifest = read_manifest(run, quiet)
    if quiet.texts:
        yield _aside(run / MANIFEST, "a manifest that cannot be read")
    noticed = Doubts(quiet=True)
    rows = read_rows(run, noticed)
    if noticed.texts:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        what = f"{len(noticed.texts)} rows that cannot be read"

        def keep_the_others(path: Path = run / ROWS, text: str = text) -> None:
            set_aside(path)
            write_text(path, text)

        yield Damage(run / ROWS, what, "set aside; the other rows are kept", keep_the_others)
    if manifest is not None and manifest["status"] in FINISHED and len(rows) < manifest.get("rows", 1):
        changed = {**manifest, "status": "interrupted", "message": "its rows are not all there; run it again."}
        yield Damage(
            run / MANIFEST,
            f"it says {manifest['status']}, but {len(rows)} of {manifest.get('rows', 1)} rows are there",
            "marked as interrupted, so that it is run again",
            lambda: write_text(run / MANIFEST, json.dumps(changed, indent=2) + "\n"),
        )
    if (run / ARRAYS).exists() and not _readable(run / ARRAYS):
        yield _aside(run / ARRAYS, "arrays that cannot be read")
    if (run / checkpoints.NAME).exists():
        try:
            checkpoints.load(run / checkpoints.NAME)
        except checkpoints.Damaged:
            yield _aside(run / checkpoints.NAME, "a checkpoint that cannot be read")


def _aside(path: Path, what: str) -> Damage:
    return Damage(path, what, "set aside", lambda: set_aside(path))


def _readable(path: Path) -> bool:
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                file[name]
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return False
    return True
