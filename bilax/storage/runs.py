"""Runs on disk: a folder each, with a manifest and a row per measurement, written as it happens."""

import json
import math
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np

from bilax.errors import Doubts
from bilax.storage import shards
from bilax.storage.checkpoints import NAME as CHECKPOINT
from bilax.storage.environment import environment
from bilax.storage.files import append_line, remove_parts, replacing, said, sync_folder, write_text

MANIFEST, ROWS, ARRAYS = "manifest.json", "rows.jsonl", "arrays.npz"
FINISHED = ("done", "converged", "timeout", "diverged", "stopped")


def in_words(status: str) -> str:
    """Return a status as people read it.

    >>> in_words("timeout"), in_words("done")
    ('budget used', 'done')
    """
    return "budget used" if status == "timeout" else status


class Record:
    """One run on disk. Where a finished one is already, it is written beside it, and takes its place when complete."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]):
        self.folder = Path(folder)
        self.work = beside(self.folder) if is_finished(self.folder) else self.folder
        self.manifest = {**facts, "status": "running", "started": _now(), **environment()}

    def begin(self, rows: Sequence[Mapping[str, Any]] = ()) -> "Record":
        """Start; of a run that goes on, ``rows`` are kept."""
        with said(self.work):
            self.work.mkdir(parents=True, exist_ok=True)
            (self.work / ARRAYS).unlink(missing_ok=True)
            remove_parts(self.work)
        write_text(self.work / ROWS, "".join(_line(row) + "\n" for row in rows))
        self._save()
        return self

    def row(self, row: Mapping[str, Any]) -> None:
        append_line(self.work / ROWS, _line(row))

    def arrays(self, **arrays: np.ndarray) -> None:
        with replacing(self.work / ARRAYS) as file:
            np.savez_compressed(cast(Any, file), **cast(Any, arrays))

    def end(self, **facts: Any) -> None:
        """Close the run: its status, message and times."""
        self.manifest |= {"finished": _now(), **facts, "rows": len(read_rows(self.work))}
        self._save()
        if facts["status"] not in FINISHED:
            return
        (self.work / CHECKPOINT).unlink(missing_ok=True)
        shards.remove(self.work)
        if self.work != self.folder:
            with said(self.folder):
                old = beside(self.folder, "old")
                shutil.rmtree(old, ignore_errors=True)
                self.folder.rename(old)
                self.work.rename(self.folder)
                sync_folder(self.folder.parent)
                shutil.rmtree(old, ignore_errors=True)

    def _save(self) -> None:
        write_text(self.work / MANIFEST, json.dumps(self.manifest, indent=2) + "\n")


def beside(folder: Path, what: str = "new") -> Path:
    """Return a hidden name beside a folder: what is there is not a result yet, or not any more."""
    return folder.with_name(f".{what}-{folder.name}")


def finish_exchange(folder: Path) -> None:
    """Finish an exchange of folders that a crash cut short."""
    old = beside(folder, "old")
    if old.is_dir() and not folder.exists():
        new = beside(folder)
        (new if is_finished(new) else old).rename(folder)
    if old.is_dir() and folder.exists():
        shutil.rmtree(old, ignore_errors=True)


def is_finished(folder: Path) -> bool:
    """Tell whether a run is complete: its manifest says so, and its rows are there."""
    manifest = read_manifest(folder, Doubts(quiet=True))
    if manifest is None or manifest.get("status") not in FINISHED:
        return False
    rows = manifest.get("rows", 1)
    return isinstance(rows, int) and len(read_rows(folder, Doubts(quiet=True))) >= rows


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes off a run; who comes second is told who is at it. A dead process holds nothing."""
    from filelock import FileLock, Timeout

    with said(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    path, note = beside(folder, "lock"), beside(folder, "by")
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        who = _text(note) or "another process"
        raise BlockingIOError(f"{folder.name} is being run by {who}; wait for it, or stop it.") from None
    try:
        with said(note):
            note.write_text(f"process {os.getpid()} on {platform.node()}, since {_now()}")
        yield
    finally:
        note.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        lock.release()


def manifests(folder: str | Path, doubts: Doubts | None = None) -> dict[Path, dict[str, Any]]:
    """Return the manifest of every run below a folder, by the run's own folder; damaged ones are named and left out."""
    doubts = doubts or Doubts()
    found = {}
    for path in sorted(Path(folder).rglob(MANIFEST)):
        hidden = any(part.startswith((".new-", ".old-")) for part in path.relative_to(folder).parts)
        manifest = None if hidden else read_manifest(path.parent, doubts)
        if manifest is not None:
            found[path.parent] = manifest
    return found


def read_manifest(run: Path, doubts: Doubts) -> dict[str, Any] | None:
    """Return a manifest; None if there is none, if it is damaged, or if it is somebody else's file of that name."""
    try:
        manifest = json.loads((run / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError) as error:
        if (run / ROWS).exists():
            doubts.add(
                f"{run / MANIFEST} is damaged ({type(error).__name__}), so this run is left out; run it again, or have "
                "`bilax doctor --results` set it aside."
            )
        return None
    fits = isinstance(manifest, dict) and isinstance(manifest.get("setting"), str)
    return manifest if fits and isinstance(manifest.get("status"), str) else None


def read_rows(run: Path, doubts: Doubts | None = None) -> list[dict[str, Any]]:
    """Return the rows of a run; damaged lines are named and left out, but for a last one that was cut off."""
    path = run / ROWS
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            row = line
        if isinstance(row, dict):
            rows.append(row)
        elif row is not None and number < len(lines):
            (doubts or Doubts()).add(f"line {number} of {path} is damaged and left out.")
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in row.items()})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """Return a value that JSON has: infinities and NaN become null."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
