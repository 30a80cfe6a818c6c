"""What the recipes share: their options, a table that is printed as it grows and kept in a file, plain training.

python examples/_recipe.py docs/measured/recipes.json   # the table of docs/networks.md
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bilax.storage.environment import commit


def options(about, full=None):
    """Return what was given on the command line; ``full`` says what that option does, where there is one."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small size, to try it out")
    if full:
        parser.add_argument("--full", action="store_true", help=full)
    parser.add_argument("--picture", metavar="FILE", help="draw the picture of the result into this file")
    parser.add_argument("--json", metavar="FILE", help="put the table into this file, beside those of other recipes")
    return parser.parse_args()


class Table:
    """Figures with and without bilevel optimisation, printed row by row."""

    def __init__(self, recipe, learns, measures, seeds=1):
        self.facts = {"recipe": recipe, "learns": learns, "measures": list(measures), "seeds": seeds}
        self.rows = []
        print(f"{learns}; {seeds} seed{'s' * (seeds > 1)}\n{'':<46}", *(f"{name:>14}" for name in measures), flush=True)

    def row(self, name, *figures, bilevel=False):
        figures = [None if figure is None else round(float(figure), 4) for figure in figures]
        self.rows.append({"name": name, "figures": figures, "bilevel": bilevel})
        print(f"{name:<46}", *(f"{'' if figure is None else f'{figure:.3f}':>14}" for figure in figures), flush=True)

    def save(self, file):
        if not file:
            return
        path = Path(file)
        kept = json.loads(path.read_text()) if path.exists() else {}
        recipe = self.facts["recipe"]
        command = f"python examples/{recipe}{' --full' * ('--full' in sys.argv)}"
        kept[recipe] = {"command": command, "commit": commit(), **self.facts, "rows": self.rows}
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def done(result):
    """Return a result that is what it should be: not that of a run that was interrupted, or has diverged."""
    if result.status != "done":
        raise SystemExit(result.message)
    return result


@partial(jax.jit, static_argnames=("loss", "optimiser", "steps", "batch"))
def fit(loss, x, y, data, optimiser, steps, batch=64, seed=0):
    """Return y after plain training with x as it is: steps on loss(x, y, batch), and no bilevel problem."""
    data, n = jax.tree.map(jnp.asarray, data), len(jax.tree.leaves(data)[0])

    def step(carry, key):
        y, memory = carry
        rows = jax.random.randint(key, (batch,), 0, n)
        gradient = jax.grad(loss, argnums=1)(x, y, jax.tree.map(lambda leaf: leaf[rows], data))
        updates, memory = optimiser.update(gradient, memory, y)
        return (optax.apply_updates(y, updates), memory), None

    return jax.lax.scan(step, (y, optimiser.init(y)), jax.random.split(jax.random.key(seed), steps))[0][0]


def patches(images, width, stride):
    """Return the squares of images of any number of leading axes: (..., rows, columns, numbers in a square).

    A product with them is a convolution; in a compiled loop on a processor it is some five times faster than XLA's.
    """
    start = np.arange(0, images.shape[-2] - width + 1, stride)[:, None] + np.arange(width)
    squares = jnp.moveaxis(images[..., start, :, :][..., start, :], -4, -3)
    return squares.reshape(*squares.shape[:-3], -1)


def page(file):
    """Return the lines of the table in docs/networks.md."""
    lines = ["| recipe | what it learns | measure | with | without | seeds | commit |", "|---|---|---|---|---|---|---|"]
    for recipe, kept in json.loads(Path(file).read_text()).items():

        def shown(bilevel, rows=kept["rows"]):
            chosen = [row for row in rows if row["bilevel"] == bilevel]
            return "; ".join(
                f"{row['name']} {' / '.join('-' if f is None else f'{f:.3f}' for f in row['figures'])}"
                for row in chosen
            )

        cells = (f"[{recipe}](../examples/{recipe})", kept["learns"], " / ".join(kept["measures"]))
        lines.append(f"| {' | '.join((*cells, shown(True), shown(False)))} | {kept['seeds']} | {kept['commit'][:7]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(sys.argv[1]))
