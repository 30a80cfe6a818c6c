"""The paper's experiments: their settings are the paper's, and each runs end to end, small, offline, on the digits."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from real_data import needs_data

from bilax import settings
from bilax.experiments.jobs import FOREVER, Job, run_all, run_job
from bilax.experiments.tasks import Task
from bilax.paper import figures, pages
from bilax.paper.figures import EXPERIMENTS, FAMILIES, MNIST, NEWS_100, NEWS_1000
from bilax.report import write
from bilax.results import load
from bilax.storage.runs import Record, manifests, read_rows


def test_the_settings_are_those_of_the_paper():
    """Appendix B: Q = 3, eta = 0.5, batches of 1000, VRBO 500 and q = 3, inner loops of 200 and 20, steps of 0.1."""
    mrbo, vrbo, stocbio, bsa, sustain, stable, aid, reverse = (
        MNIST.algorithm(name, "paper")
        for name in ("MRBO", "VRBO", "stocBiO", "BSA", "SUSTAIN", "STABLE", "AID-FP", "reverse")
    )
    for name in MNIST.recipes:
        method = MNIST.algorithm(name, "paper")
        assert getattr(method, "Q", 3) == 3
        assert getattr(method, "eta", 0.5) == 0.5
    mstsa = MNIST.algorithm("MSTSA", "paper")
    assert (mstsa.alpha, mstsa.beta, mstsa.S) == (0.1, 0.1, 1)
    assert (mrbo.gamma, mrbo.lam, mrbo.S) == (0.1, 0.1, 1000)
    assert mrbo.d == pytest.approx(mrbo.m ** (1 / 3))  # eta_0 = 1: the first steps are those stated
    assert (vrbo.alpha, vrbo.beta, vrbo.m, vrbo.q, vrbo.S1, vrbo.S2) == (0.1, 0.1, 20, 3, 1000, 500)
    assert (stocbio.alpha, stocbio.beta, stocbio.D, stocbio.S) == (0.1, 0.1, 200, 1000)
    assert (bsa.alpha, bsa.beta, bsa.T, bsa.S) == (0.1, 0.1, 200, 1)
    alpha_0 = sustain.c / sustain.w ** (1 / 3)
    assert (alpha_0, alpha_0 * sustain.c_b, sustain.S) == (pytest.approx(0.1), pytest.approx(0.03), 1)
    assert (stable.alpha, stable.beta, stable.S) == (1e-10, 0.01, 1)
    assert (aid.alpha, aid.beta, aid.T, aid.N) == (0.1, 0.1, 200, 3)
    assert (reverse.alpha, reverse.beta, reverse.T, reverse.K) == (0.1, 0.1, 200, 3)
    assert all(MNIST.algorithm(f"VRBO-{m}", "paper").m == m for m in (1, 10, 20, 50, 100))
    for family, S in ((NEWS_100, 100), (NEWS_1000, 1000)):
        for name in set(family.recipes) - set(figures.GUESTS):
            method = family.algorithm(name, "paper")
            assert (method.Q, method.eta) == (10, 0.5)
            assert getattr(method, "S", None) == S or (method.S1, method.S2) == (S, S)
        stocbio, vrbo, mrbod = (family.algorithm(n, "paper") for n in ("stocBiO", "VRBO", "MRBO(D)"))
        assert (stocbio.alpha, stocbio.beta, stocbio.D) == (100, 100, 10)
        assert (vrbo.alpha, vrbo.beta, vrbo.m, vrbo.q) == (30, 30, 3, 2)
        assert (mrbod.gamma, mrbod.lam, mrbod.N) == (30, 30, 10)
        mrbo, mstsa, sustain = (family.algorithm(n, "paper") for n in ("MRBO", "MSTSA", "SUSTAIN"))
        assert (mrbo.gamma, mrbo.lam, mstsa.alpha, mstsa.beta) == (30, 30, 30, 30)
        alpha_0 = sustain.c / sustain.w ** (1 / 3)
        assert (alpha_0, alpha_0 * sustain.c_b) == (pytest.approx(30), pytest.approx(30))


def test_momentum_starts_alike_and_eta_is_measured_in_the_tuned_variant():
    for family in FAMILIES:
        for name in set(family.recipes) - set(figures.GUESTS):
            tuned, paper = (family.algorithm(name, variant) for variant in ("tuned", "paper"))
            if hasattr(tuned, "eta"):
                assert repr(tuned.eta) == "'auto'"
            for method in (tuned, paper):
                if type(method).__name__ in ("MRBO", "MRBOD"):
                    assert method.c1 == method.c2 == 0.5
                if type(method).__name__ == "SUSTAIN":
                    assert method.c_f * (method.c / 10) ** 2 == pytest.approx(0.5, rel=1e-4)
                if type(method).__name__ == "MSTSA":
                    assert method.c * method.alpha == pytest.approx(0.5, rel=1e-4)


def test_the_record_of_the_search_is_of_equal_effort_and_names_the_winner():
    for family in figures.SEARCHED:
        methods = [name for name in family.recipes if not name.startswith("VRBO-") and name not in figures.UNTUNED]
        found = figures.tuned()[family.search]
        assert set(methods) - set(figures.GUESTS) <= set(found) <= set(methods)
        for entry in found.values():
            trials = entry["trials"]
            assert len(trials) == 25
            furthest = [trial for trial in trials if trial[2] == entry["steps"]]
            assert len(furthest) == 2
            best = min(furthest, key=lambda trial: trial[3])
            assert (entry["outer"], entry["inner"]) == (best[0], best[1])


@pytest.fixture
def folder(tmp_path):
    return tmp_path


# All in the settings of the paper; the tuned ones differ in numbers and in eta=auto only, so two stand for all.
@pytest.mark.parametrize(
    ("variant", "names"),
    [
        pytest.param("tuned", ("fig6a", "fig6b"), marks=pytest.mark.slow),
        pytest.param("paper", tuple(EXPERIMENTS), marks=pytest.mark.slow),
        pytest.param("tuned", ("fig1c",), marks=pytest.mark.slow),
    ],
)
def test_every_experiment_runs_end_to_end_on_digits(folder, variant, names):
    jobs = [
        job
        for name in names
        for job in figures.jobs(EXPERIMENTS[name], variant, [0], 0.01, pages.stand_in(EXPERIMENTS[name]))
    ]
    assert run_all(jobs, folder) == {"timeout"}
    page = pages.page(folder)
    mine = [figure for figure in page.figures if figure.name.endswith(f"-{variant}-digits")]
    assert [figure.name.split("-")[0] for figure in mine] == list(names)
    for figure in mine:
        assert set(figure.table["method"]) == {method.name for method in figure.methods}
        assert figure.table[figure.y].notna().all()
        assert (figure.table.groupby("method")["k"].max() >= 1).all()
    assert {v.verdict for v in page.verdicts if v.variant == f"{variant}, on digits"} == {
        "undecided"
    }  # one seed says nothing
    assert bool(page.galleries) == any(EXPERIMENTS[name].task.cleans for name in names)
    table = load(folder)
    for name in ("train_loss", "val_loss", "test_loss", "test_accuracy", "norm_v", "residual", "samples", "F", "HV"):
        assert name in table
    done = {path: facts["started"] for path, facts in manifests(folder).items()}
    assert run_all(jobs, folder) == {"timeout"}
    assert {path: facts["started"] for path, facts in manifests(folder).items()} == done  # nothing ran twice


def test_a_run_is_repeated_when_asked_or_when_it_was_not_finished(tmp_path):
    job = Job(Task("digits", 0.3), settings.parse("mrbo[S=10,eta=0.05]"), steps=20)
    path = run_job(job, tmp_path)
    first = manifests(path)[path]
    assert (first["status"], first["method"], first["variant"]) == ("done", "mrbo", "own")
    setting = settings.write(job.algorithm)
    assert first["setting"] == setting
    assert first["command"] == f'bilax run "{setting}" --problem digits --noise 0.3 --steps 20 --seed 0'
    rows = read_rows(path)
    (path / "manifest.json").write_text((path / "manifest.json").read_text().replace('"done"', '"interrupted"'))
    run_job(job, tmp_path)
    again = manifests(path)[path]
    assert again["status"] == "done"
    for one, two in zip(rows, read_rows(path), strict=True):
        assert {n: v for n, v in one.items() if n != "seconds"} == {n: v for n, v in two.items() if n != "seconds"}
    with np.load(path / "arrays.npz") as arrays:
        assert arrays["weights"].shape == (1000,)
        assert arrays["images"].shape == (40, 8, 8)
        assert (np.diff(arrays["weights"][arrays["least"]]) >= 0).all()
    page = pages.page(tmp_path)
    assert [figure.name for figure in page.figures] == ["runs-digits-p0_3"]
    assert write(page, tmp_path).read_text().count("mrbo[") > 0


def test_a_run_that_fails_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("bilax.numerics.memory.available_bytes", lambda: 1000)
    path = run_job(Job(Task("digits", 0.3), settings.parse("stable[alpha=0.1]"), steps=2), tmp_path)
    assert manifests(path)[path]["status"] == "failed"
    assert "STABLE keeps dense matrices" in manifests(path)[path]["message"]


def finished(folder, **facts):
    """A stored run, made up."""
    base = {"task": "digits-p0.1", "title": "digits", "method": "x", "variant": "paper", "seed": 0, "command": "bilax run",
            "sampler": "iid", "steps": FOREVER, "budget": 1.0}  # fmt: skip
    name = "-".join(str(facts.get(key, "")) for key in ("method", "seed", "budget", "status"))
    record = Record(folder / name, base | facts).begin()
    for k in range(2):
        record.row({"k": k, "seconds": float(k), "samples": float(k), "train_loss": 2.0 - k})
    record.end(status=facts.get("status", "timeout"), message="")


def fig1c(folder, **facts):
    for method in EXPERIMENTS["fig1c"].methods:
        finished(folder, method=method, **written(MNIST.algorithm(method, "paper")), **facts)


def written(algorithm):
    names = {"algorithm": settings.name_of(algorithm), "setting": settings.write(algorithm)}
    return names | {"parameters": settings.parameters(algorithm)}


def test_a_figure_has_runs_of_one_budget_that_came_to_an_end(tmp_path):
    fig1c(tmp_path, budget=1.0)
    mrbo = written(MNIST.algorithm("MRBO", "paper"))
    finished(tmp_path, method="MRBO", **mrbo, budget=9.0)
    finished(tmp_path, method="MRBO", **mrbo, budget=1.0, seed=1, status="interrupted")
    finished(tmp_path, method="mrbo", **mrbo, budget=None, steps=50)
    page = pages.page(tmp_path)
    figure = next(figure for figure in page.figures if figure.name == "fig1c-paper-digits")
    assert "; 1 s per run" in figure.caption
    assert len(figure.table) == 2 * len(figure.methods)
    own = next(figure for figure in page.figures if figure.name.startswith("runs-"))
    assert len(own.methods) == 3  # the other budget, the interrupted one, the one of 50 steps


def test_a_method_that_failed_leaves_the_others_their_figure(tmp_path):
    fig1c(tmp_path)
    stable = next(path for path in tmp_path.iterdir() if "STABLE" in path.name)
    (stable / "rows.jsonl").unlink()
    (stable / "manifest.json").write_text((stable / "manifest.json").read_text().replace('"timeout"', '"failed"'))
    page = pages.page(tmp_path)
    figure = next(figure for figure in page.figures if figure.name == "fig1c-paper-digits")
    assert next(method for method in figure.methods if method.name == "STABLE").note == "1 of 1 runs failed"
    assert any("STABLE no runs" in verdict.numbers for verdict in page.verdicts)


def test_tasks():
    assert Task("mnist", 0.15).title == "MNIST, 15 % wrong labels"
    made = Task("digits", 0.2).load(1)
    kept = made.keep(SimpleNamespace(x=np.zeros(1000)))
    assert (kept["given"] != kept["true"]).sum() == 200
    assert made.problem.y0.std() == pytest.approx(0.2**0.5, rel=0.05)
    assert not made.problem.x0.any()
    with pytest.raises(ValueError, match=r"no problem is called 'mnits'\. Did you mean mnist\?"):
        Task("mnits")
    with pytest.raises(ValueError, match="digits needs a noise rate"):
        Task("digits")
    with pytest.raises(ValueError, match="newsgroups has no wrong labels to find"):
        Task("newsgroups", 0.1)


@pytest.mark.slow
@needs_data
def test_a_short_run_on_real_mnist(tmp_path):
    made = Task("mnist", 0.1).load(0)
    assert (made.problem.inner_size, made.problem.outer_size, made.problem.y0.shape) == (20_000, 5_000, (10, 785))
    path = run_job(Job(Task("mnist", 0.1), MNIST.algorithm("MRBO", "paper"), budget=0.3), tmp_path)
    rows = read_rows(path)
    assert 17 < rows[0]["train_loss"] < 24  # the paper's figures begin near 20
    assert rows[-1]["train_loss"] < rows[0]["train_loss"]
    assert "too large for the Neumann series" in manifests(path)[path]["warnings"][0]


NEWSGROUPS = """
import re, sys
from pathlib import Path
from bilax.experiments.jobs import Job, run_job
from bilax.experiments.tasks import Task
from bilax.paper.figures import NEWS_100

problem = Task("newsgroups").load(0).problem
assert (problem.inner_size, problem.outer_size, problem.y0.shape) == (5657, 5657, (130_107, 20))
run_job(Job(Task("newsgroups"), NEWS_100.algorithm("MRBO", "paper"), steps=2), sys.argv[1])
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@needs_data
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_a_short_run_on_real_newsgroups_stays_small(tmp_path):
    """In a process of its own. Not by getrusage: its peak begins with that of the process that started this one."""
    run = subprocess.run([sys.executable, "-c", NEWSGROUPS, str(tmp_path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = read_rows(next(tmp_path.iterdir()))
    assert rows[0]["test_loss"] == pytest.approx(np.log(20), rel=1e-4)
    assert rows[-1]["val_loss"] < rows[0]["val_loss"]
    assert int(run.stdout) * 1024 < 2 * 2**30


def test_guests_are_in_tuned_figures_of_all_methods_and_in_no_verdict(tmp_path):
    assert EXPERIMENTS["fig1a"].guests("tuned") == ("SOBA", "SRBA")
    assert EXPERIMENTS["fig1a"].guests("paper") == EXPERIMENTS["fig1c"].guests("tuned") == ()
    for method in (*EXPERIMENTS["fig1a"].methods, "SOBA"):
        sampler = figures.sampler_of(method)
        finished(tmp_path, method=method, **written(MNIST.algorithm(method, "tuned")), sampler=sampler)
    page = pages.page(tmp_path)
    figure = next(figure for figure in page.figures if figure.name == "fig1a-tuned-digits")
    assert [method.name for method in figure.methods][-1] == "SOBA"  # SRBA has no run, and is left out
    assert not any("SOBA" in verdict.numbers for verdict in page.verdicts)
