"""A table measured cell by cell: each is kept as soon as it is there, and the same command goes on where it stopped."""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from bilax.storage.environment import environment

Row = dict[str, Any]


class Cells:
    """The rows of one table, in a file of JSON lines; a row begins with what names its cell."""

    def __init__(self, path: Path, names: Sequence[str]):
        self.path, self.names = path, tuple(names)
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def measure(self, cells: Sequence[tuple], how: Callable[..., Row | None], shown: dict[str, str]) -> None:
        """Measure what is not there yet; `how` may return None where a cell has no meaning."""
        done = {tuple(row[name] for name in self.names) for row in self.rows}
        commit = environment().get("commit")
        for number, cell in enumerate(cells, 1):
            if cell in done or (found := how(*cell)) is None:
                continue
            self.rows.append({**dict(zip(self.names, cell, strict=True)), **found, "commit": commit})
            with self.path.open("a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")
            told = ", ".join(f"{k} {found[k]:{f}}" for k, f in shown.items() if found.get(k) is not None)
            print(f"{number}/{len(cells)} {', '.join(map(str, cell))}: {told}", flush=True)


def table(
    names: Sequence[str], rows: Sequence[Row], across: dict[str, Sequence[str]], means: Callable[[list[Row]], str]
) -> str:
    """Return a Markdown table: a line for each value of `names`; `across` names the columns and their order."""
    ((key, order),) = across.items()
    columns = [column for column in order if any(row[key] == column for row in rows)]
    lines = ["| " + " | ".join([*names, *columns]) + " |", "|---" * (len(names) + len(columns)) + "|"]
    for place in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        here = [row for row in rows if tuple(row[name] for name in names) == place]
        there = [[row for row in here if row[key] == column] for column in columns]
        lines.append("| " + " | ".join([*map(str, place), *(means(some) if some else "" for some in there)]) + " |")
    return "\n".join(lines)


def seeds(rows: Sequence[Row], names: Sequence[str], slow: Collection[str] = ()) -> str:
    """Return how many seeds the cells of each table have, and in brackets those of slow rivals, if they are fewer."""
    parts = []
    for data in dict.fromkeys(row["data"] for row in rows):
        counts: dict[bool, set[int]] = {False: set(), True: set()}
        for cell, count in Counter(tuple(row[name] for name in names) for row in rows if row["data"] == data).items():
            counts[cell[names.index("rival")] in slow].add(count)
        fast, few = (" to ".join(map(str, sorted({min(some), max(some)}))) if some else "" for some in counts.values())
        parts.append(f"{data}: {fast}" + (f" ({few})" if few not in ("", fast) else ""))
    whose = f" (of {' and '.join(slow)} in brackets, where they are fewer)" if slow else ""
    return f"Seeds{whose}: {'; '.join(parts)}."


def arguments(doc: str | None, name: str, quick: str, seeds: int) -> tuple[argparse.Namespace, Path]:
    """Read the command line of a benchmark; return its options and the file of its rows."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--only", default="", help="cells of which a name holds this word")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.seeds = 1 if options.quick else options.seeds
    return options, options.out / (f"{name}-quick.jsonl" if options.quick else f"{name}.jsonl")
