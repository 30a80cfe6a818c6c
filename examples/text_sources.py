"""Sources of text, mixed so that a small character transformer does well on one kind: no second derivatives needed.

Five groups of 20 Newsgroups are sources; one of them, space, is what matters, and a small part of it is trusted (the
windows group is full of encoded files). x holds a weight for each source, y the transformer; F2SA needs gradients
alone, and each of its steps is one of AdamW. A new transformer is then trained on a mixture by the learned weights.

python examples/text_sources.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options
from sklearn.datasets import fetch_20newsgroups

import bilax
from bilax.datasets.store import folder

SOURCES = ("sci.space", "comp.os.ms-windows.misc", "misc.forsale", "rec.sport.hockey", "talk.politics.mideast")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,'-()\"?!:;/@<>=*_"
LENGTH, WIDTH, HEADS, TRUSTED = 32, 32, 4, 300
ADAMW = optax.adamw(0.005)


def rows_of(group, subset):
    """Return the text of a group as rows of numbers of characters."""
    found = fetch_20newsgroups(
        data_home=str(folder("sklearn")), subset=subset, categories=[group], remove=("headers", "footers", "quotes")
    )
    number = {letter: k for k, letter in enumerate(LETTERS, start=1)}
    text = [number.get(letter, 0) for letter in "\n".join(found.data).lower()]
    return np.array(text[: len(text) // (LENGTH + 1) * (LENGTH + 1)], np.int32).reshape(-1, LENGTH + 1)


def transformer(seed):
    rng = np.random.default_rng(seed)
    letters = len(LETTERS) + 1
    shapes = {"letters": (letters, WIDTH), "places": (LENGTH, WIDTH), "attention": (WIDTH, 3 * WIDTH)}
    shapes |= {
        "mixed": (WIDTH, WIDTH),
        "wide": (WIDTH, 4 * WIDTH),
        "narrow": (4 * WIDTH, WIDTH),
        "out": (WIDTH, letters),
    }
    return {k: jnp.asarray(rng.normal(size=shape) / np.sqrt(WIDTH), jnp.float32) for k, shape in shapes.items()}


def normed(h):
    return h / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + 1e-6)


def bits(y, text):
    """Return the mean bits per character of every row."""
    h = y["letters"][text[:, :-1]] + y["places"]
    q, k, v = jnp.split((normed(h) @ y["attention"]).reshape(*h.shape[:2], HEADS, -1), 3, axis=-1)
    h = h + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(h.shape) @ y["mixed"]
    h = h + jax.nn.gelu(normed(h) @ y["wide"]) @ y["narrow"]
    losses = optax.softmax_cross_entropy_with_integer_labels(normed(h) @ y["out"], text[:, 1:])
    return jnp.mean(losses, axis=1) / np.log(2)


def outer_loss(x, y, batch):
    return jnp.mean(bits(y, batch["text"]))


def inner_loss(x, y, batch):
    return jnp.mean(len(SOURCES) * jax.nn.softmax(x)[batch["source"]] * bits(y, batch["text"]))


def main(quick=False, picture=None, json=None):
    rows, outer_steps, plain_steps = (500, 15, 150) if quick else (1_000, 20, 200)
    texts = {group: rows_of(group, "train") for group in SOURCES}
    space = texts[SOURCES[0]]
    trusted, texts[SOURCES[0]] = space[:TRUSTED], space[TRUSTED:]
    sources = np.repeat(np.arange(len(SOURCES)), rows)
    text = np.concatenate([source[:rows] for source in texts.values()])
    test = rows_of(SOURCES[0], "test")[:1_000]

    def trained_on(text):
        y = fit(outer_loss, None, transformer(0), {"text": text}, ADAMW, plain_steps, batch=32)
        return outer_loss(None, y, {"text": test})

    def mixed(weights):
        """Return as much text as there is, drawn from the sources by their weights."""
        return text[np.random.default_rng(0).choice(len(text), len(text), p=weights[sources] / weights[sources].sum())]

    names = ("bits per character",)
    table = Table("text_sources.py", f"a weight for each of {len(SOURCES)} sources of text", names)
    table.row("all sources alike", trained_on(mixed(np.ones(len(SOURCES)))))
    table.row("the trusted text alone", trained_on(trusted))
    table.row("the source that matters, if it were known", trained_on(text[sources == 0]))

    problem = bilax.Problem(outer_loss, inner_loss, {"text": trusted}, {"text": text, "source": sources})
    method = bilax.F2SA(gamma=optax.adam(0.2), beta=ADAMW, nu=1.0, P=1, T=10, S=32)
    x0 = np.zeros(len(SOURCES), np.float32)
    result = done(bilax.solve(problem, method, x0, transformer(0), steps=outer_steps, every=outer_steps))
    weights = np.asarray(jax.nn.softmax(result.x))
    table.row("sources by their learned weights", trained_on(mixed(weights)), bilevel=True)
    print("weights:", ", ".join(f"{group} {weight:.2f}" for group, weight in zip(SOURCES, weights, strict=True)))
    table.save(json)
    if picture:
        draw(picture, weights)


def draw(file, weights):
    import matplotlib.pyplot as plt

    figure, place = plt.subplots(figsize=(7, 3), layout="constrained")
    place.barh(SOURCES, weights, color=["tab:blue"] + ["gray"] * (len(SOURCES) - 1))
    place.axvline(1 / len(SOURCES), color="black", linestyle=":", label="all alike")
    place.invert_yaxis()
    place.set(xlabel="learned weight", title="Sources for a text model of space")
    place.legend()
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
