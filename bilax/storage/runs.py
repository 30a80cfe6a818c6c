"""Runs on disk: a folder each, with a manifest and a row per measurement, written as it happens."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np

from bilax.storage.environment import environment

MANIFEST, ROWS, ARRAYS = "manifest.json", "rows.jsonl", "arrays.npz"


class Record:
    """One run on disk: a manifest, and a row per measurement, written as it happens."""

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder, self.manifest = Path(folder), manifest

    @classmethod
    def begin(cls, folder: Path, facts: Mapping[str, Any]) -> "Record":
        """Start a run in an empty folder; what an unfinished run left there is removed."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, ROWS, ARRAYS):
            (folder / name).unlink(missing_ok=True)
        record = cls(folder, {**facts, "status": "running", "started": _now(), **environment()})
        record._save()
        return record

    def row(self, row: Mapping[str, Any]) -> None:
        with (self.folder / ROWS).open("a") as file:
            file.write(json.dumps({name: _plain(value) for name, value in row.items()}) + "\n")

    def arrays(self, **arrays: np.ndarray) -> None:
        np.savez_compressed(self.folder / ARRAYS, **cast(Any, arrays))

    def end(self, **facts: Any) -> None:
        """Close the run: its status, message and times."""
        self.manifest |= {"finished": _now(), **facts}
        self._save()

    def _save(self) -> None:
        part = self.folder / f"{MANIFEST}.part"
        part.write_text(json.dumps(self.manifest, indent=2) + "\n")
        part.replace(self.folder / MANIFEST)  # at once: a reader never meets half a manifest


FINISHED = ("done", "converged", "timeout", "diverged")


def manifests(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """Return the manifest of every run below a folder, by the run's own folder."""
    found = {}
    for path in sorted(Path(folder).rglob(MANIFEST)):
        try:
            manifest = json.loads(path.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError):
            if (path.parent / ROWS).exists():
                raise ValueError(f"{path} is damaged; remove {path.parent} and run it again.") from None
            continue  # somebody else's file of that name
        if isinstance(manifest, dict) and "setting" in manifest:
            found[path.parent] = manifest
    return found


def read_rows(run: Path) -> list[dict[str, Any]]:
    path = run / ROWS
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(f"line {number} of {path} is damaged; remove {run} and run it again.") from None
    return rows


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """Return a value that JSON has: infinities and NaN become null."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
