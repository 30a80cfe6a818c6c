"""One of several processes that share a run: `python one_of_many.py INDEX COUNT PORT FOLDER STEPS`; see test_processes."""

import os
import sys

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np

import bilax

N, D = 960, 6


def outer_loss(x, y, batch):
    return jnp.mean((batch["X"] @ y - batch["t"]) ** 2)


def inner_loss(x, y, batch):
    each = (batch["X"] @ y - batch["t"]) ** 2
    return jnp.mean(jax.nn.sigmoid(x[batch["i"]]) * each) + 0.1 * jnp.sum(y**2)


def problem(part=lambda rows: rows):
    rng = np.random.default_rng(0)
    data = {"X": rng.normal(size=(N, D)), "t": rng.normal(size=N), "i": np.arange(N)}
    data = {name: part(rows) for name, rows in data.items()}
    return bilax.Problem(outer_loss, inner_loss, data, data, jnp.zeros(N), jnp.zeros(D))


ALGORITHM = bilax.SOBA(S=48)


def main():
    index, count, port, folder, steps = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(
        f"127.0.0.1:{port}", int(count), int(index), heartbeat_timeout_seconds=20, shutdown_timeout_seconds=20
    )
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    along, share = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")), N // int(count)

    def held_here(rows):
        """Return the whole array, of which this process gives its own rows alone."""
        own = rows[int(index) * share : (int(index) + 1) * share]
        return jax.make_array_from_process_local_data(along, own)

    if steps == "mixed":  # as somebody does who forgets that call
        shares = [slice(0, share), slice(N - share, N)]
        bilax.solve(problem(lambda rows: rows[shares[int(index)]]), ALGORITHM, jnp.zeros(share), steps=1, mesh=mesh)
    rows = []
    run = bilax.solve(
        problem(held_here), ALGORITHM, steps=int(steps), every=10, mesh=mesh, checkpoint_dir=folder, on_row=lambda row: rows.append(row) or print("row", flush=True)
    )  # fmt: skip
    y = np.asarray(run.y).tolist()
    print(f"{run.status} {run.counts.G} {len(rows)} {run.x.is_fully_addressable} {y}", flush=True)


if __name__ == "__main__":
    main()
