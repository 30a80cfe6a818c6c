"""The runs that pages show, kept in docs/measured/runs: a small file per experiment, and the folders again from it."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilax.experiments.pages import stored_runs
from bilax.storage.runs import FINISHED, MANIFEST, ROWS, read_rows

KEPT = Path(__file__).parent.parent / "docs" / "measured" / "runs"
DIGITS = 5  # of a measurement: more than a picture or a table shows


def keep(folder: Path, name: str, columns: Sequence[str], kept: Path = KEPT) -> Path:
    """Keep the finished runs of a folder, with these columns of their measurements."""
    runs = []
    for run in sorted(stored_runs(folder), key=lambda run: run.folder.name):
        if run.facts["status"] in FINISHED:
            rows = [{name: _short(row[name]) for name in columns if name in row} for row in read_rows(run.folder)]
            runs.append({"folder": run.folder.name, "facts": run.facts, "rows": rows})
    common = {key: value for key, value in runs[0]["facts"].items() if all(r["facts"].get(key) == value for r in runs)}
    for run in runs:
        run["facts"] = {key: value for key, value in run["facts"].items() if key not in common}
    path = kept / f"{name}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"common": common, "runs": runs}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def unpack(path: Path, folder: Path) -> None:
    """Write kept runs as the folders that `bilax report` reads."""
    kept = json.loads(gzip.decompress(path.read_bytes()))
    for run in kept["runs"]:
        place = folder / run["folder"]
        place.mkdir(parents=True)
        (place / MANIFEST).write_text(json.dumps(kept["common"] | run["facts"]))
        (place / ROWS).write_text("".join(json.dumps(row) + "\n" for row in run["rows"]))


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
