"""Pictures and tables of the paper's figures and of the benchmark, from the runs that are kept in docs/measured/runs.

python website/figures.py                     writes them into docs/
python website/figures.py --keep FOLDER NAME  keeps the runs of a folder first: NAME is mnist, newsgroups or a problem
                                              of the benchmark
"""

import argparse
import re
import tempfile
from pathlib import Path

from kept_runs import KEPT, keep, unpack

from bilax.benchmark import ranking
from bilax.benchmark.methods import TASKS
from bilax.paper import pages
from bilax.report import Page
from bilax.report.pictures import draw

DOCS = Path(__file__).parent.parent / "docs"
PAPER = ("mnist", "newsgroups")
COLUMNS = {
    "paper": ("k", "seconds", "samples", "train_loss", "val_loss", "test_loss", "test_accuracy", "auroc"),
    "benchmark": ranking.METRICS,
}
SHOWN = {  # figure of a page -> its file in docs/images
    **{name: f"{name}.png" for name in ("fig1a-paper", "fig1a-tuned", "fig1b-tuned", "fig3a-paper", "fig4a-paper")},
    **{f"runs-{task.name.replace('.', '_')}-searched": f"benchmark-{task.name}.png" for task in TASKS},
}


def pages_of(names: list[str]) -> dict[str, Page]:
    """Return the page of every kept file of that name, if there is one."""
    found = {}
    for name in names:
        path = KEPT / f"{name}.json.gz"
        if path.is_file():
            with tempfile.TemporaryDirectory() as folder:
                unpack(path, Path(folder))
                found[name] = pages.page(folder)
    return found


def told(page: Page) -> str:
    """Return what a page of the paper's figures says, as Markdown: how it was made, and its verdicts."""
    facts = dict(page.facts)
    commits = ", ".join(commit[:7] for commit in facts["commits"].split(", "))
    made = f"{page.introduction.partition('.')[0]}, {facts['versions']}, {facts['machine']}, commit {commits}."
    return f"{made}\n\n{pages.markdown(page)}"


def filled(text: str, parts: dict[str, str]) -> str:
    """Return a page with these parts between their marks."""
    for name, part in parts.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text, times = mark.subn(lambda found, part=part: f"{found[1]}{part}{found[2]}", text)
        if times != 1:
            raise ValueError(
                f"docs/experiments.md has the mark <!-- {name} --> {times} times; it must stand there once."
            )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", nargs=2, metavar=("FOLDER", "NAME"))
    asked = parser.parse_args()
    if asked.keep:
        folder, name = asked.keep
        print(keep(Path(folder), name, COLUMNS["paper" if name in PAPER else "benchmark"]))
    found = pages_of([*PAPER, *(task.name for task in TASKS)])
    experiments = DOCS / "experiments.md"
    experiments.write_text(
        filled(experiments.read_text(), {name: told(page) for name, page in found.items() if name in PAPER})
    )
    with tempfile.TemporaryDirectory() as folder:
        for page in found.values():
            for figure in page.figures:
                if figure.name in SHOWN:
                    picture = next(path for path in draw(figure, Path(folder)) if path.suffix == ".png")
                    (DOCS / "images" / SHOWN[figure.name]).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main()
