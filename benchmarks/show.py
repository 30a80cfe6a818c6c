"""Turn the measurements of a folder into tables and plots.

python benchmarks/show.py [FOLDER]
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

BARS = {
    "at peak, ms": ("its operations at the machine's peak", "#b9c4cf"),
    "bare products, ms": ("its bare matrix products", "#7d93a8"),
    "products and gathers, ms": ("these, with the gathers of the batches", "#52708c"),
    "bilax, ms": ("bilax", "#c8442c"),
    "eager PyTorch, ms": ("eager PyTorch", "#e0a63a"),
}


def markdown(facts):
    """Return the table of speeds; what was not measured is left blank."""
    names = list(dict.fromkeys(name for row in facts["table"].values() for name in row))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method, row in facts["table"].items():
        cells = (f"{row[name]:.3g}" if name in row else "" for name in names)
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratios(facts):
    """Return the table of the twin's time over ours."""
    names = list(facts["means"])
    lines = ["| method, batch | twin, ms | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for method, row in facts["table"].items():
        cells = " | ".join(f"{row[name]:.2f}" for name in names)
        lines.append(f"| {method} | {row['twin, ms']:.3g} | {cells} |")
    lines.append("| geometric mean | | " + " | ".join(f"{facts['means'][name]:.2f}" for name in names) + " |")
    return "\n".join(lines)


def bars(facts, path):
    table = facts["table"]
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.85 * len(table)), layout="constrained")
    place, labels = 0.0, []
    for method, row in table.items():
        there = [name for name in BARS if name in row]
        for name in there:
            axes.barh(place, row[name], height=0.9, color=BARS[name][1])
            axes.text(row[name], place, f" {row[name]:.3g} ms", va="center", fontsize=8)
            place += 1
        labels.append((place - (len(there) + 1) / 2, method.replace(", ", "\n", 1)))
        place += 0.8
    axes.set_yticks([at for at, _ in labels], [name for _, name in labels])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 2)
    axes.set_xlabel("milliseconds per step")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in BARS.values()]
    axes.legend(handles, [words for words, _ in BARS.values()], frameon=False, loc="upper right", fontsize=8)
    figure.savefig(path, dpi=150)


def growth(facts, path):
    figure, grid = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axes, found in zip(grid.flat, facts["growth"].values(), strict=True):
        values = [row["value"] for row in found["rows"]]
        axes.loglog(values, [1e3 * row["step"] for row in found["rows"]], "o-", color="#c8442c", label="time of a step")
        if "vectors" in found["rows"][0]:
            vectors = [1e3 * row["vectors"] for row in found["rows"]]
            axes.loglog(values, vectors, "s:", color="#7d93a8", label="of its vectors of length n alone")
        axes.set_title(f"{found['name']}: exponent {found['time exponent']:.2f}", fontsize=10)
        axes.set_ylabel("ms", color="#c8442c")
        memory = axes.twinx()
        memory.loglog(values, [row["bytes"] / 2**20 for row in found["rows"]], "^--", color="#4c7a4c", alpha=0.7)
        memory.set_ylabel(f"MiB (exponent {found['memory exponent']:.2f})", color="#4c7a4c", fontsize=8)
        for axis in (axes.xaxis, axes.yaxis, memory.yaxis):
            axis.set_minor_formatter(NullFormatter())
        for one in (axes, memory):  # at least two decades, so that what is flat looks flat
            low, high = one.get_ylim()
            middle = (low * high) ** 0.5
            one.set_ylim(min(low, middle / 10), max(high, middle * 10))
        if "vectors" in found["rows"][0]:
            axes.set_ylim(top=4 * axes.get_ylim()[1])  # room for the words
            axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=130)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "bilax-bench")
    if (folder / "speed.json").exists():
        facts = json.loads((folder / "speed.json").read_text())
        (folder / "speed.md").write_text(markdown(facts) + "\n")
        print(markdown(facts))
        bars(facts, folder / "speed.png")
    if (folder / "peer.json").exists():
        facts = json.loads((folder / "peer.json").read_text())
        (folder / "peer.md").write_text(ratios(facts) + "\n")
        print(ratios(facts))
    if (folder / "growth.json").exists():
        growth(json.loads((folder / "growth.json").read_text()), folder / "growth.png")
    print(f"tables, plots and JSON are in {folder}")


if __name__ == "__main__":
    main()
