"""Steps of a network with convolutions, next to plain JAX that takes the same derivatives outside of a loop.

python benchmarks/convolutions.py [--quick] [--out FOLDER]

The network of examples/cnn_mnist.py (5 x 5 x 8 and 3 x 3 x 16, strides of 2, then a dense layer) and one with 3 x 3 x
16 and 3 x 3 x 32 on coloured images of 32 x 32, written with `jax.lax.conv_general_dilated`; a weight per image,
batches of 64. "outside" is the time of a jitted derivative, called from Python with XLA's own convolutions, times how
often a step takes it. "XLA's in the loop" is our step, with the convolutions left as they are. Least of several.
"""

import argparse
import json
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilax
from bilax.numerics import convolutions
from bilax.oracle import traced
from bilax.running import loop
from bilax.sampling import keys
from bilax.storage.environment import environment

BATCH = 64
METHODS = {
    "MRBO": bilax.MRBO(S=BATCH, Q=3, eta=0.01),
    "SOBA": bilax.SOBA(S=BATCH, rho_v=0.01),
    "reverse": bilax.Reverse(S=BATCH, T=10),
}
NETWORKS = {
    "28 x 28": {"image": (28, 28, 1), "first": (5, 5, 1, 8), "second": (3, 3, 8, 16), "last": (400, 10), "stride": 2},
    "32 x 32 x 3": {
        "image": (32, 32, 3),
        "first": (3, 3, 3, 16),
        "second": (3, 3, 16, 32),
        "last": (2048, 10),
        "stride": 1,
    },
}


def problem_of(sizes, samples=512):
    rng = np.random.default_rng(0)
    names = ("first", "second", "last")
    y0 = {name: jnp.asarray(0.05 * rng.normal(size=sizes[name]), jnp.float32) for name in names}
    data = {
        "image": rng.normal(size=(samples, *sizes["image"])).astype(np.float32),
        "label": rng.integers(0, 10, samples),
        "index": np.arange(samples),
    }
    stride = sizes["stride"]

    def layer(images, kernel):
        padding = "VALID" if stride > 1 else "SAME"
        numbers = ("NHWC", "HWIO", "NHWC")
        out = jax.nn.relu(
            jax.lax.conv_general_dilated(images, kernel, (stride,) * 2, padding, dimension_numbers=numbers)
        )
        if stride > 1:
            return out
        n, height, width, channels = out.shape
        return out.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4))

    def losses(y, batch):
        hidden = layer(layer(batch["image"], y["first"]), y["second"])
        logits = hidden.reshape(len(hidden), -1) @ y["last"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])

    return bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean(losses(y, batch)),
        inner_loss=lambda x, y, batch: jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch)),
        outer_data=data,
        inner_data=data,
        x0=np.zeros(samples, np.float32),
        y0=y0,
    )


def in_a_loop(problem, algorithm, steps):
    """Return a function that takes so many steps, compiled."""
    parts, stream = traced(problem, "iid"), keys.root(0)
    state = algorithm.init(parts.oracle(), problem.x0, problem.y0)
    begun = loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state))
    goal = loop.Goal(jnp.asarray(0.0), 0)
    return lambda: loop.advance(parts, algorithm, stream, goal, begun, steps, True).state.y


def outside(problem, algorithm, times):
    """Return the seconds of all derivatives of a step, each called from Python."""
    F, G = problem.outer_loss, problem.inner_loss
    batch = jax.tree.map(lambda leaf: leaf[:BATCH], problem.inner_data)
    G_y = jax.grad(G, argnums=1)
    kinds = {
        "F": jax.jit(lambda x, y, r: jax.grad(F, argnums=(0, 1))(x, y, batch)),
        "G": jax.jit(lambda x, y, r: G_y(x, y, batch)),
        "HV": jax.jit(lambda x, y, r: jax.jvp(lambda y: G_y(x, y, batch), (y,), (r,))[1]),
        "JV": jax.jit(lambda x, y, r: jax.grad(lambda x: jax.jvp(lambda y: G(x, y, batch), (y,), (r,))[1])(x)),
    }
    cost = algorithm.cost(1)
    point = problem.x0, problem.y0, problem.y0
    return sum(getattr(cost, kind) / BATCH * fastest(lambda fn=fn: fn(*point), times) for kind, fn in kinds.items())


def fastest(run, times):
    jax.block_until_ready(run())
    seconds = []
    for _ in range(times):
        tic = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - tic)
    return min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small network, one step")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for convolutions.json")
    options = parser.parse_args()
    steps, times = (1, 1) if options.quick else (5, 5)
    rows = []
    for network, sizes in list(NETWORKS.items())[: 1 if options.quick else None]:
        for name, algorithm in METHODS.items():
            problem = problem_of(sizes)
            ours = fastest(in_a_loop(problem, algorithm, steps), times) / steps
            plain = outside(problem, algorithm, times)
            with mock.patch.object(
                convolutions, "on_cpu", return_value=False
            ):  # another problem: nothing is compiled yet
                slow = fastest(in_a_loop(problem_of(sizes), algorithm, 1), 1)
            row = {"network": network, "method": name, "bilax": ours, "outside": plain, "XLA's in the loop": slow}
            rows.append(row)
            print(f"{network:12} {name:8} {1e3 * ours:.1f} ms, {ours / plain:.2f} of outside, XLA's {slow / ours:.1f}")
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"rows": rows, "environment": environment()}
    (options.out / "convolutions.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
