"""The time per step of the methods of the paper, next to what the machine can do and to eager PyTorch.

python benchmarks/speed.py [--quick] [--out FOLDER]

Hyper-cleaning of MNIST, a linear softmax model, float32, Q = 3, and 20 Newsgroups, sparse, Q = 10. Everything that is
compared is measured in turn in one run, several times over; ratios are medians of the ratios within a turn. Data that
are not here are replaced by random ones of the same shapes, which take the same time.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import bare
import numpy as np

import bilax
from bilax.storage.environment import environment

FEATURES = 785
REST = 0.3  # seconds before each measurement: threads of OpenMP keep a core busy for 0.2 s after their work
ETA = 0.05

METHODS = {  # our method, its eager twin, its bare products, steps per turn of ours and of eager PyTorch
    "MRBO": (
        bilax.MRBO(gamma=100.0, lam=0.1, Q=3, eta=ETA, S=1000),
        ("MRBO", dict(gamma=100.0, lam=0.1, Q=3, eta=ETA, S=1000)),
        bare.mrbo(1000, 3),
        (100, 4),
    ),
    "VRBO": (
        bilax.VRBO(alpha=100.0, beta=0.1, m=20, q=3, Q=3, eta=ETA, S1=1000, S2=500),
        ("VRBO", dict(alpha=100.0, beta=0.1, m=20, q=3, Q=3, eta=ETA, S1=1000, S2=500)),
        bare.vrbo(1000, 500, 20, 3, 3),
        (9, 3),
    ),
    "stocBiO": (
        bilax.StocBiO(alpha=0.1, beta=100.0, D=200, Q=3, eta=ETA, S=1000),
        ("StocBiO", dict(alpha=0.1, beta=100.0, D=200, Q=3, eta=ETA, S=1000)),
        bare.stocbio(1000, 200, 3),
        (6, 2),
    ),
    "SUSTAIN": (
        bilax.SUSTAIN(c=0.01, Q=3, eta=0.001, S=1),
        ("SUSTAIN", dict(c=0.01, Q=3, eta=0.001, S=1)),
        None,
        (3000, 100),
    ),
}
SPARSE = bilax.MRBO(gamma=100.0, lam=10.0, Q=10, eta=0.5, S=100)


def mnist_problem():
    from bilax.experiments.tasks import Task

    try:
        return Task("mnist", 0.1).load(0).problem, "MNIST"
    except (OSError, ValueError):
        return random_cleaning(20_000, 5_000, FEATURES, 10), "random data of the shapes of MNIST"


def random_cleaning(n, trusted, features, classes):
    """Return a hyper-cleaning problem of random images."""
    from bilax.problems import hyper_cleaning
    from bilax.problems.hyper_cleaning import HyperCleaning

    rng = np.random.default_rng(0)

    def images(n):
        return rng.standard_normal((n, features), np.float32), rng.integers(0, classes, n)

    (X, labels), (V, trusted_labels) = images(n), images(trusted)
    return hyper_cleaning(HyperCleaning(X, labels, labels, V, trusted_labels, V[:10], trusted_labels[:10], classes))


def newsgroups_data():
    """Return training and validation documents with their labels, and where they are from."""
    import scipy.sparse

    from bilax.datasets import newsgroups

    try:
        data = newsgroups()
        return (data.features, data.labels, data.validation_features, data.validation_labels), "20 Newsgroups"
    except (OSError, ValueError):
        rng = np.random.default_rng(0)
        X, V = (
            scipy.sparse.random_array((5657, 130_107), density=157 / 130_107, rng=rng, dtype=np.float32, format="csr")
            for _ in range(2)
        )
        labels = [rng.integers(0, 20, 5657) for _ in range(2)]
        return (X, labels[0], V, labels[1]), "random documents of the shapes of 20 Newsgroups"


def newsgroups_problem(data):
    from types import SimpleNamespace

    from bilax.problems import logistic

    X, labels, V, validation_labels = data
    documents = SimpleNamespace(features=X, labels=labels, classes=20)
    documents.validation_features, documents.validation_labels = V, validation_labels
    documents.test_features, documents.test_labels = V[:10], validation_labels[:10]
    return logistic(documents)


def ours(problem, algorithm, steps):
    """Return a function that gives the seconds per step of `bilax.solve`, without compilation."""

    def measure(seed=1):
        result = bilax.solve(problem, algorithm, steps=steps, every=steps, metrics=lambda x, y: {}, seed=seed)
        assert result.status == "done", result.message
        return result.seconds / steps

    measure(0)
    return measure


def bare_products(parts, steps, samples=None):
    run = bare.program(parts, FEATURES, samples)
    run(1)

    def measure():
        tic = time.perf_counter()
        run(steps)
        return (time.perf_counter() - tic) / steps

    return measure


def eager_steps(problem, name, settings, steps):
    import eager

    method = getattr(eager, name)(**settings)
    state = method.step(problem, method.start(problem))

    def measure():
        nonlocal state
        tic = time.perf_counter()
        for _ in range(steps):
            state = method.step(problem, state)
        return (time.perf_counter() - tic) / steps

    return measure


def turns(measures, repeats):
    """Measure each in turn, several times; return the table of times, a row per turn."""

    def rested(measure):
        time.sleep(REST)
        return measure()

    return [{name: rested(measure) for name, measure in measures.items()} for _ in range(repeats)]


def row(times, flops=None):
    """Return medians of times in milliseconds, and of ratios."""
    out = {f"{name}, ms": 1e3 * median(t[name] for t in times) for name in times[0] if name != "peak"}
    if flops is not None:
        out["peak, GFLOP/s"] = median(t["peak"] for t in times) / 1e9
        out["at peak, ms"] = 1e3 * median(flops / t["peak"] for t in times)
        out["of bare products"] = median(t["bilax"] / t["bare products"] for t in times)
        out["of products and gathers"] = median(t["bilax"] / t["products and gathers"] for t in times)
        out["of peak"] = median(t["bilax"] * t["peak"] / flops for t in times)
    if "vectors" in times[0]:
        out["of vectors"] = median(t["bilax"] / t["vectors"] for t in times)
    if "eager PyTorch" in times[0]:
        out["of eager PyTorch"] = median(t["bilax"] / t["eager PyTorch"] for t in times)
    return out


def dense(quick, torch):
    problem, source = mnist_problem()
    peak = bare.peak()
    table = {}
    if torch:
        import eager

        twin = eager.Cleaning(problem)
    for name, (algorithm, (twin_name, settings), parts, (steps, eager_count)) in METHODS.items():
        measures = {"bilax": ours(problem, algorithm, max(3, steps // 10) if quick else steps)}
        if parts is not None:
            few = max(3, steps // 10) if quick else steps
            measures["bare products"] = bare_products(parts, few)
            measures["products and gathers"] = bare_products(parts, few, samples=problem.inner_size)
            measures["peak"] = peak
        else:
            measures["vectors"] = bare.vectors(problem.x0.size + problem.y0.size)
        if torch:
            measures["eager PyTorch"] = eager_steps(twin, twin_name, settings, 1 if quick else eager_count)
        flops = None if parts is None else bare.flops(parts, FEATURES)
        table[f"{name}, {source}"] = row(turns(measures, 3 if quick else 9), flops)
        print(name, {key: round(value, 3) for key, value in table[f"{name}, {source}"].items()}, flush=True)
    return table


def sparse(quick, torch):
    data, source = newsgroups_data()
    problem = newsgroups_problem(data)
    measures = {"bilax": ours(problem, SPARSE, 2 if quick else 10)}
    measures["vectors"] = bare.vectors(problem.x0.size + problem.y0.size)
    if torch:
        import eager

        twin = eager.Documents(*data, classes=20)
        settings = dict(gamma=100.0, lam=10.0, Q=10, eta=0.5, S=100)
        measures["eager PyTorch"] = eager_steps(twin, "MRBO", settings, 1 if quick else 3)
    table = {f"MRBO, {source}": row(turns(measures, 2 if quick else 5))}
    print("MRBO, sparse", {key: round(value, 3) for key, value in table[f"MRBO, {source}"].items()}, flush=True)
    return table


def measured(quick=False, torch=True):
    """Return the whole table: method and data -> times and ratios."""
    return dense(quick, torch) | sparse(quick, torch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--without-torch", action="store_true", help="leave eager PyTorch out")
    parser.add_argument("--out", type=Path, default=Path("bilax-bench"), help="folder for speed.json")
    options = parser.parse_args()
    torch = not options.without_torch
    table = measured(options.quick, torch)
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"table": table, "quick": options.quick, "environment": environment()}
    (options.out / "speed.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
