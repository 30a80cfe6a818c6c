"""A problem on many devices: its data along a mesh, and where the arrays of a run lie."""

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bilax.algorithms.protocol import Algorithm
from bilax.given import is_nothing
from bilax.numerics.processes import refuse_different
from bilax.oracle import Oracle, Traced, TracedProblem, traced
from bilax.problem import Problem
from bilax.running.checks import starting_point
from bilax.sampling.samplers import Sampler, full
from bilax.sampling.stored import size_of
from bilax.sampling.strata import PARTS, Evenly, Placement, Spread, automatic, data_axis
from bilax.sampling.streamed import Streamed
from bilax.sparse import is_rows
from bilax.types import PyTree

SAMPLERS = ("iid", "epoch", "full")  # that can draw evenly from all devices

# Parts of a CPU that outnumber its cores may each wait in another reduction until XLA ends the program, where it lets
# those that do not depend on each other run side by side. (As an option of one program, this does not help.)
IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"


def spread(problem: Problem | Oracle, sampler: str | Sampler, mesh: Any, algorithm: Algorithm) -> TracedProblem:
    """Return the problem with its data along the data axis of a mesh, or say why that cannot be."""
    _check(problem, sampler, mesh, algorithm)
    assert isinstance(problem, Problem)
    refuse_different((problem.outer_data, problem.inner_data))
    mesh = automatic(mesh)
    if sampler != "full":
        return cast(TracedProblem, traced(problem, Evenly(mesh, each_once=sampler == "epoch")))
    parts = cast(TracedProblem, traced(problem, full))
    outer, inner = (_in_even_parts(data, mesh) for data in (parts.outer_data, parts.inner_data))
    return replace(parts, outer_data=outer, inner_data=inner)


def mesh_of(count: int, processes: int = 1) -> Mesh:
    """Return a mesh of so many devices, 0 for all; on a CPU, if JAX has not begun, of as many parts of it."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {IN_ORDER}"  # read when it begins
    with suppress(RuntimeError):  # it has begun
        jax.config.update("jax_num_cpu_devices", max(1, count // processes))
    count = count or jax.device_count()
    if jax.process_count() > 1 and count != jax.device_count():
        raise ValueError(
            f"{count} devices were asked for, and the {jax.process_count()} processes have {jax.device_count()}; leave "
            "the number out to use all."
        )
    if jax.device_count() < count:
        raise ValueError(
            f"{count} devices were asked for, and JAX has {jax.device_count()} ({jax.default_backend()}). To cut a CPU "
            f"into {count}, set XLA_FLAGS='--xla_force_host_platform_device_count={count} {IN_ORDER}' before JAX is "
            "imported."
        )
    return jax.make_mesh((count,), ("data",), devices=jax.devices()[:count])


def prepared(
    problem: Problem | Oracle, sampler: str | Sampler, mesh: Any, algorithm: Algorithm, start: tuple, state: Any
) -> tuple[Traced, tuple]:
    """Return what a compiled program takes of the problem, on one device or on a mesh, and where x and y start."""
    if mesh is None:
        return traced(problem, sampler), start
    parts = spread(problem, sampler, mesh, algorithm)
    if state is not None:
        return with_placement(parts, mesh, state.x, state.y), start
    start = starting_point(problem, *start)
    parts = with_placement(parts, mesh, *start)
    return parts, parts.put(start)


def with_placement(parts: TracedProblem, mesh: Mesh, x: PyTree, y: PyTree) -> TracedProblem:
    """Return the problem with where x, y and all that looks like them lie: as the user laid them out; parts of x with
    one entry per sample along the data; the rest on every device."""
    mesh = automatic(mesh)
    axis, sizes = data_axis(mesh), {size_of(data) for data in (parts.outer_data, parts.inner_data)}
    known: dict[tuple[int, ...], P] = {}
    for leaf in jax.tree.leaves((x, y)):
        own = _spec(leaf, mesh)
        if own is not None:
            known[leaf.shape] = own
    for leaf in jax.tree.leaves(x):
        if leaf.ndim and leaf.shape[0] in sizes and leaf.shape[0] % mesh.shape[axis] == 0:
            known.setdefault(leaf.shape, P(axis))
    return replace(parts, placement=Placement(mesh, tuple(known.items())))


def _spec(leaf: jax.Array, mesh: Mesh) -> P | None:
    """Return how the user has laid an array out along the axes of the mesh; None: not at all."""
    sharding = leaf.sharding
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
        return None
    fits = sharding.mesh.axis_names == mesh.axis_names and sharding.mesh.shape == mesh.shape
    return P(*sharding.spec) if fits else None


def _in_even_parts(data: PyTree, mesh: Mesh) -> PyTree:
    if is_nothing(data):
        return data
    spread = Spread.of(data, mesh, parts=mesh.shape[data_axis(mesh)])
    spread.everything()  # refuses what cannot be shared evenly
    return spread


def _check(problem: Any, sampler: Any, mesh: Any, algorithm: Any) -> None:
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"mesh must be a jax.sharding.Mesh, e.g. jax.make_mesh((jax.device_count(),), ('data',)); got {mesh!r}."
        )
    if not isinstance(problem, Problem):
        raise TypeError(f"mesh lays the data of a bilax.Problem out; got {type(problem).__name__}.")
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        told = getattr(sampler, "__name__", sampler)
        raise ValueError(f"on a mesh the sampler is one of {', '.join(map(repr, SAMPLERS))}; got {told!r}.")
    count = mesh.shape[data_axis(mesh)]
    if PARTS % count:
        raise ValueError(
            f"the data axis of the mesh has {count} devices; a number that divides {PARTS} is needed, so "
            "that all share every batch evenly (1 to 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 48, 60, 64, ...)."
        )
    for name in ("outer_data", "inner_data"):
        data = getattr(problem, name)
        if isinstance(data, Streamed):
            raise ValueError(f"{name} is a source, which is read on one device; leave mesh out, or give arrays.")
        if any(map(is_rows, jax.tree.leaves(data, is_leaf=is_rows))):
            raise ValueError(f"{name} holds sparse rows, which cannot be laid out on a mesh; run on one device.")
        if size_of(data) >= 2**31:
            raise ValueError(f"{name} has {size_of(data):,} samples; at most 2**31 - 1 can be numbered.")
        if not is_nothing(data) and size_of(data) < count:
            raise ValueError(f"{name} has {size_of(data)} samples, fewer than the {count} devices of the mesh.")
    if "HINV" in getattr(getattr(algorithm, "about", None), "calls", ()):
        raise ValueError(
            f"{type(algorithm).__name__} factorises a dense inner Hessian, which every device would do alike: nothing "
            "is gained by a mesh. Run it on one device, or choose another method."
        )
    if getattr(algorithm, "per_sample", False):
        raise ValueError(
            "per_sample=True pairs the i-th samples of several batches, and on a mesh the i-th samples all come from "
            "the same part of the data: the estimate would be biased. Leave it out."
        )
