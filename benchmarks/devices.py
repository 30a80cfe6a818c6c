"""One run on 1, 2, 4 and 8 devices that a CPU is cut into: work and bytes per device and step, and the time of a step
next to plain data parallelism in JAX that takes the same gradients.

python benchmarks/devices.py [--quick] [--out FOLDER]

The devices share the machine's cores: times tell what the layout costs, not what more machines would save.
"""

import argparse
import json
import os
import re
import time
from pathlib import Path

COUNTS = (1, 2, 4, 8)
FLAGS = f"--xla_force_host_platform_device_count={max(COUNTS)} --xla_cpu_enable_concurrency_optimized_scheduler=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from streaming import C, D, inner_loss, outer_loss  # noqa: E402

import bilax  # noqa: E402
from bilax.running import devices, loop  # noqa: E402
from bilax.running.checks import first_state  # noqa: E402
from bilax.sampling import keys  # noqa: E402
from bilax.sampling.strata import automatic  # noqa: E402
from bilax.storage.environment import environment  # noqa: E402

N, S = 19_200, 960
BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "u8": 1, "pred": 1, "bf16": 2}
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter)(?:-start)?\(")


def cleaning(n: int) -> bilax.Problem:
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(n, D)).astype(np.float32), rng.integers(0, C, n).astype(np.int32)
    data = {"X": X, "t": t, "i": np.arange(n, dtype=np.int32)}
    return bilax.Problem(outer_loss, inner_loss, data, data, jnp.zeros(n), jnp.zeros((D, C)))


def mesh_of(count: int):
    return jax.make_mesh((count,), ("data",), devices=jax.devices()[:count])


def compiled(problem, algorithm, count):
    parts, start = devices.prepared(problem, "iid", mesh_of(count), algorithm, (None, None), None)
    state, stream = first_state(problem, parts, algorithm, *start), parts.put(keys.root(0))
    begun = parts.put(loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state)))
    goal = loop.Goal(jnp.zeros(()), 0)
    program = loop.advance.lower(parts, algorithm, stream, goal, begun, 10, False).compile()

    def run(steps):
        return program(parts, algorithm, stream, goal, begun, steps, False)

    return program, run


def plain(problem, count):
    """Return steps of data parallelism by hand: batches cut out on each device, SOBA's derivatives of the mean."""
    mesh = automatic(mesh_of(count))
    along, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    data = jax.device_put(problem.inner_data, along)
    x, y = jax.device_put(problem.x0, along), jax.device_put(problem.y0, everywhere)
    each_device = N // count

    def batch_of(key):
        index = jax.random.randint(key, (count, S // count), 0, each_device)

        def local(leaf):
            rows = leaf.reshape(count, each_device, *leaf.shape[1:])
            batch = jax.vmap(lambda r, i: r[i])(rows, index).reshape(S, *leaf.shape[1:])
            return jax.lax.with_sharding_constraint(batch, along)

        return jax.tree.map(local, data)

    grad_y = jax.grad(inner_loss, argnums=1)

    def step(k, carry):
        x, y, v = carry
        key, other = jax.random.split(jax.random.fold_in(jax.random.key(0), k))
        zeta, xi = batch_of(key), batch_of(other)
        g, H = jax.linearize(lambda y: grad_y(x, y, zeta), y)
        J = jax.grad(lambda x: jnp.vdot(grad_y(x, y, zeta), v))(x)
        F_y = jax.grad(outer_loss, argnums=1)(x, y, xi)
        return (
            jax.lax.with_sharding_constraint(x + 0.01 * J, along),
            jax.lax.with_sharding_constraint(y - 0.01 * g, everywhere),
            jax.lax.with_sharding_constraint(v - 0.01 * (H(v) - F_y), everywhere),
        )

    start = x, y, jax.device_put(jnp.zeros_like(y), everywhere)
    many = jax.jit(lambda steps, start: jax.lax.fori_loop(0, steps, step, start))
    return lambda steps: many(steps, start)


def moved(program) -> list[int]:
    """Return the bytes of every array that the collective operations of a program hand over."""
    arrays = [
        array
        for shapes, _ in COLLECTIVE.findall(program.as_text())
        for array in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    ]
    return [BYTES[dtype] * int(np.prod([int(d) for d in dims.split(",") if d] or [1])) for dtype, dims in arrays]


def seconds(run, steps: int, repeats: int = 3) -> float:
    jax.block_until_ready(run(2))
    times = []
    for _ in range(repeats):
        tic = time.perf_counter()
        jax.block_until_ready(run(steps))
        times.append((time.perf_counter() - tic) / steps)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two devices, few steps")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for devices.json")
    options = parser.parse_args()
    problem, steps = cleaning(N), 3 if options.quick else 40
    table, one = {}, {}
    print(f"SOBA, eta 0.01, {N:,} samples of {D} numbers, {C} classes, batches of {S}")
    for count in COUNTS[:2] if options.quick else COUNTS:
        program, run = compiled(problem, bilax.SOBA(S=S, rho_v=0.01), count)
        flops, ms = program.cost_analysis()["flops"], 1e3 * seconds(run, steps)
        one = one or {"flops": flops, "ms": ms}
        row = {
            "work of each": flops / one["flops"],
            "KB moved": sum(moved(program)) / 1e3 if count > 1 else 0.0,
            "ms": ms,
            "of one device": ms / one["ms"],
            "of plain JAX": ms / (1e3 * seconds(plain(problem, count), steps)),
        }
        table[f"{count} device{'s' if count > 1 else ''}"] = row
        print(f"{count} devices:", {name: round(value, 3) for name, value in row.items()}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "environment": environment()}
    (options.out / "devices.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
