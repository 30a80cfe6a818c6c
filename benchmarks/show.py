"""Turn the measurements of a folder into tables and plots.

python benchmarks/show.py [FOLDER] [--page]

With ``--page``, what was measured is kept in docs/measured, and the tables of docs/performance.md, docs/scale.md,
docs/networks.md and docs/why-the-claims-fail.md are written from it.
"""

import argparse
import json
import re
import statistics
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


def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _peer(facts):
    names = list(facts["means"])
    rows = [
        [method, f"{row['twin, ms']:.3g}", *(f"{row[name]:.2f}" for name in names)]
        for method, row in facts["table"].items()
    ]
    rows.append(["geometric mean", "", *(f"{facts['means'][name]:.2f}" for name in names)])
    return _table(["method, batch", "plain JAX, ms", *names], rows)


def _first_calls(facts):
    names = {"plain JAX, first call": "twin's first call, s", "bilax, compilation of the slowest": "our compilation, s"}
    rows = [[method, *(f"{row[name]:.1f}" for name in names.values())] for method, row in facts["table"].items()]
    return _table(["method, batch", *names], rows)


def _speed(facts):
    table = facts["table"]
    names = [
        name
        for name in dict.fromkeys(n for row in table.values() for n in row)
        if name.endswith(", ms") or name.startswith("of ")
    ]
    rows = [[method, *(f"{row[name]:.3g}" if name in row else "" for name in names)] for method, row in table.items()]
    return _table(["", *names], rows)


def _tricks(facts):
    columns = list(facts["table"])
    names = dict.fromkeys(name for column in facts["table"].values() for name in column)
    cell = lambda column, name: f"{facts['table'][column][name]:.2f}" if name in facts["table"][column] else ""  # noqa: E731
    return _table(["without", *columns], [[name, *(cell(column, name) for column in columns)] for name in names])


def _sweeps(facts):
    names = ["members", "sweep, s", "one after the other, s", "ratio"]
    return _table(
        ["sweep", *names], [[what, *(f"{row[name]:.3g}" for name in names)] for what, row in facts["table"].items()]
    )


def _growth(facts):
    rows = [
        [
            found["name"],
            f"{found['rows'][0]['value']:,} to {found['rows'][-1]['value']:,}",
            f"{found['time exponent']:.2f}",
            f"{found['memory exponent']:.2f}",
        ]
        for found in facts["growth"].values()
    ]
    return _table(["grows", "values", "exponent of the time", "of the memory"], rows)


def _startup(facts):
    table = facts["table"]
    return _table(["", "seconds"], [[what, f"{value:.2f}"] for what, value in table.items() if what != "compilation"])


def _compilation(facts):
    found = facts["table"]["compilation"]
    return _table(["method", "seconds"], [[f"`{name}`", f"{value:.1f}"] for name, value in found.items()])


def _measuring(facts):
    names = list(next(iter(facts["table"].values())))
    return _table(
        ["", *names], [[what, *(f"{row[name]:.3g}" for name in names)] for what, row in facts["table"].items()]
    )


def _profiling(facts):
    names = list(next(iter(facts["table"].values())))
    return _table(
        ["", *names], [[what, *(f"{row[name]:.0f}" for name in names)] for what, row in facts["table"].items()]
    )


def _blocks(facts):
    names = ["expected", "mean", "least", "most"]
    return _table(
        ["", *names], [[what, *(f"{row[name]:.3f}" for name in names)] for what, row in facts["table"].items()]
    )


def _unrolling(facts):
    ours, plain = (facts["table"][name] for name in ("bilax", "plain"))
    rows = [[name, f"{row['ms']:.0f}", f"{row['MB']:.1f}"] for name, row in facts["table"].items()]
    rows.append(["ratio", f"{ours['ms'] / plain['ms']:.2f}", f"{ours['MB'] / plain['MB']:.2f}"])
    said = f"The two hypergradients differ by {facts['difference']:.0e} of their length (float32)."
    return _table(["", "ms", "MB"], rows) + f"\n\n{said}"


def _convolutions(facts):
    return _table(
        ["images", "method", "ms per step", "of what it takes outside of a loop", "XLA's convolutions in the loop"],
        [
            [
                row["network"],
                row["method"],
                f"{1e3 * row['bilax']:,.1f}",
                f"{row['bilax'] / row['outside']:.2f}",
                f"{row[SLOW] / row['bilax']:.1f} times",
            ]
            for row in facts["rows"]
        ],
    )


SLOW = "XLA's in the loop"


def _model(facts):
    errors = [abs(row["error"]) for row in facts["rows"]]
    middle, worst = (f"{100 * value:.0f} %" for value in (statistics.median(errors), max(errors)))
    said = f"The fit to {len(errors)} times is off by {middle} in the median, and by {worst} at worst."
    rows = []
    for one in facts["predictions"]:
        total, parts = sum(one["parts"].values()), one["parts"]
        shares = [f"{100 * part / total:.0f} %" for part in parts.values()]
        rows.append([one["machine"], one["method"], f"{1e3 * total:.2f}", f"{one['S'] / total:.1e}", *shares])
    heads = ["predicted for", "method", "ms per step", "samples per second", *facts["predictions"][0]["parts"]]
    return _table(heads, rows) + f"\n\n{said}"


def _reductions(facts):
    times = {}
    for name, reductions in sorted(facts["reductions"].items(), key=lambda item: item[1]):
        times.setdefault(f"{reductions:g}", []).append(f"`{name}`")
    return _table(
        ["arrays like y that are reduced in a step, at most", "methods with their defaults"],
        [[reductions, ", ".join(names)] for reductions, names in times.items()],
    )


EQUAL = "SUSTAIN, inner step 0.1"
# A claim about (the way to a tenth of the first loss, the loss at the end), of each method with one seed
CLAIMS = {
    "VRBO and stocBiO are at least twice as fast as MRBO and SUSTAIN": lambda to, end: (
        2 * max(to["VRBO"], to["stocBiO"]) <= min(to["MRBO"], to["SUSTAIN"])
    ),
    "the same, SUSTAIN with the inner step of the others": lambda to, end: (
        2 * max(to["VRBO"], to["stocBiO"]) <= min(to["MRBO"], to[EQUAL])
    ),
    "VRBO ends with a lower loss than stocBiO": lambda to, end: end["VRBO"] < end["stocBiO"],
    "VRBO is faster than MRBO and SUSTAIN": lambda to, end: to["VRBO"] < min(to["MRBO"], to["SUSTAIN"]),
    "the same, SUSTAIN with the inner step of the others ": lambda to, end: to["VRBO"] < min(to["MRBO"], to[EQUAL]),
    "MRBO is faster than SUSTAIN": lambda to, end: to["MRBO"] < to["SUSTAIN"],
    "MRBO is faster than SUSTAIN with the same inner step": lambda to, end: to["MRBO"] < to[EQUAL],
    "stocBiO is faster than MRBO": lambda to, end: to["stocBiO"] < to["MRBO"],
    "MRBO and VRBO need less than stocBiO": lambda to, end: max(to["MRBO"], to["VRBO"]) < to["stocBiO"],
}
WAYS = {
    "iterations": "outer iterations",
    "samples": "samples",
    "interpreted seconds": "seconds of an interpreted script",
}


def _verdicts(facts):
    rows = []
    for claim, holds in CLAIMS.items():
        cells = []
        for reading in WAYS:
            methods = facts["readings"][reading]["methods"]
            said = [
                holds(
                    *({name: row[what][seed] for name, row in methods.items()} for what in ("to a tenth", "at the end"))
                )
                for seed in range(len(next(iter(methods.values()))["to a tenth"]))
            ]
            cells.append("**holds**" if all(said) else "undecided" if any(said) else "fails")
        rows.append([claim.strip(), *cells])
    return _table(["claim", *(f"against {way}" for way in WAYS.values())], rows)


def _readings(facts):
    rows = []
    for name, eager in facts["eager"].items():
        found = [facts["readings"][reading]["methods"][name] for reading in WAYS]
        cells = (
            " / ".join(f"{statistics.median(row[what]):.3g}" for what in ("to a tenth", "at the end")) for row in found
        )
        rows.append([name, f"{eager:.3g}", *cells])
    ends = ", ".join(f"{facts['readings'][reading]['end']:.3g} {way}" for reading, way in WAYS.items())
    said = (
        "In each cell: after how much the loss is a tenth of the first, and the loss where the shortest run of all "
        f"ends ({ends}); medians. The interpreted steps were timed on commit {facts['eager commit'][:7]}."
    )
    return _table(["", "interpreted step, ms", *WAYS.values()], rows) + f"\n\n{said}"


COLOURS = {"VRBO": "#c8442c", "stocBiO": "#52708c", "MRBO": "#e0a63a", "SUSTAIN": "#3c8d5a", EQUAL: "#3c8d5a"}


def three_readings(facts, path):
    figure, places = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
    for place, (reading, way) in zip(places, WAYS.items(), strict=True):
        for name, curve in facts["curves"].items():
            style = dict(color=COLOURS[name], linestyle="--" if name == EQUAL else "-")
            place.plot(curve[reading][1:], curve["loss"][1:], label=name, **style)
        place.set(xscale="log", yscale="log", xlabel=way)
        place.grid(alpha=0.3)
    places[0].set_ylabel("loss on the true labels")
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=110)


# Marker on the page -> the file that was measured, and how it becomes a table.
TABLES = {
    "peer": ("peer", _peer),
    "first-calls": ("peer", _first_calls),
    "speed": ("speed", _speed),
    "profiling": ("profiling", _profiling),
    "blocks": ("blocks", _blocks),
    "measuring": ("measuring", _measuring),
    "tricks": ("tricks", _tricks),
    "sweeps": ("sweeps", _sweeps),
    "growth": ("growth", _growth),
    "startup": ("startup", _startup),
    "compilation": ("startup", _compilation),
}
OF_SCALE = {
    "devices": ("devices", _measuring),
    "streaming": ("streaming", _measuring),
    "model": ("scale_model", _model),
    "reductions": ("scale_model", _reductions),
}
OF_NETWORKS = {"unrolling": ("unrolling", _unrolling), "convolutions": ("convolutions", _convolutions)}
OF_CLAIMS = {"verdicts": ("readings", _verdicts), "readings": ("readings", _readings)}
PAGES = {
    "performance.md": TABLES,
    "scale.md": OF_SCALE,
    "networks.md": OF_NETWORKS,
    "why-the-claims-fail.md": OF_CLAIMS,
}


def filled(page, folder, tables=TABLES):
    """Return the page with the tables of what was measured, each with the command and the commit that printed it."""
    for marker, (file, table) in tables.items():
        facts = json.loads((folder / f"{file}.json").read_text())
        machine, commit = facts["environment"]["machine"], facts["environment"]["commit"]
        source = (
            f"`python benchmarks/{file}.py`, commit {commit[:7]}, {machine['cpus']} cores of an {machine['processor']}."
        )
        text = f"<!-- {marker} -->\n{source}\n\n{table(facts)}\n<!-- end -->"
        page, times = re.subn(rf"<!-- {marker} -->.*?<!-- end -->", lambda _, text=text: text, page, flags=re.DOTALL)
        assert times == 1, f"the page has {times} places for {marker}"
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("bilax-bench"))
    parser.add_argument("--page", action="store_true", help="write the tables of the pages")
    options = parser.parse_args()
    folder = options.folder
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
    if (folder / "readings.json").exists():
        three_readings(json.loads((folder / "readings.json").read_text()), folder / "readings.png")
    print(f"tables, plots and JSON are in {folder}")
    if options.page:
        docs = Path(__file__).parents[1] / "docs"
        kept = docs / "measured"
        kept.mkdir(exist_ok=True)
        measured = {file for tables in PAGES.values() for file, _ in tables.values()}
        for file in (file for file in measured if (folder / f"{file}.json").exists()):
            (kept / f"{file}.json").write_text((folder / f"{file}.json").read_text())
        for picture in (name for name in ("speed", "growth", "readings") if (folder / f"{name}.png").exists()):
            (docs / "images" / f"{picture}.png").write_bytes((folder / f"{picture}.png").read_bytes())
        for name, tables in PAGES.items():
            page = docs / name
            page.write_text(filled(page.read_text(), kept, tables))


if __name__ == "__main__":
    main()
