"""Data that stay on disk: the same run, bit for bit, in constant memory."""

import dataclasses
import os
import subprocess
import sys
import textwrap
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bilax
from bilax.hyperparameters import names_of
from bilax.running import devices, loop, reading
from bilax.running.checks import first_state
from bilax.sampling import keys, streamed
from bilax.sampling.streamed import Streamed
from bilax.sources import Arrays, Parquet, Records, Source

N, D = 203, 6
rng = np.random.default_rng(0)
INNER = {"X": rng.normal(size=(N, D)), "t": rng.normal(size=N), "i": np.arange(N, dtype=np.int32)}
OUTER = {"X": rng.normal(size=(50, D)), "t": rng.normal(size=50)}


def outer_loss(x, y, batch):
    return jnp.mean((batch["X"] @ y - batch["t"]) ** 2)


def inner_loss(x, y, batch):
    weights = jax.nn.sigmoid(x[batch["i"]])
    return jnp.mean(weights * (batch["X"] @ y - batch["t"]) ** 2) + 0.1 * jnp.sum(y**2)


def problem(inner=INNER, outer=OUTER):
    return bilax.Problem(outer_loss, inner_loss, outer, inner, jnp.zeros(N), jnp.zeros(D))


def method(name):
    algorithm = bilax.ALGORITHMS[name]()
    return dataclasses.replace(algorithm, **dict.fromkeys(names_of("batch_size", algorithm), 8))


def same(one, other):
    assert one.status == other.status == "done"
    assert one.counts == other.counts
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(a, b)


KINDS = ("vrbo", "stocbio", "stable", "saba", "f2sa", "reverse", "aid-cg", "bome")
EACH = ["mrbo", "srba", *(pytest.param(name, marks=pytest.mark.slow) for name in KINDS)]


@pytest.mark.parametrize("name", EACH)
def test_a_run_from_a_source_is_the_run_in_memory_bit_for_bit(name):
    in_memory, from_source = (
        bilax.solve(given, method(name), steps=12) for given in (problem(), problem(Arrays(INNER), Arrays(OUTER)))
    )
    same(in_memory, from_source)
    losses = [[row["inner_loss"] for row in run.history] for run in (in_memory, from_source)]
    np.testing.assert_allclose(*losses, rtol=1e-12)


def mapped(folder, arrays=INNER):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return Arrays({name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in arrays})


def test_files_that_fit_into_memory_are_handed_over_without_a_copy(tmp_path):
    source = mapped(tmp_path)
    given = problem(source)
    shared = given.inner_data.mapped
    assert {name: leaf.unsafe_buffer_pointer() for name, leaf in shared.items()} == {
        name: leaf.ctypes.data for name, leaf in source.arrays.items()
    }
    same(bilax.solve(problem(), method("vrbo"), steps=12), bilax.solve(given, method("vrbo"), steps=12))
    settings = [bilax.SOBA(gamma=gamma, S=8) for gamma in (0.01, 0.1)]
    one, other = (bilax.sweep(p, settings, steps=5, seeds=[0, 1]) for p in (problem(), given))
    np.testing.assert_array_equal(one.state.y, other.state.y)


@pytest.mark.parametrize("what", ["too large", "of another type", "not contiguous", "of the user's own"])
def test_files_that_cannot_be_handed_over_are_read(tmp_path, monkeypatch, what):
    source = mapped(tmp_path)
    if what == "too large":
        monkeypatch.setattr(streamed, "available_bytes", lambda: source.arrays["X"].nbytes)
    if what == "of another type":
        source = mapped(tmp_path, {**INNER, "t": INNER["t"].astype(">f8")})
    if what == "not contiguous":
        source.arrays["X"] = mapped(tmp_path, {**INNER, "X": np.asfortranarray(INNER["X"])}).arrays["X"]
    if what == "of the user's own":
        source = type("Own", (Arrays,), {})(source.arrays)
    given = problem(source)
    assert given.inner_data.mapped is None
    same(bilax.solve(problem(), method("soba"), steps=6), bilax.solve(given, method("soba"), steps=6))


@pytest.mark.slow
def test_without_replacement_and_in_a_sweep():
    same(*(bilax.solve(p, method("soba"), steps=60, sampler="epoch") for p in (problem(), problem(Arrays(INNER)))))
    settings = [bilax.SOBA(gamma=gamma, S=8) for gamma in (0.01, 0.1)]
    one, other = (bilax.sweep(p, settings, steps=5, seeds=[0, 1]) for p in (problem(), problem(Arrays(INNER))))
    np.testing.assert_array_equal(one.state.y, other.state.y)


def test_a_batch_is_not_read_into_an_array_that_somebody_holds():
    source = Arrays(np.arange(100.0))
    held = [source.take(np.array([i, i + 1])) for i in range(40)]
    assert [batch.tolist() for batch in held] == [[i, i + 1] for i in range(40)]
    view, before = held[3].reshape(1, 2), held[3].ctypes.data
    del held
    assert before not in {source.take(np.array([5, 6])).ctypes.data for _ in range(3)}
    assert view.tolist() == [[3, 4]]
    del view
    assert len({source.take(np.array([5, 6])).ctypes.data for _ in range(20)}) == 1
    assert source.take(np.array([-1])).tolist() == [99.0]
    with pytest.raises(IndexError):
        source.take(np.array([100]))


@pytest.mark.parametrize("name", EACH)
def test_a_rehearsal_asks_for_what_the_step_will_ask_for(name):
    """Methods that measure L ask for more; RSVRB and STABLE are not rehearsed."""
    algorithm = method(name)
    if "HINV" in algorithm.about.calls:
        pytest.skip("its derivatives are matrices")
    parts, _ = devices.prepared(problem(Arrays(INNER)), "iid", None, algorithm, (None, None), None)
    state, stream = first_state(problem(), parts, algorithm, None, None), keys.root(0)
    begun = loop.begin(parts, algorithm, stream, state, loop.fresh_memory(algorithm, state))
    expected, read = [], []
    rehearse = reading.rehearsed(parts, algorithm, stream, begun, expected)
    take = parts.inner_data.source.take
    parts.inner_data.source.take = lambda numbers: (read.append(numbers), take(numbers))[1]
    memory = begun.memory
    for k in range(4):
        expected.clear()
        read.clear()
        jax.block_until_ready(rehearse(k))
        state, memory, _ = jax.block_until_ready(
            jax.jit(lambda s, m: loop.move(parts.oracle(), algorithm, keys.at(stream, s.k), s, m))(state, memory)
        )
        asked = sorted(np.ravel(numbers).tolist() for _, numbers in expected)
        assert asked == sorted(np.ravel(numbers).tolist() for numbers in read)


@pytest.mark.slow
def test_samples_are_read_ahead_by_a_thread():
    class Counted(Arrays):
        def __init__(self, arrays, seconds):
            super().__init__(arrays)
            self.seconds, self.readers = seconds, []

        def take(self, indices):
            self.readers.append(threading.current_thread().name)
            time.sleep(self.seconds * len(indices))
            return super().take(indices)

    slow, fast = Counted(INNER, 1e-3), Counted(INNER, 0.0)
    for source in (slow, fast):
        bilax.solve(problem(source), method("soba"), steps=600)
    assert slow.readers.count("bilax-reading") > 100
    assert fast.readers.count("bilax-reading") == 0  # it is not worth it
    assert not [thread for thread in threading.enumerate() if thread.name == "bilax-reading"]


@pytest.mark.slow
def test_records_and_parquet_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = bilax.solve(problem(), method("soba"), steps=5)
    records = [{name: INNER[name][i] for name in INNER} for i in range(N)]
    same(expected, bilax.solve(problem(Records(records)), method("soba"), steps=5))
    columns = {f"x{j}": INNER["X"][:, j] for j in range(D)} | {"t": INNER["t"], "i": INNER["i"]}
    for part, rows in enumerate((slice(0, 90), slice(90, N))):
        pq.write_table(
            pa.table({k: v[rows] for k, v in columns.items()}), tmp_path / f"part{part}.parquet", row_group_size=32
        )
    named = {"X": [f"x{j}" for j in range(D)], "t": "t", "i": "i"}
    assert len(Parquet(tmp_path)) == N
    same(expected, bilax.solve(problem(Parquet(tmp_path, named)), method("soba"), steps=5))
    same(expected, bilax.solve(problem(Parquet(tmp_path, named, kept_bytes=1)), method("soba"), steps=5))
    with pytest.raises(ValueError, match="no column 'height'; it has x0"):
        Parquet(tmp_path, {"X": ["height"]})
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no file whose name ends in"):
        Parquet(tmp_path / "empty")


class Wrong(Source):
    def __init__(self, take):
        self.take_ = take

    def __len__(self):
        return 10

    def take(self, indices):
        return self.take_(indices)


@pytest.mark.parametrize(
    ("take", "words"),
    [
        (lambda i: np.zeros(3), r"of one number it made shape \(3,\)"),
        (lambda i: np.array(["a"] * len(i)), "which JAX has not"),
        (lambda i: {}, "returned no arrays"),
        (lambda i: np.zeros((1, 2)), r"returned an array of shape \(1, 2\); \(2, 2\) was expected"),
    ],
)
def test_a_source_that_gives_no_batches_is_refused(take, words):
    with pytest.raises((TypeError, ValueError), match=words):
        problem(Wrong(take))


def test_more_samples_than_can_be_numbered_are_refused():
    class Endless(Wrong):
        def __len__(self):
            return 3 * 10**9

    with pytest.raises(ValueError, match="3,000,000,000 samples; at most"):
        problem(Endless(lambda i: np.zeros((len(i), 2))))


def test_a_source_that_fails_is_named_with_its_own_error():
    class Breaks(Arrays):
        reads = 0

        def take(self, indices):
            self.reads += 1
            if self.reads > 10:
                raise OSError("the disk is gone")
            return super().take(indices)

    with pytest.raises(RuntimeError, match="inner_data could not be read: OSError: the disk is gone") as caught:
        bilax.solve(problem(Breaks(INNER)), method("soba"), steps=200)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("sampler", ["full", "blocks"])
def test_samplers_that_need_all_data_in_memory_are_refused(sampler):
    with pytest.raises(ValueError, match="sampler='iid'"):
        bilax.solve(problem(Arrays(INNER)), method("soba"), steps=1, sampler=sampler)


def test_a_mesh_is_refused():
    with pytest.raises(ValueError, match="inner_data is a source"):
        bilax.solve(problem(Arrays(INNER)), method("soba"), steps=1, mesh=jax.make_mesh((1,), ("data",)))


def test_a_run_goes_on_from_a_folder_and_not_with_other_samples(tmp_path):
    source = Arrays(INNER)
    bilax.solve(problem(source), method("soba"), steps=5, checkpoint_dir=tmp_path)
    again = bilax.solve(problem(source), method("soba"), steps=10, checkpoint_dir=tmp_path)
    same(bilax.solve(problem(), method("soba"), steps=10), again)
    other = Arrays({**INNER, "t": INNER["t"] + 1})
    with pytest.raises(ValueError, match="is of another run"):
        bilax.solve(problem(other), method("soba"), steps=10, checkpoint_dir=tmp_path)


def test_what_is_read_is_of_the_types_of_jax():
    with jax.enable_x64(False):
        data = Streamed("inner_data", Arrays({"x": np.arange(4.0), "n": np.arange(4)}))
        taken = data.take(jnp.array([1]))
    assert taken["x"].dtype == jnp.float32
    assert taken["n"].dtype == jnp.int32


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="tells its memory in another way")
@pytest.mark.parametrize("share", [0.0, 0.5])  # read by calls; handed over as files in memory
def test_data_of_ten_times_the_memory_that_is_allowed(tmp_path, share):
    program = textwrap.dedent(f"""
        import re, resource
        import jax, jax.numpy as jnp, numpy as np
        import bilax
        from bilax.sampling import streamed

        streamed.SHARE = {share}
        n, d, allowed = 1_400_000, 784, 400 * 2**20
        X = np.memmap({str(tmp_path / "X.bin")!r}, np.float32, "w+", shape=(n, d))  # a file of holes
        X = np.memmap({str(tmp_path / "X.bin")!r}, np.float32, "r", shape=(n, d))
        assert X.nbytes > 10 * allowed
        source = bilax.sources.Arrays({{"X": X, "i": np.arange(n, dtype=np.int32)}})
        small = {{"X": np.ones((10, d), np.float32), "i": np.arange(10, dtype=np.int32)}}

        def loss(x, y, batch):
            return jnp.mean(jax.nn.sigmoid(x[batch["i"]]) * (batch["X"] @ y - 1) ** 2) + jnp.sum(y**2)

        problem = bilax.Problem(loss, loss, small, source, jnp.zeros(n), jnp.zeros(d))
        assert (problem.inner_data.mapped is None) == ({share} == 0)
        bilax.solve(problem, bilax.SOBA(S=1000), steps=2)  # what compiling takes is not meant
        used = int(re.search(r"VmData:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, used + allowed))
        print(bilax.solve(problem, bilax.SOBA(S=1000), steps=100).status)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr[-2000:]
