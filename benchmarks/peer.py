"""Steps in plain JAX, written as benchopt's benchmark_bilevel does, next to ours, on the losses people write.

python benchmarks/peer.py [--quick] [--only WORD] [--out FOLDER]

The twin has fixed contiguous blocks of the data as batches, one flat vector of weights, a loss of one sample under
`jax.vmap`, and evaluates the two points of a recursion one after the other. Both sides take the same number of steps on
batches of the same size, measured in turn in one run; a ratio is the median of the twin's time over ours.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from speed import REST, mnist_problem

import bilax
from bilax.problems.hyper_cleaning import HyperCleaning, hyper_cleaning
from bilax.storage.environment import environment

REG, ETA = 0.2, 0.05
SAMPLERS = ("iid", "blocks")


# --------------------------------------------------------------------------------------------------------- the losses
def sample_loss(weights, features, one_hot):
    logits = features @ weights.reshape(features.shape[0], -1)
    return jax.nn.logsumexp(logits) - jnp.where(one_hot == 1, logits, 0).sum()


def flat_losses():
    """The same text as the twin's: weights are one vector, the loss is that of one sample."""
    losses = jax.vmap(sample_loss, in_axes=(None, 0, 0))

    def inner(x, y, batch):
        each = losses(y, batch["features"], batch["one_hot"])
        return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * each) + REG * jnp.sum(y**2)

    def outer(x, y, batch):
        return jnp.mean(losses(y, batch["features"], batch["one_hot"]))

    return outer, inner


def matrix_losses():
    """Weights (features, classes), the logit of the label picked out by `take_along_axis`."""

    def losses(y, batch):
        logits = batch["features"] @ y
        mine = jnp.take_along_axis(logits, batch["labels"][:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - mine

    def inner(x, y, batch):
        return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch)) + REG * jnp.sum(y**2)

    def outer(x, y, batch):
        return jnp.mean(losses(y, batch))

    return outer, inner


class Data(NamedTuple):
    features: Any
    labels: Any
    trusted_features: Any
    trusted_labels: Any


def load():
    """Return MNIST without the feature that is 1, and what it is."""
    problem, source = mnist_problem()
    inner, outer = (jax.tree.map(np.asarray, data) for data in (problem.inner_data, problem.outer_data))
    return Data(inner["features"][:, :784], inner["labels"], outer["features"][:, :784], outer["labels"]), source


def problems(data):
    """Return the same problem with each text of the loss."""
    n, features = data.features.shape

    def made(losses, y0, labels):
        return bilax.Problem(
            *losses,
            inner_data={"features": data.features, **labels(data.labels), "index": np.arange(n)},
            outer_data={"features": data.trusted_features, **labels(data.trusted_labels)},
            x0=jnp.zeros(n),
            y0=y0,
        )

    def one_hot(labels):
        return {"one_hot": np.eye(10, dtype=np.float32)[labels]}

    V = data.trusted_features[:10], data.trusted_labels[:10]
    cleaning = HyperCleaning(*data[:2], data.labels, *data[2:], *V, 10)
    return {
        "same text": made(flat_losses(), jnp.zeros(features * 10), one_hot),
        "matrix": made(matrix_losses(), jnp.zeros((features, 10)), lambda labels: {"labels": labels}),
        "class-major": hyper_cleaning(cleaning, C=REG),
    }


# ----------------------------------------------------------------------------------------------------------- the twin
class Sampler(NamedTuple):
    order: jax.Array
    i: jax.Array
    key: jax.Array


class Twin:
    """The two losses by the start of a block, and the blocks in an order that is shuffled after each pass."""

    def __init__(self, data, size, large=None):
        self.data, self.size, self.large = data, size, large or size

    def bind(self, arrays):
        self.X, self.Y, self.V, self.W = arrays
        return self

    def arrays(self):
        eye = np.eye(10, dtype=np.float32)
        return tuple(
            jnp.asarray(a)
            for a in (
                self.data.features,
                eye[self.data.labels],
                self.data.trusted_features,
                eye[self.data.trusted_labels],
            )
        )

    def inner(self, y, x, start, size=None):
        size = size or self.size
        X, Y, weights = (jax.lax.dynamic_slice_in_dim(a, start, size) for a in (self.X, self.Y, x))
        each = jax.vmap(sample_loss, in_axes=(None, 0, 0))(y, X, Y)
        return jnp.mean(jax.nn.sigmoid(weights) * each) + REG * jnp.sum(y**2)

    def outer(self, y, x, start, size=None):
        size = size or self.size
        X, Y = (jax.lax.dynamic_slice_in_dim(a, start, size) for a in (self.V, self.W))
        return jnp.mean(jax.vmap(sample_loss, in_axes=(None, 0, 0))(y, X, Y))

    def grad_inner(self, y, x, start, size=None):
        return jax.grad(self.inner)(y, x, start, size)

    def grad_outer(self, y, x, start, size=None):
        return jax.grad(self.outer, argnums=(0, 1))(y, x, start, size)

    def samplers(self):
        def fresh(n, size, seed):
            return Sampler(jnp.arange(n // size), jnp.zeros((), jnp.int32), jax.random.PRNGKey(seed))

        n, v, size = len(self.data.features), len(self.data.trusted_features), self.size
        return {"inner": fresh(n, size, 0), "outer": fresh(v, size, 1)}

    def draw(self, samplers, level):
        s = samplers[level]
        start = self.size * s.order[s.i]

        def shuffle():
            key, use = jax.random.split(s.key)
            return Sampler(jax.random.permutation(use, s.order), jnp.zeros((), jnp.int32), key)

        after = jax.lax.cond(s.i + 1 == len(s.order), shuffle, lambda: s._replace(i=s.i + 1))
        return start, {**samplers, level: after}

    def series(self, x, y, r, samplers, Q, size=None):
        """Q factors, summed up."""

        def factor(_, carry):
            samplers, r, total = carry
            start, samplers = self.draw(samplers, "inner")
            _, back = jax.vjp(lambda y: self.grad_inner(y, x, start, size), y)
            r = r - ETA * back(r)[0]
            return samplers, r, total + r

        samplers, _, total = jax.lax.fori_loop(0, Q, factor, (samplers, r, r))
        return ETA * total, samplers

    def joint_series(self, points, rs, samplers, Q, size=None):
        """The same at two points with the same batches, one point after the other."""

        def factor(_, carry):
            samplers, rs, totals = carry
            start, samplers = self.draw(samplers, "inner")
            new = []
            for (x, y), r in zip(points, rs, strict=True):
                _, back = jax.vjp(lambda y, x=x: self.grad_inner(y, x, start, size), y)
                new.append(r - ETA * back(r)[0])
            return samplers, tuple(new), tuple(a + b for a, b in zip(totals, new, strict=True))

        samplers, _, totals = jax.lax.fori_loop(0, Q, factor, (samplers, rs, rs))
        return tuple(ETA * total for total in totals), samplers

    def random_series(self, points, rs, samplers, key, Q):
        p = jax.random.randint(key, (), 0, Q + 1)

        def factor(_, carry):
            samplers, rs = carry
            start, samplers = self.draw(samplers, "inner")
            new = []
            for (x, y), r in zip(points, rs, strict=True):
                _, back = jax.vjp(lambda y, x=x: self.grad_inner(y, x, start), y)
                new.append(r - ETA * back(r)[0])
            return samplers, tuple(new)

        samplers, rs = jax.lax.fori_loop(0, p, factor, (samplers, rs))
        return tuple((Q + 1) * ETA * r for r in rs), samplers

    def sgd(self, x, y, samplers, steps, rate):
        def once(_, carry):
            samplers, y = carry
            start, samplers = self.draw(samplers, "inner")
            return samplers, y - rate * self.grad_inner(y, x, start)

        return jax.lax.fori_loop(0, steps, once, (samplers, y))


def cross(twin, x, y, start, w, size=None):
    """grad_x grad_y G w"""
    return jax.vjp(lambda x: twin.grad_inner(y, x, start, size), x)[1](w)[0]


def mrbo(twin, Q, random=False):
    def step(c, k):
        x, y, x_old, y_old, v, u, samplers, key = c
        eta = 1 / (8 + k) ** (1 / 3)
        momentum = jnp.minimum(1, eta**2)
        start, samplers = twin.draw(samplers, "inner")
        g, g_old = twin.grad_inner(y, x, start), twin.grad_inner(y_old, x_old, start)
        outer, samplers = twin.draw(samplers, "outer")
        F_y, F_x = twin.grad_outer(y, x, outer)
        F_y_old, F_x_old = twin.grad_outer(y_old, x_old, outer)
        points = (x, y), (x_old, y_old)
        key, use = jax.random.split(key)
        if random:
            (w, w_old), samplers = twin.random_series(points, (F_y, F_y_old), samplers, use, Q)
        else:
            (w, w_old), samplers = twin.joint_series(points, (F_y, F_y_old), samplers, Q)
        start, samplers = twin.draw(samplers, "inner")
        h, h_old = F_x - cross(twin, x, y, start, w), F_x_old - cross(twin, x_old, y_old, start, w_old)
        v, u = h + (1 - momentum) * (v - h_old), g + (1 - momentum) * (u - g_old)
        return (x - 0.1 * eta * v, y - 0.1 * eta * u, x, y, v, u, samplers, key), None

    def begin(x, y):
        return x, y, x, y, 0 * x, 0 * y, twin.samplers(), jax.random.PRNGKey(2)

    return begin, step


def vrbo(twin, m, q, Q):
    def estimates(x, y, samplers, size):
        start, samplers = twin.draw(samplers, "inner")
        outer, samplers = twin.draw(samplers, "outer")
        outer = jnp.minimum(outer, len(twin.data.trusted_features) - size)
        start = jnp.minimum(start, len(twin.data.features) - size)
        F_y, F_x = twin.grad_outer(y, x, outer, size)
        w, samplers = twin.series(x, y, F_y, samplers, Q, size)
        at, samplers = twin.draw(samplers, "inner")
        return F_x - cross(twin, x, y, at, w, size), twin.grad_inner(y, x, start, size), samplers

    def step(c, k):
        x, y, v, u, samplers = c
        v, u, samplers = jax.lax.cond(
            k % q == 0,
            lambda: estimates(x, y, samplers, twin.large),
            lambda: (v, u, samplers),
        )
        x_new = x - 0.1 * v

        def inner(_, c):
            x_old, y_old, y, v, u, samplers = c
            start, samplers = twin.draw(samplers, "inner")
            outer, samplers = twin.draw(samplers, "outer")
            points = (x_new, y), (x_old, y_old)
            grads = [twin.grad_outer(b, a, outer) for a, b in points]
            ws, samplers = twin.joint_series(points, tuple(g[0] for g in grads), samplers, Q)
            at, samplers = twin.draw(samplers, "inner")
            h, h_old = (g[1] - cross(twin, a, b, at, w) for g, (a, b), w in zip(grads, points, ws, strict=True))
            g, g_old = (twin.grad_inner(b, a, start) for a, b in points)
            v, u = v + h - h_old, u + g - g_old
            return x_new, y, y - 0.1 * u, v, u, samplers

        _, y, _, v, u, samplers = jax.lax.fori_loop(0, m + 2, inner, (x, y, y, v, u, samplers))
        return (x_new, y, v, u, samplers), None

    return lambda x, y: (x, y, 0 * x, 0 * y, twin.samplers()), step


def stocbio(twin, D, Q, random=False):
    def step(c, k):
        x, y, samplers, key = c
        samplers, y = twin.sgd(x, y, samplers, D, 0.1)
        outer, samplers = twin.draw(samplers, "outer")
        F_y, F_x = twin.grad_outer(y, x, outer)
        key, use = jax.random.split(key)
        if random:
            (w,), samplers = twin.random_series(((x, y),), (F_y,), samplers, use, Q)
        else:
            w, samplers = twin.series(x, y, F_y, samplers, Q)
        start, samplers = twin.draw(samplers, "inner")
        return (x - 0.1 * (F_x - cross(twin, x, y, start, w)), y, samplers, key), None

    return lambda x, y: (x, y, twin.samplers(), jax.random.PRNGKey(2)), step


def soba(twin):
    def step(c, k):
        x, y, v, samplers = c
        start, samplers = twin.draw(samplers, "inner")
        outer, samplers = twin.draw(samplers, "outer")
        g, back = jax.vjp(lambda y, x: twin.grad_inner(y, x, start), y, x)
        Hv, Jv = back(v)
        F_y, F_x = twin.grad_outer(y, x, outer)
        rate = 0.1 / (k + 1.0) ** 0.5
        return (x - rate * (F_x - Jv), y - rate * g, v - rate * (Hv - F_y), samplers), None

    return lambda x, y: (x, y, 0 * y, twin.samplers()), step


ROWS = {  # batch (and large batch) of the twin, its step, our method, steps at a time
    "MRBO 1000, Q 3": ((1000,), partial(mrbo, Q=3), bilax.MRBO(Q=3, eta=ETA, S=1000), 100),
    "MRBO 64, Q 10": ((64,), partial(mrbo, Q=10), bilax.MRBO(Q=10, eta=ETA, S=64), 400),
    "VRBO 500, m 20, Q 3": (
        (500, 1000),
        partial(vrbo, m=20, q=3, Q=3),
        bilax.VRBO(m=20, q=3, Q=3, eta=ETA, S1=1000, S2=500),
        9,
    ),
    "stocBiO 1000, D 200, Q 3": ((1000,), partial(stocbio, D=200, Q=3), bilax.StocBiO(D=200, Q=3, eta=ETA, S=1000), 5),
    "stocBiO 64, D 10, Q 10": ((64,), partial(stocbio, D=10, Q=10), bilax.StocBiO(D=10, Q=10, eta=ETA, S=64), 400),
    "SUSTAIN 1, Q 3": ((1,), partial(mrbo, Q=3, random=True), bilax.SUSTAIN(Q=3, eta=ETA, S=1), 3000),
    "SUSTAIN 64, Q 10": ((64,), partial(mrbo, Q=10, random=True), bilax.SUSTAIN(Q=10, eta=ETA, S=64), 400),
    "TTSA 64, Q 10": ((64,), partial(stocbio, D=1, Q=10, random=True), bilax.TTSA(Q=10, eta=ETA, S=64), 800),
    "BSA 64, T 10, Q 10": ((64,), partial(stocbio, D=10, Q=10, random=True), bilax.BSA(T=10, Q=10, eta=ETA, S=64), 400),
    "SOBA 64": ((64,), soba, bilax.SOBA(rho_v=ETA, S=64), 1000),
}


def twin_time(data, sizes, method, steps):
    twin = Twin(data, *sizes)
    arrays = twin.arrays()
    n, features = data.features.shape

    @jax.jit
    def run(arrays, carry, k):
        twin.bind(arrays)
        return jax.lax.scan(method(twin)[1], carry, k + jnp.arange(steps))[0]

    tic = time.perf_counter()
    carry = jax.block_until_ready(run(arrays, method(twin.bind(arrays))[0](jnp.zeros(n), jnp.zeros(features * 10)), 0))
    first = time.perf_counter() - tic

    def measure():
        tic = time.perf_counter()
        jax.block_until_ready(run(arrays, carry, 1))
        return (time.perf_counter() - tic) / steps

    return measure, first


def our_time(problem, algorithm, steps, sampler):
    def measure(seed=1):
        result = bilax.solve(
            problem,
            algorithm,
            steps=steps,
            every=steps,
            metrics=lambda x, y: {},
            seed=seed,
            sampler=sampler,
        )
        assert result.status == "done", result.message
        compiled.append(result.compile_seconds)
        return result.seconds / steps

    compiled: list[float] = []
    measure(0)
    return measure, compiled[0]


def measured(rows, repeats, few):
    data, source = load()
    texts = problems(data)
    table = {}
    for name, (sizes, method, algorithm, steps) in rows.items():
        steps = max(3, steps // 10) if few else steps
        twin, first = twin_time(data, sizes, method, steps)
        measures, compiled = {"twin": twin}, []
        for text, problem in texts.items():
            for sampler in SAMPLERS:
                measures[f"{text}, {sampler}"], seconds = our_time(problem, algorithm, steps, sampler)
                compiled.append(seconds)
        times = []
        for _ in range(repeats):
            turn = {}
            for what, measure in measures.items():
                time.sleep(REST)
                turn[what] = measure()
            times.append(turn)
        row = {f"{what}, ms": 1e3 * median(t[what] for t in times) for what in measures}
        row |= {what: median(t["twin"] / t[what] for t in times) for what in measures if what != "twin"}
        table[name] = row | {"twin's first call, s": first, "our compilation, s": max(compiled)}
        print(name, {key: round(value, 3) for key, value in table[name].items()}, flush=True)
    return table, source


def means(table):
    columns = [name for name in next(iter(table.values())) if not name.endswith((", ms", ", s"))]
    return {name: geometric_mean(row[name] for row in table.values()) for name in columns}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, one repetition: for errors, not for figures")
    parser.add_argument("--only", default="", help="the rows whose name has this in it")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for peer.json")
    options = parser.parse_args()
    rows = {name: row for name, row in ROWS.items() if options.only in name}
    table, source = measured(rows, 1 if options.quick else 5, options.quick)
    print("geometric mean", {name: round(value, 2) for name, value in means(table).items()})
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "means": means(table), "data": source, "environment": environment()}
    (options.out / "peer.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
