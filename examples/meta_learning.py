"""Meta-learning: features that many small regressions share, so that ten points are enough for a new one.

Every task is a sine of its own height and phase. x is a network's hidden layers; y holds a head for every task (a
leading axis of tasks), fitted to 10 points with a penalty; the outer loss is that of the heads on 10 other points. The
data are arrays with a row for each task, with its number: both levels find the head of a task by it.

python examples/meta_learning.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options

import bilax

HIDDEN, POINTS, PENALTY = 40, 10, 0.01
ADAM, PLAIN_STEPS = optax.adam(0.003), 2_000


def tasks(number, points, seed):
    """Return sines of random height and phase, at random points."""
    rng = np.random.default_rng(seed)
    height, phase = rng.uniform(0.1, 5, (number, 1)), rng.uniform(0, np.pi, (number, 1))
    t = rng.uniform(-5, 5, (number, points))
    return {"t": t.astype(np.float32), "value": (height * np.sin(t - phase)).astype(np.float32)}


def network(seed):
    rng = np.random.default_rng(seed)
    shapes = (1, HIDDEN), (HIDDEN, HIDDEN)
    return [
        {
            "weights": jnp.asarray(rng.normal(size=shape) * np.sqrt(2 / shape[0]), jnp.float32),
            "bias": jnp.asarray(rng.normal(size=shape[1]), jnp.float32),
        }
        for shape in shapes
    ]


def features(x, t):
    hidden = t[..., None]
    for layer in x:
        hidden = jnp.tanh(hidden @ layer["weights"] + layer["bias"])
    return hidden / np.sqrt(HIDDEN)


def errors(x, heads, batch):
    """Return the squared error of every task of a batch; there is a head for each."""
    return jnp.mean((jnp.einsum("tph,th->tp", features(x, batch["t"]), heads) - batch["value"]) ** 2, axis=1)


def outer_loss(x, y, batch):
    return jnp.mean(errors(x, y[batch["task"]], batch))


def inner_loss(x, y, batch):
    heads = y[batch["task"]]
    return len(y) * jnp.mean(errors(x, heads, batch) + PENALTY * jnp.sum(heads**2, axis=1))


def fitted_heads(x, batch):
    """Return the head that minimises the inner loss of each task, which is a linear regression."""

    def one(phi, value):
        return jnp.linalg.solve(phi.T @ phi / POINTS + PENALTY * jnp.eye(HIDDEN), phi.T @ value / POINTS)

    return jax.vmap(one)(features(x, batch["t"]), batch["value"])


def pooled_loss(x, y, batch):
    """Of one network, y, hidden layers and head, for all tasks."""
    return jnp.mean(errors(y["layers"], jnp.broadcast_to(y["head"], (len(batch["t"]), HIDDEN)), batch))


def main(quick=False, picture=None, json=None):
    number, steps = (50, 150) if quick else (100, 400)
    split = tasks(number, 2 * POINTS, 0)
    known, other = (
        {"t": split["t"][:, part], "value": split["value"][:, part], "task": np.arange(number)}
        for part in (slice(POINTS), slice(POINTS, None))
    )
    new = tasks(200, 110, 1)
    given, hidden = (
        {name: values[:, part] for name, values in new.items()} for part in (slice(POINTS), slice(POINTS, None))
    )

    def error(x):
        """Of heads that are fitted to 10 points of each of 200 new tasks, at 100 other points."""
        return jnp.mean(errors(x, fitted_heads(x, given), hidden))

    x0 = network(0)
    start = {"layers": x0, "head": jnp.zeros(HIDDEN)}
    pooled = fit(pooled_loss, None, start, split, ADAM, PLAIN_STEPS, batch=25)

    def own_network(task):
        alone = jax.tree.map(lambda leaf: leaf[None], task)
        return fit(pooled_loss, None, start, alone, ADAM, PLAIN_STEPS, batch=1)

    own = jax.vmap(own_network)(given)
    alone = jax.vmap(lambda y, batch: pooled_loss(None, y, jax.tree.map(lambda leaf: leaf[None], batch)))(own, hidden)

    table = Table("meta_learning.py", f"hidden layers shared by {number} regressions", ("error, new tasks",))
    table.row("one network for all tasks", pooled_loss(None, pooled, hidden))
    table.row("its hidden layers, a head for each new task", error(pooled["layers"]))
    table.row("a network of its own for each new task", jnp.mean(alone))
    table.row("random hidden layers, a head for each", error(x0))

    problem = bilax.Problem(outer_loss, inner_loss, other, known)
    method = bilax.AIDCG(alpha=ADAM, beta=0.5, T=10, N=10, S=number)
    result = done(bilax.solve(problem, method, x0, fitted_heads(x0, known), steps=steps, sampler="full"))
    table.row("learned hidden layers, a head for each", error(result.x), bilevel=True)
    table.save(json)
    if picture:
        draw(picture, {"learned": result.x, "pooled": pooled["layers"], "random": x0}, given, hidden)


def draw(file, ways, given, hidden):
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    t = np.linspace(-5, 5, 200)
    for task, place in enumerate(places):
        for name, x in ways.items():
            head = fitted_heads(x, given)[task]
            place.plot(t, features(x, t) @ head, label=f"{name} hidden layers")
        order = np.argsort(hidden["t"][task])
        place.plot(hidden["t"][task][order], hidden["value"][task][order], "k:", label="the task")
        place.plot(given["t"][task], given["value"][task], "ko", label="what is known of it")
        place.set(xlabel="t", title=f"new task {task + 1}")
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
