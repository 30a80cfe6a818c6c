"""Many devices, made of one CPU in a process of their own; and what a mesh of one device shows already."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bilax.running.devices import IN_ORDER
from bilax.sampling import keys
from bilax.sampling.strata import Evenly, Spread, devices_in_line

HERE = Path(__file__).parent
ONE = devices_in_line(jax.devices()[:1])


@pytest.mark.parametrize("speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_many_devices(speed):
    flags = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8 {IN_ORDER}"}
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        speed,
        str(HERE / "on_many_devices.py"),
    ]
    done = subprocess.run(call, env=os.environ | flags, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(("n", "size"), [(1003, 80), (960, 96), (37, 50), (5000, 1), (2, 8)])
def test_every_sample_is_exactly_as_likely(n, size, monkeypatch):
    """Over all numbers that can be drawn, each sample is met equally often."""
    data, numbers = Evenly(ONE).arrange(np.arange(n))
    stretches = data.stretches(size)

    def drawn(r):
        monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.full(shape, r, dtype))
        return Evenly(ONE)(numbers, keys.at(keys.root(0), 0), size).reshape(stretches, -1)[:, 0]

    met = jax.jit(jax.vmap(drawn))(jnp.arange(n, dtype=jnp.uint32))
    assert (np.bincount(np.ravel(met), minlength=n) == stretches).all()


@pytest.mark.parametrize("n", [7, 960, 1003])
def test_samples_lie_where_they_are_looked_for(n):
    spread = Spread.of({"number": np.arange(n)}, ONE)
    some = np.random.default_rng(0).integers(0, n, 50)
    np.testing.assert_array_equal(spread.take(jnp.asarray(some))["number"], some)
    for length in (1, 6, 250):
        if length <= n:
            each = jax.jit(jax.vmap(lambda i, length=length: spread.block(i, length)["number"]))
            blocks = np.ravel(each(jnp.arange(n // length)))
            rest = np.asarray(spread.rest(length)["number"]) if n % length else []
            np.testing.assert_array_equal(np.sort(np.concatenate([blocks, rest])), np.arange(n))


def test_a_pass_meets_every_sample_once():
    _, numbers = Evenly(ONE, each_once=True).arrange(np.arange(480))
    sampler, stream = Evenly(ONE, each_once=True), keys.root(3)
    met = np.asarray(jax.jit(jax.vmap(lambda step: sampler(numbers, keys.at(stream, step), 32)))(jnp.arange(30)))
    for first in (0, 15):
        np.testing.assert_array_equal(np.sort(np.ravel(met[first : first + 15])), np.arange(480))
    assert not np.array_equal(met[0], met[15])


def test_drawing_evenly_varies_less_than_drawing_freely():
    """The mean of a batch has the variance within stretches, not the one between them."""
    n, size = 1003, 40
    values = np.sort(np.random.default_rng(0).normal(size=n))  # a sample is like its neighbours
    data, _ = Evenly(ONE).arrange(values)
    draw = jax.jit(jax.vmap(lambda k: Evenly(ONE)(data, keys.at(keys.root(0), k), size).mean()))
    means = np.asarray(draw(jnp.arange(4000)))
    free = values.var() / size
    assert abs(means.mean() - values.mean()) < 4 * np.sqrt(means.var() / 4000)
    assert means.var() < 0.1 * free
    shuffled, _ = Evenly(ONE).arrange(np.random.default_rng(1).permutation(values))
    draw = jax.jit(jax.vmap(lambda k: Evenly(ONE)(shuffled, keys.at(keys.root(0), k), size).mean()))
    assert 0.85 * free < np.asarray(draw(jnp.arange(4000))).var() < 1.1 * free
