"""Runs on eight devices, which `test_devices` makes of one CPU: `pytest tests/on_many_devices.py` in a process with
XLA_FLAGS=--xla_force_host_platform_device_count=8."""

import dataclasses
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import bilax
from bilax.hyperparameters import names_of
from bilax.running import devices, loop
from bilax.running.checks import first_state
from bilax.sampling import keys

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from devices import moved

D_Y = (24, 5)
# One of each kind: momentum at two points, inner loops, a series, tables, passes, no second derivatives, unrolled.
KINDS = ("vrbo", "saba", "srba", "f2sa", "reverse")


@cache
def cleaning(n=2000, outer=501):
    """A weight for every inner sample; not all sizes are multiples of the number of parts."""
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(n, D_Y[0])), rng.integers(0, D_Y[1], n)

    def each(y, batch):
        logits = batch["X"] @ y
        return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, batch["t"][:, None], 1)[:, 0]

    return bilax.Problem(
        outer_loss=lambda x, y, batch: jnp.mean(each(y, batch)),
        inner_loss=lambda x, y, batch: jnp.mean(jax.nn.sigmoid(x[batch["i"]]) * each(y, batch)) + 0.01 * jnp.sum(y**2),
        outer_data={"X": X[:outer], "t": t[:outer]},
        inner_data={"X": X, "t": t, "i": np.arange(n)},
        x0=jnp.zeros(n),
        y0=jnp.zeros(D_Y),
    )


def method(name, S=80):
    algorithm = bilax.ALGORITHMS[name]()
    return dataclasses.replace(algorithm, **dict.fromkeys(names_of("batch_size", algorithm), S))


def mesh_of(count, **options):
    return jax.make_mesh((count,), ("data",), devices=jax.devices()[:count], **options)


def agree(one, other, rounding=1e-12):
    assert one.status == other.status == "done"
    assert one.counts == other.counts
    for a, b in ((one.x, other.x), (one.y, other.y)):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=rounding * float(abs(a).max()))


@pytest.mark.parametrize("name", ["mrbo", *(pytest.param(name, marks=pytest.mark.slow) for name in KINDS)])
def test_a_seed_means_the_same_run_on_one_device_and_on_eight(name):
    # VRBO's differences of gradients and PZOBO's quotients magnify rounding.
    rounding = {"vrbo": 1e-9, "pzobo": 1e-6}.get(name, 1e-11)
    one, eight = (bilax.solve(cleaning(), method(name), steps=5, mesh=mesh_of(count)) for count in (1, 8))
    agree(one, eight, rounding)
    assert eight.x.sharding.spec == P("data")
    assert eight.y.sharding.is_fully_replicated


@pytest.mark.slow
def test_and_on_two_and_on_six():
    # 80 samples cannot be shared by six devices.
    runs = {n: bilax.solve(cleaning(1980), method("soba", 240), steps=5, mesh=mesh_of(n)) for n in (1, 2, 6)}
    for count in (2, 6):
        agree(runs[1], runs[count])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sampler"), [("soba", "epoch"), ("saba", "full")])
def test_other_samplers(name, sampler):
    problem, algorithm = cleaning(2000, 480), method(name)
    one, eight = (bilax.solve(problem, algorithm, steps=5, mesh=mesh_of(count), sampler=sampler) for count in (1, 8))
    agree(one, eight, 1e-11)
    if sampler == "full":  # nothing is drawn
        agree(one, bilax.solve(problem, algorithm, steps=5, sampler="full"), 1e-11)


@pytest.mark.slow
def test_axes_may_be_explicit_or_automatic_and_data_may_lie_there_already():
    problem, algorithm = cleaning(), method("soba")
    explicit, automatic = (mesh_of(8, axis_types=(kind,)) for kind in (AxisType.Explicit, AxisType.Auto))
    first = bilax.solve(problem, algorithm, steps=5, mesh=explicit)
    agree(first, bilax.solve(problem, algorithm, steps=5, mesh=automatic), 0)
    inner = jax.device_put(problem.inner_data, NamedSharding(explicit, P("data")))
    x0 = jax.device_put(problem.x0, NamedSharding(explicit, P("data")))
    there = dataclasses.replace(problem, inner_data=inner, x0=x0)
    agree(first, bilax.solve(there, algorithm, steps=5, mesh=explicit), 0)


@pytest.mark.slow
def test_y_stays_where_the_user_laid_it_out():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    problem, algorithm = cleaning(), method("soba")
    y0 = jax.device_put(problem.y0, NamedSharding(mesh, P("model")))
    found = bilax.solve(problem, algorithm, y0=y0, steps=5, mesh=mesh)
    assert found.y.sharding.spec == P("model")
    assert found.state.v.sharding.spec == P("model")
    agree(bilax.solve(problem, algorithm, steps=5, mesh=mesh_of(1)), found)


@pytest.mark.slow
def test_a_run_goes_on_on_another_number_of_devices(tmp_path):
    problem, algorithm = cleaning(), method("mrbo")
    whole = bilax.solve(problem, algorithm, steps=8, mesh=mesh_of(8), every=4)
    bilax.solve(problem, algorithm, steps=4, mesh=mesh_of(8), every=4, checkpoint_dir=tmp_path)
    again = bilax.solve(problem, algorithm, steps=8, mesh=mesh_of(2), every=4, checkpoint_dir=tmp_path)
    agree(whole, again, 1e-11)


@pytest.mark.slow
def test_a_state_goes_on_on_another_number_of_devices():
    problem, algorithm = cleaning(), method("soba")
    whole = bilax.solve(problem, algorithm, steps=8, mesh=mesh_of(8))
    half = bilax.solve(problem, algorithm, steps=4, mesh=mesh_of(8))
    rest = bilax.solve(problem, algorithm, steps=4, mesh=mesh_of(4), state=half.state)
    np.testing.assert_allclose(np.asarray(whole.y), np.asarray(rest.y), rtol=0, atol=1e-12)


def program(name, count, n=2400, S=80):
    # (A last, shorter block of SABA's is computed by every device.)
    problem, algorithm = cleaning(n, 1600), method(name, S)
    parts, start = devices.prepared(problem, "iid", mesh_of(count), algorithm, (None, None), None)
    state, stream = first_state(problem, parts, algorithm, *start), parts.put(keys.root(0))
    begun = parts.put(loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state)))
    return loop.advance.lower(parts, algorithm, stream, loop.Goal(jnp.zeros(()), 0), begun, 10, False).compile()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mrbo", "saba", "f2sa"])
def test_every_device_does_its_share_and_no_sample_moves(name):
    one, eight = (program(name, count, S=800) for count in (1, 8))
    assert eight.cost_analysis()["flops"] <= 0.15 * one.cost_analysis()["flops"]
    # Gradients, as long as y, and a number for each sample of a batch, at a few points together (PZOBO: eleven).
    largest = max(moved(eight))
    assert largest <= 8 * (11 if name == "pzobo" else 3) * (np.prod(D_Y) + 800)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mrbo"])
def test_what_moves_does_not_grow_with_the_data(name):
    few, many = (sum(moved(program(name, 8, n))) for n in (1920, 19200))
    assert many <= 1.05 * few


@pytest.mark.slow
def test_a_pass_over_all_data_moves_a_few_numbers_per_sample_and_no_sample():
    few, many = (sum(moved(program("srba", 8, n))) for n in (1920, 19200))
    assert (many - few) / (19200 - 1920) <= 4 * 8  # a sample has 26 numbers


@pytest.mark.slow
def test_a_sweep_runs_on_a_mesh():
    settings = [bilax.SOBA(gamma=gamma, S=80) for gamma in (0.01, 0.1)]
    one, eight = (bilax.sweep(cleaning(), settings, steps=5, mesh=mesh_of(count)) for count in (1, 8))
    np.testing.assert_allclose(one.state.y, eight.state.y, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(algorithm=bilax.SOBA(S=50)), "take a multiple of 8, such as 56"),
        (dict(algorithm=bilax.STABLE()), "dense inner Hessian"),
        (dict(algorithm=bilax.VRBO(per_sample=True)), "biased"),
        (dict(sampler="blocks"), "'iid', 'epoch', 'full'"),
        (dict(mesh="all"), "jax.make_mesh"),
        (dict(sampler="full"), "501 samples cannot be shared evenly by 8 devices.* leave out 5"),
        (dict(sampler="epoch"), "a multiple of 80 samples, and there are 501"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(changes, words):
    given = dict(algorithm=bilax.SOBA(S=80), mesh=mesh_of(8)) | changes
    with pytest.raises((TypeError, ValueError), match=words):
        bilax.solve(cleaning(), steps=1, **given)


@pytest.mark.slow
def test_seven_devices_share_no_batch():
    with pytest.raises(ValueError, match="has 7 devices; a number that divides 960"):
        bilax.solve(cleaning(), bilax.SOBA(S=70), steps=1, mesh=mesh_of(7))
