"""What the transcripts after transcript_soba.py share: grad_x G of the two twin problems, and helpers of their checks.

G_x is exact; it is checked against finite differences of problem.G.  NumPy, float64.
"""

import numpy as np
import transcript
from transcript_soba import amax, diff, report


def G_x(problem, x, y, batch):
    """grad_x G(x, y; batch): the mean over the batch, whose entries may repeat."""
    if isinstance(problem, transcript.Quadratic):  # G = 1/2 y'A_i y - y'C_i x - b_i'y
        return np.mean([-problem.C[i].T @ y for i in batch], axis=0)
    if isinstance(problem, transcript.HyperCleaning):  # G = sigmoid(x_i) CE_i(y) + C |y|^2: only entry i moves
        features, labels = problem.inner
        g = np.zeros_like(x)
        for i in batch:
            s = problem.sigmoid(x[i])
            g[i] += s * (1 - s) * problem.CE(y, features[i], labels[i]) / len(batch)
        return g
    raise TypeError(f"no grad_x G for {type(problem).__name__}")


# ---------------------------------------------------------------- helpers of the checks
def example(name, seed):
    """A twin problem, a start, all inner and all outer samples, and the generator."""
    rng = np.random.default_rng(seed)
    p, x, y, _, full = transcript._example(name, rng)
    return p, x, y, full(0).B_G, full(0).B_F, rng


def ball(R):
    """Projection on the ball of radius R."""
    return lambda z: z / max(1.0, np.linalg.norm(z) / R)


def solution(p, x):
    """y*(x) of the quadratic, all samples."""
    return np.linalg.solve(p.A.mean(0), p.C.mean(0) @ x + p.b.mean(0))


def hypergradient(p, x):
    """d/dx F(x, y*(x)) of the quadratic, all samples, in closed form."""
    M = np.linalg.solve(p.A.mean(0), p.C.mean(0))  # dy*/dx
    return p.delta * x + p.c.mean(0) + M.T @ (solution(p, x) - p.t.mean(0))


def all_matter(run, numbers, keys):
    """Each of these arguments of run, changed by 0.01, changes the records."""
    out = run(**numbers)
    for name in numbers:
        assert diff(out, run(**{**numbers, name: numbers[name] + 0.01}), keys) > 1e-7, f"{name} must matter"
    return out


def check():
    for name in ("quadratic", "hypercleaning"):
        p, x, y, fi, fo, rng = example(name, 4)
        for label, batch in (("all", fi), ("repeated", np.array([2, 2, 0, 6, 3])), ("one", np.array([5]))):
            reference = transcript._fd(lambda z, b=batch: p.G(z, y, b), x)
            report(f"{name}: G_x == difference of G, {label}", amax(G_x(p, x, y, batch), reference), 1e-8)
            mixed = transcript._fd(lambda z, b=batch: G_x(p, x, z, b), y).T  # d/dy of G_x
            report(f"{name}: d/dy G_x == G_xy, {label}", amax(mixed, p.G_xy(x, y, batch)), 1e-8)
        if name == "quadratic":
            reference = transcript._fd(lambda z, p=p, fo=fo: p.F(z, solution(p, z), fo), x)
            report("quadratic: hypergradient == d/dx F(x, y*(x))", amax(hypergradient(p, x), reference), 1e-8)
    print("all checks passed")


if __name__ == "__main__":
    check()
