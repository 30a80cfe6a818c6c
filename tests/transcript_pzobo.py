"""NumPy transcript of PZOBO-S (Sow, Ji, Liang, NeurIPS 2022); float64.

The response of N inner steps to x is measured by differences along the directions u; only first derivatives.
Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}.
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript
from transcript_soba import amax, diff, identity, report
from transcript_values import all_matter, ball, example, hypergradient, solution


def chain(problem, z, y, batches, N, beta, proj_y):
    """y_N(z): N inner steps at the outer point z, from y."""
    for t in range(N):
        y = proj_y(y - beta * problem.G_y(z, y, batches[t]))
    return y


def pzobo(problem, x0, y0, draws, K, gamma, beta, mu, N, proj=identity, proj_y=identity):
    """draws(k): B_y[t] for t < N (the same in all chains), B_F, u (R x dim x).  x + mu u is not projected."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    out = []
    for k in range(K):
        s = draws(k)
        y_N = chain(problem, x, y, s.B_y, N, beta, proj_y)
        F_x, F_y = problem.F_x(x, y_N, s.B_F), problem.F_y(x, y_N, s.B_F)
        total = np.zeros_like(x)
        for u in s.u:
            delta = (chain(problem, x + mu * u, y, s.B_y, N, beta, proj_y) - y_N) / mu  # same start, same batches
            total = total + (delta @ F_y) * u
        x = proj(x - gamma * (F_x + total / len(s.u)))
        y = y_N
        out.append(dict(k=k, x=x, y=y))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def by_hand(p, x, y, s, gamma, beta, mu, px=identity, py=identity):
    """One step, gradients by finite differences; the mean of u u' over the directions as one matrix."""
    def end(z):
        w = y
        for batch in s.B_y:
            w = py(w - beta * transcript._fd(lambda a, b=batch: p.G(z, a, b), w))
        return w

    Y = end(x)
    responses = np.array([end(x + mu * u) - Y for u in s.u]) / mu  # R x dim y
    F_x, F_y = transcript._fd(lambda z: p.F(z, Y, s.B_F), x), transcript._fd(lambda z: p.F(x, z, s.B_F), Y)
    return dict(x=px(x - gamma * (F_x + s.u.T @ responses @ F_y / s.u.shape[0])), y=Y)


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 19)
    n, m, K, N, R, dx = len(fi), len(fo), 3, 4, 2, x.size
    D = [NS(B_y=[rng.integers(n, size=4) for _ in range(N)], B_F=rng.integers(m, size=3), u=rng.normal(size=(R, dx)))
         for _ in range(K)]  # fmt: skip
    kw = dict(gamma=0.13, beta=0.15, mu=0.1)
    run = lambda **kw: pzobo(p, x, y, D.__getitem__, K, N=N, **kw)
    if name == "quadratic":  # the chains are affine
        out = all_matter(lambda **numbers: run(**numbers, mu=0.1), dict(gamma=0.13, beta=0.15), "xy")
        report("mu does not matter: the chains are affine", diff(out, run(**{**kw, "mu": 1.0}), "xy"), 1e-12)
    else:
        out = all_matter(run, kw, "xy")
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", "x", "y"}
    projected = run(**kw, proj=ball(0.5), proj_y=ball(0.7))
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"
    for label, records, projections in (("", out, ()), ("projected, ", projected, (ball(0.5), ball(0.7)))):
        X, Y, err = x, y, 0.0
        for s, o in zip(D, records, strict=True):
            hand = by_hand(p, X, Y, s, 0.13, 0.15, 0.1, *projections)
            err, X, Y = max(err, diff([o], [hand], "xy")), o["x"], o["y"]
        report(f"{label}every step by hand", err, 1e-7)

    # directions sqrt(d) e_i: the derivative of F(z, y_N(z)); exact on the quadratic, up to mu elsewhere
    s = NS(B_y=D[0].B_y, B_F=D[0].B_F, u=np.sqrt(dx) * np.eye(dx))
    value = lambda z: p.F(z, chain(p, z, y, s.B_y, N, 0.15, identity), s.B_F)
    for mu, tol in ((0.1, 1e-8),) if name == "quadratic" else ((1e-4, 1e-4), (1e-6, 1e-6)):
        o = pzobo(p, x, y, lambda k: s, 1, 1.0, 0.15, mu, N)[0]
        report(f"mu={mu:g}: sqrt(d) e_i == d/dx F(x, y_N(x))", amax(x - o["x"], transcript._fd(value, x)), tol)
    # random directions: unbiased on the quadratic, so the mean over many is near the same derivative
    if name == "quadratic":
        s.u = rng.normal(size=(500, dx))
        o = pzobo(p, x, y, lambda k: s, 1, 1.0, 0.15, 0.1, N)[0]
        reference = transcript._fd(value, x)
        report("500 normal directions", amax(x - o["x"], reference) / np.linalg.norm(reference), 0.15)


def check_limits():
    """Full batches, many inner steps, directions sqrt(d) e_i: the exact hypergradient, and gradient descent on it."""
    p, x, y, fi, fo, _ = example("quadratic", 20)
    s = NS(B_y=[fi] * 150, B_F=fo, u=np.sqrt(x.size) * np.eye(x.size))
    o = pzobo(p, x, y, lambda k: s, 1, 0.1, 0.3, 0.1, 150)[0]
    report("N=150: exact hypergradient", amax((x - o["x"]) / 0.1, hypergradient(p, x)), 1e-9)
    s = NS(B_y=[fi] * 3, B_F=fo, u=s.u)  # N = 3, warm start: y -> y*(x), but the response of y_N to x is damped
    o = pzobo(p, x, y, lambda k: s, 400, 0.15, 0.3, 0.1, 3)[-1]
    A, C = p.A.mean(0), p.C.mean(0)
    damped = (np.eye(y.size) - np.linalg.matrix_power(np.eye(y.size) - 0.3 * A, 3)) @ np.linalg.solve(A, C)
    report("N=3, limit: y == y*(x)", amax(o["y"], solution(p, o["x"])), 1e-6)
    left = p.F_x(o["x"], o["y"], fo) + damped.T @ p.F_y(o["x"], o["y"], fo)
    report("N=3, limit: F_x + (dy_N/dx)' F_y is zero", np.max(np.abs(left)), 1e-6)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- limits")
    check_limits()
    print("all checks passed")


if __name__ == "__main__":
    check()
