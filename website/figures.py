"""The pictures and tables of docs/ from what was measured and is kept in docs/measured: nothing is run.

python website/figures.py                     writes them
python website/figures.py --keep FOLDER NAME  keeps the runs of a folder first: NAME is mnist, newsgroups or a problem
                                              of the benchmark

(The demo and the examples draw their own pictures: `make demo`, `make gallery`.)
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from kept_runs import KEPT, keep, unpack

ROOT = Path(__file__).parent.parent
DOCS, MEASURED = ROOT / "docs", ROOT / "docs" / "measured"
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "examples")]

import _recipe  # noqa: E402
import cleaning  # noqa: E402
import penalties  # noqa: E402
import show  # noqa: E402

from bilax.benchmark import ranking  # noqa: E402
from bilax.benchmark.methods import TASKS  # noqa: E402
from bilax.paper import pages  # noqa: E402
from bilax.report import Page  # noqa: E402
from bilax.report.pictures import draw  # noqa: E402

PAPER = ("mnist", "newsgroups")
WEIGHTS = ("weight_clean", "weight_corrupted")
COLUMNS = {
    "paper": ("k", "seconds", "samples", "train_loss", "val_loss", "test_loss", "test_accuracy", "auroc", *WEIGHTS),
    "benchmark": ("k", "seconds", "samples", "gap", "grad_norm2", "val_error", "test_error"),
}
SHOWN = {  # figure of a page of runs -> its file in docs/images
    **{name: name for name in ("fig1a-paper", "fig1a-tuned", "fig3a-paper")},
    **{f"runs-{task.name.replace('.', '_')}-searched": f"benchmark-{task.name}" for task in TASKS},
}
PLOTS = {"speed": show.bars, "growth": show.growth, "readings": show.three_readings}  # of what benchmarks measured


def texts() -> dict[Path, str]:
    """Return the pages with their tables as they should be."""
    found: dict[Path, str] = {}
    for name, tables in show.PAGES.items():
        found[DOCS / name] = show.filled((DOCS / name).read_text(), MEASURED, tables)
    parts = {
        "benchmark.md": {"rankings": ranking.told(_lines("benchmark"))},
        "cleaning.md": {
            "cleaning": cleaning.markdown(_lines("cleaning")) + "\n",
            "precision": cleaning.details(_lines("cleaning")) + "\n",
        },
        "penalties.md": {"penalties": penalties.markdown(_lines("penalties")) + "\n"},
        "networks.md": {"recipes": _recipe.page(MEASURED / "recipes.json") + "\n"},
        "experiments.md": {name: told(page) for name, page in kept_pages(PAPER).items()},
        "../README.md": {"best": ranking.in_short(_lines("benchmark"), ("MRBO", "VRBO")) + "\n"},
    }
    for name, tables in parts.items():
        text = found.get(DOCS / name) or (DOCS / name).read_text()
        for mark, table in tables.items():
            text, times = re.subn(
                rf"(<!-- {mark}\b[^\n]* -->\n).*?(<!-- end -->)",
                lambda place, table=table: f"{place[1]}{table}{place[2]}",
                text,
                flags=re.DOTALL,
            )
            if times != 1:
                raise ValueError(f"docs/{name} must have one place <!-- {mark} --> ... <!-- end -->; it has {times}.")
        found[DOCS / name] = text
    return found


def _lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (MEASURED / f"{name}.jsonl").read_text().splitlines()]


def kept_pages(names) -> dict[str, Page]:
    """Return the page of every one of these experiments of which runs are kept."""
    found = {}
    for name in names:
        path = KEPT / f"{name}.json.gz"
        if path.is_file():
            with tempfile.TemporaryDirectory() as folder:
                unpack(path, Path(folder))
                found[name] = pages.page(folder)
    return found


def told(page: Page) -> str:
    """Return what a page of the paper's figures says: how it was made, and its verdicts."""
    facts = dict(page.facts)
    commits = ", ".join(commit[:7] for commit in facts["commits"].split(", "))
    _, processor, cores, _ = facts["machine"].split(", ")
    on = f"{cores} core{'s' * (cores != '1')} of an {processor}"
    made = f"{page.introduction.partition('.')[0]}; {on}; {facts['versions']}; commit {commits}."
    return f"{made}\n\n{pages.markdown(page)}"


def pictures(folder: Path) -> None:
    """Draw everything that pages show of kept runs and of benchmarks."""
    for name, plot in PLOTS.items():
        plot(json.loads((MEASURED / f"{name}.json").read_text()), folder / f"{name}.png")
    with tempfile.TemporaryDirectory() as drawn:
        for page in kept_pages([*PAPER, *(task.name for task in TASKS)]).values():
            for figure in (figure for figure in page.figures if figure.name in SHOWN):
                picture = next(path for path in draw(figure, Path(drawn)) if path.suffix == ".png")
                (folder / f"{SHOWN[figure.name]}.png").write_bytes(picture.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs=2, metavar=("FOLDER", "NAME"))
    asked = parser.parse_args()
    if asked.keep:
        folder, name = asked.keep
        print(keep(Path(folder), name, COLUMNS["paper" if name in PAPER else "benchmark"]))
    for path, text in texts().items():
        path.write_text(text)
    pictures(DOCS / "images")


if __name__ == "__main__":
    main()
