"""Meta-learning: a network from which ten points of a new task are enough.

Every task is a sine of its own height and phase. x is a network; y holds a last layer for every task. It starts anew
from that of x in every step (`y0` is a function of x) and takes ten steps on 10 points of its task; the outer loss is
that of the last layers on 10 other points, differentiated through those steps and their start. This is MAML in which
the last layer alone adapts (ANIL). The data are arrays with a row for each task; `paired=True` gives both levels the
same tasks.

python examples/meta_learning.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _recipe import Table, done, fit, options

import bilax

TASKS, BATCH, HIDDEN, POINTS = 1_000, 25, 40, 10
INNER_STEPS, INNER_STEP = 10, 0.5
ADAM, PLAIN_STEPS = optax.adam(0.003), 2_000


def tasks(number, points, seed):
    """Return sines of random height and phase, at random points."""
    rng = np.random.default_rng(seed)
    height, phase = rng.uniform(0.1, 5, (number, 1)), rng.uniform(0, np.pi, (number, 1))
    t = rng.uniform(-5, 5, (number, points))
    values = height * np.sin(t - phase)
    return {"t": t.astype(np.float32), "value": values.astype(np.float32), "task": np.arange(number)}


def points(data, part):
    """Return some of the points of every task."""
    return {**data, "t": data["t"][:, part], "value": data["value"][:, part]}


def network(seed):
    rng = np.random.default_rng(seed)
    shapes = (1, HIDDEN), (HIDDEN, HIDDEN)
    layers = [
        {
            "weights": jnp.asarray(rng.normal(size=shape) * np.sqrt(2 / shape[0]), jnp.float32),
            "bias": jnp.asarray(rng.normal(size=shape[1]), jnp.float32),
        }
        for shape in shapes
    ]
    return {"layers": layers, "last": jnp.zeros(HIDDEN)}


def features(x, t):
    hidden = t[..., None]
    for layer in x["layers"]:
        hidden = jnp.tanh(hidden @ layer["weights"] + layer["bias"])
    return hidden / np.sqrt(HIDDEN)


def errors(x, last, batch):
    """Return the squared error of every task of a batch, each with its last layer."""
    return jnp.mean((jnp.einsum("tph,th->tp", features(x, batch["t"]), last) - batch["value"]) ** 2, axis=1)


def outer_loss(x, y, batch):
    return jnp.mean(errors(x, y[batch["task"]], batch))


def inner_loss(x, y, batch):
    """A sum: the step of a task does not depend on how many others are in the batch."""
    return jnp.sum(errors(x, y[batch["task"]], batch))


def starts(x, number):
    """Return the last layer of x, once for every task."""
    return jnp.broadcast_to(x["last"], (number, HIDDEN))


def adapted(x, batch):
    """Return the last layers that a network has for new tasks, after the steps that it was learned for."""
    last, gradient = starts(x, len(batch["t"])), jax.grad(inner_loss, argnums=1)
    for _ in range(INNER_STEPS):
        last = last - INNER_STEP * gradient(x, last, batch)
    return last


def pooled_loss(x, y, batch):
    """Of one network, y, for all tasks."""
    return jnp.mean(errors(y, starts(y, len(batch["t"])), batch))


def main(quick=False, picture=None, json=None):
    known = tasks(TASKS, 2 * POINTS, 0)
    new = tasks(200, 110, 1)
    given, hidden = points(new, slice(POINTS)), points(new, slice(POINTS, None))

    def error(x):
        """On 200 new tasks, at 100 other points than the 10 that their last layers were adapted to."""
        return jnp.mean(errors(x, adapted(x, given), hidden))

    x0 = network(0)
    pooled = fit(pooled_loss, None, x0, known, ADAM, PLAIN_STEPS, batch=BATCH)

    def own_network(task):
        alone = jax.tree.map(lambda leaf: leaf[None], task)
        return fit(pooled_loss, None, x0, alone, ADAM, PLAIN_STEPS, batch=1)

    own = jax.vmap(own_network)(given)
    alone = jax.vmap(lambda y, task: pooled_loss(None, y, jax.tree.map(lambda leaf: leaf[None], task)))(own, hidden)

    table = Table("meta_learning.py", f"a network to start from, of {TASKS:,} regressions", ("error, new tasks",))
    table.row("one network for all tasks", pooled_loss(None, pooled, hidden))
    table.row("the same, its last layer adapted", error(pooled))
    table.row("a network of its own for each new task", jnp.mean(alone))
    table.row("a random network, its last layer adapted", error(x0))

    problem = bilax.Problem(
        outer_loss, inner_loss, points(known, slice(POINTS, None)), points(known, slice(POINTS)), paired=True
    )
    method = bilax.Reverse(alpha=ADAM, beta=INNER_STEP, T=INNER_STEPS, S=BATCH)
    steps = 4_000 if quick else 10_000
    result = done(bilax.solve(problem, method, x0, lambda x: starts(x, TASKS), steps=steps, sampler="iid"))
    table.row("a learned network, its last layer adapted", error(result.x), bilevel=True)
    table.save(json)
    if picture:
        draw(picture, {"learned": result.x, "pooled": pooled, "random": x0}, given, hidden)


def draw(file, ways, given, hidden):
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    t = np.linspace(-5, 5, 200)
    for task, place in enumerate(places):
        for name, x in ways.items():
            place.plot(t, features(x, t) @ adapted(x, given)[task], label=f"{name} network, adapted")
        order = np.argsort(hidden["t"][task])
        place.plot(hidden["t"][task][order], hidden["value"][task][order], "k:", label="the task")
        place.plot(given["t"][task], given["value"][task], "ko", label="what is known of it")
        place.set(xlabel="t", title=f"new task {task + 1}")
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main(**vars(options(__doc__)))
