"""Data laid out over devices, and batches that are drawn evenly from all parts of them.

The samples lie in their order along the axis of a mesh, in PARTS equal parts, of which every device holds as many as
any other. A batch of B samples takes B / k of them from each of k = gcd(B, PARTS) stretches of equal length, whatever
the number of devices: the seed alone decides which samples are met. Each device computes on its own; no sample moves.

A stretch of n / k samples may begin within a sample, which then belongs to both of its neighbours, to each with its
share, so that every sample is as likely as any other: of the n k numbers ``g n + r``, with g a stretch and r drawn from
0 to n - 1, exactly k give the sample ``(g n + r) // k``.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bilax.numerics.memory import bytes_of
from bilax.numerics.processes import put
from bilax.sampling import keys
from bilax.sampling.samplers import epoch_index
from bilax.sampling.stored import Stored
from bilax.types import Key, PyTree

PARTS = 960  # which 1 to 6, 8, 10, 12, 15, 16, ... devices share evenly


@partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["samples", "parts", "mesh"])
@dataclass(frozen=True)
class Spread(Stored):
    """Samples along the data axis of a mesh.

    >>> spread = Spread.of(jnp.arange(10.0), devices_in_line(jax.devices()[:1]), parts=4)
    >>> spread.rows.reshape(4, -1).tolist()  # parts of 2.5 samples each
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0], [5.0, 6.0, 7.0], [7.0, 8.0, 9.0]]
    >>> spread.take(jnp.array([2, 7])).tolist()
    [2.0, 7.0]
    >>> [spread.block(i, 4).tolist() for i in range(2)], spread.rest(4).tolist()
    ([[0.0, 3.0, 5.0, 8.0], [1.0, 4.0, 6.0, 9.0]], [2.0, 7.0])
    """

    rows: PyTree  # the parts, one after the other, all of the same length
    samples: int
    parts: int
    mesh: Mesh

    @classmethod
    def of(cls, data: PyTree, mesh: Mesh, parts: int = PARTS) -> "Spread":
        n = len(jax.tree.leaves(data)[0])
        first, length = _first(n, parts), _length(n, parts)
        # (Samples beyond the end are never taken.)
        order = None if n % parts == 0 else np.minimum(first[:, None] + np.arange(length), n - 1).reshape(-1)
        return cls(jax.tree.map(lambda leaf: _put(leaf, order, mesh), data), n, parts, mesh)

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.mesh.shape[data_axis(self.mesh)]

    @property
    def bytes_per_sample(self) -> float:
        return bytes_of(self.rows) / (self.parts * _length(self.samples, self.parts))

    def take(self, numbers: jax.Array) -> PyTree:
        position = self._positions(numbers[None], 1)[0]
        batch = jax.tree.map(lambda leaf: leaf.at[position].get(mode="promise_in_bounds"), self.rows)
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, NamedSharding(self.mesh, P())), batch)

    def block(self, i: Any, length: int) -> PyTree:
        stretches = self.stretches(length)
        each = length // stretches
        begins = _ceiling(self.samples, stretches)
        return self.gather(jnp.asarray(begins)[:, None] + i * each + jnp.arange(each, dtype=jnp.int32))

    def rest(self, length: int) -> PyTree:
        stretches = self.stretches(length)
        used = self.samples // length * (length // stretches)
        begins = [*_ceiling(self.samples, stretches), self.samples]
        left = [np.arange(begin + used, end) for begin, end in pairwise(begins)]
        return self.take(jnp.asarray(np.concatenate(left), jnp.int32))

    def everything(self) -> PyTree:
        if self.samples % self.parts:
            raise ValueError(
                f"{self.samples:,} samples cannot be shared evenly by {self.devices} devices, as a batch of all of "
                f"them must be; leave out {self.samples % self.devices}, or draw batches (sampler='iid')."
            )
        return self.rows

    def stretches(self, size: int) -> int:
        """Return from how many stretches a batch is drawn evenly."""
        stretches = math.gcd(size, self.parts)
        if stretches % self.devices:
            raise ValueError(
                f"a batch of {size} samples cannot be shared evenly by {self.devices} devices; take a multiple of "
                f"{self.devices}, such as {-(-size // self.devices) * self.devices}."
            )
        return stretches

    def gather(self, numbers: jax.Array) -> PyTree:
        """Return the batch of samples of these numbers, of shape (stretches, samples of each), where they lie."""
        stretches, each = numbers.shape
        position = self._positions(numbers, stretches)

        def local(leaf: jax.Array) -> jax.Array:
            apart = _along(leaf.reshape(stretches, -1, *leaf.shape[1:]), self.mesh)
            batch = jax.vmap(lambda rows, at: rows.at[at].get(mode="promise_in_bounds"))(apart, position)
            return _along(batch.reshape(stretches * each, *leaf.shape[1:]), self.mesh)

        return jax.tree.map(local, self.rows)

    def _positions(self, numbers: jax.Array, stretches: int) -> jax.Array:
        """Return where samples lie, each from the begin of its stretch."""
        n, within = self.samples, self.parts // stretches
        first, length = _first(n, self.parts).reshape(stretches, within), _length(n, self.parts)
        if n % self.parts == 0:
            return numbers - jnp.asarray(first[:, :1])
        begins = jnp.asarray(_ceiling(n, self.parts).reshape(stretches, within)[:, 1:])
        part = jnp.sum(numbers[:, :, None] >= begins[:, None, :], axis=-1, dtype=jnp.int32)
        return part * length + numbers - jnp.take_along_axis(jnp.asarray(first), part, axis=1)


def _first(n: int, parts: int) -> np.ndarray:
    """Return the first sample of each part, which may belong to the part before as well."""
    return (np.arange(parts) * n // parts).astype(np.int32)


def _ceiling(n: int, parts: int) -> np.ndarray:
    """Return the first sample that begins in each part."""
    return (-(-np.arange(parts) * n // parts)).astype(np.int32)


def _length(n: int, parts: int) -> int:
    """Return how many samples the longest part has, those that it shares included."""
    begins = np.arange(parts + 1) * n
    return int((-(-begins[1:] // parts) - begins[:-1] // parts).max())


@dataclass(frozen=True)
class Evenly:
    """The sampler of spread data: with replacement, or each sample once per pass."""

    mesh: Mesh
    each_once: bool = False

    def arrange(self, data: PyTree) -> tuple[Spread, Spread]:
        n = len(jax.tree.leaves(data)[0])
        return Spread.of(data, self.mesh), Spread.of(np.arange(n, dtype=np.int32), self.mesh)

    def __call__(self, data: Spread, key: Key, size: int) -> PyTree:
        stretches, n = data.stretches(size), data.samples
        each = size // stretches
        if self.each_once:
            return data.gather(_shuffled(key, n, stretches, each))
        r = jax.random.bits(key, (stretches, each), jnp.uint32) % jnp.uint32(n)
        begins, shares = np.divmod(np.arange(stretches) * n, stretches)
        within = (r + jnp.asarray(shares, jnp.uint32)[:, None]) // jnp.uint32(stretches)
        return data.gather(within.astype(jnp.int32) + jnp.asarray(begins, jnp.int32)[:, None])


def _shuffled(key: Key, n: int, stretches: int, each: int) -> jax.Array:
    if n % stretches or each > n // stretches:
        raise ValueError(
            f"a batch of {stretches * each} samples takes {each} from each of {stretches} stretches of the data, each "
            f"sample once per pass: that needs a multiple of {stretches} samples, and there are {n:,}. Leave out "
            f"{n % stretches}, or draw with sampler='iid'."
        )
    stream, position = keys.parts(key)

    def of(stretch: jax.Array) -> jax.Array:
        own = keys.at(jax.random.fold_in(stream, stretch), position)
        return epoch_index(own, each, n // stretches) + stretch.astype(jnp.int32) * (n // stretches)

    return jax.vmap(of)(jnp.arange(stretches, dtype=jnp.uint32))


@dataclass(frozen=True)
class Placement:
    """Where each array of a run lies: those that are as long as the data along the mesh, others on every device."""

    mesh: Mesh
    spread: tuple[tuple[tuple[int, ...], P], ...] = ()  # the shapes of those that are not on every device

    def of(self, leaf: Any) -> NamedSharding:
        shape = jnp.shape(leaf)
        for known, spec in self.spread:
            if shape[len(shape) - len(known) :] == known:
                return NamedSharding(self.mesh, P(*[None] * (len(shape) - len(known)), *spec))
        return NamedSharding(self.mesh, P())

    def constrain(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, self.of(leaf)), tree)

    def put(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: put(leaf, self.of(leaf)), tree)


def data_axis(mesh: Mesh) -> str:
    """Return the name of the axis that data lie along: "data", or the first one."""
    return "data" if "data" in mesh.axis_names else mesh.axis_names[0]


def automatic(mesh: Mesh) -> Mesh:
    """Return the same mesh, along whose axes the compiler lays arrays out by itself.

    On explicit axes, the default of `jax.make_mesh`, every operation of a loss would have to say where its result lies.
    """
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def devices_in_line(devices: Any, axis: str = "data") -> Mesh:
    """Return a mesh of one axis, which the compiler lays arrays out along by itself."""
    return Mesh(np.asarray(devices).reshape(-1), (axis,), axis_types=(AxisType.Auto,))


def _along(leaf: jax.Array, mesh: Mesh) -> jax.Array:
    return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, P(data_axis(mesh))))


def _put(leaf: Any, order: np.ndarray | None, mesh: Mesh) -> jax.Array:
    sharding = NamedSharding(mesh, P(data_axis(mesh)))
    if order is None:
        return put(leaf, sharding)
    rows = np.asarray(leaf)

    def part(at: Any) -> np.ndarray:
        return rows[order[at[0]]]

    return jax.make_array_from_callback((len(order), *rows.shape[1:]), sharding, part)
