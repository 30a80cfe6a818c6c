"""NumPy transcript of BOME (Liu, Ye, Wright, Stone, Liu, NeurIPS 2022), without momentum; float64.

Only first derivatives and values of G.
Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, lam (the multiplier of this step).
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript
from transcript_soba import diff, identity, report
from transcript_values import G_x, all_matter, ball, example, hypergradient, solution


def bome(problem, x0, y0, draws, K, gamma, rho, alpha, T, eta, by_value, proj=identity, proj_y=identity):
    """draws(k): B_G, B_F, one of each for the whole step.  by_value: phi = eta q, else phi = eta |gq|^2."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    out = []
    for k in range(K):
        s = draws(k)
        y_T = y
        for _ in range(T):  # T steps from the current y; y_T is then held constant
            y_T = proj_y(y_T - alpha * problem.G_y(x, y_T, s.B_G))
        q = problem.G(x, y, s.B_G) - problem.G(x, y_T, s.B_G)
        gq_x = G_x(problem, x, y, s.B_G) - G_x(problem, x, y_T, s.B_G)
        gq_y = problem.G_y(x, y, s.B_G)
        F_x, F_y = problem.F_x(x, y, s.B_F), problem.F_y(x, y, s.B_F)
        norm2 = gq_x @ gq_x + gq_y @ gq_y  # |gq|^2
        phi = eta * q if by_value else eta * norm2
        lam = max((phi - (F_x @ gq_x + F_y @ gq_y)) / (norm2 + 1e-8), 0.0)
        x = proj(x - gamma * (F_x + lam * gq_x))
        y = proj_y(y - rho * (F_y + lam * gq_y))
        out.append(dict(k=k, x=x, y=y, lam=lam))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def gap(p, x, y, batch, alpha, T, py=identity):
    """q(x, y) = G(x, y) - G(x, y_T(x, y)) and y_T, gradients of G by finite differences."""
    y_T = y
    for _ in range(T):
        y_T = py(y_T - alpha * transcript._fd(lambda z: p.G(x, z, batch), y_T))
    return p.G(x, y, batch) - p.G(x, y_T, batch), y_T


def by_hand(p, x, y, s, gamma, rho, alpha, T, eta, by_value, px=identity, py=identity):
    """One step on z = (x, y), from values alone: d is the vector nearest to gf with <d, gq> >= phi."""
    q, y_T = gap(p, x, y, s.B_G, alpha, T, py)
    split = lambda z: np.split(z, [x.size])
    z = np.concatenate([x, y])
    gq = transcript._fd(lambda z: p.G(*split(z), s.B_G) - p.G(split(z)[0], y_T, s.B_G), z)
    gf = transcript._fd(lambda z: p.F(*split(z), s.B_F), z)
    phi = eta * q if by_value else eta * gq @ gq
    d = gf
    if gf @ gq < phi:  # gf lies outside the half-space: its nearest point of the boundary
        unit = gq / np.linalg.norm(gq)
        d = gf - (gf @ unit) * unit + phi / np.linalg.norm(gq) * unit
    d_x, d_y = split(d)
    return dict(x=px(x - gamma * d_x), y=py(y - rho * d_y), lam=np.linalg.norm(d - gf) / np.linalg.norm(gq))


def check_steps(name, by_value):
    p, x, y, fi, fo, rng = example(name, 17)
    K, T, keys = 4, 3, ("x", "y", "lam")
    D = [NS(B_G=rng.integers(len(fi), size=4), B_F=rng.integers(len(fo), size=3)) for _ in range(K)]
    kw = dict(gamma=0.05, rho=0.07, alpha=0.11, eta=0.4)
    run = lambda **kw: bome(p, x, y, D.__getitem__, K, T=T, by_value=by_value, **kw)
    out = all_matter(run, kw, keys)
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", *keys}
    projected = run(**kw, proj=ball(0.5), proj_y=ball(0.7))
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"
    for label, records, projections in (("", out, ()), ("projected, ", projected, (ball(0.5), ball(0.7)))):
        X, Y, err = x, y, 0.0
        for s, o in zip(D, records, strict=True):
            hand = by_hand(p, X, Y, s, 0.05, 0.07, 0.11, T, 0.4, by_value, *projections)
            err, X, Y = max(err, diff([o], [hand], keys)), o["x"], o["y"]
        report(f"by_value={by_value}: {label}every step by hand", err, 1e-6)
    return {o["lam"] > 0 for o in out + projected}


def check_limits():
    p, x, y, fi, fo, _ = example("quadratic", 17)
    every = lambda k: NS(B_G=fi, B_F=fo)
    for by_value in (True, False):  # y_T = y*(x): with equal steps e, q falls by e phi when lam > 0, else by more
        q, y_T = gap(p, x, y, fi, 0.3, 120)
        e, eta = 1e-5, 0.9
        o = bome(p, x, y, every, 1, e, e, 0.3, 120, eta, by_value)[0]
        assert o["lam"] > 0, "the case to be checked"
        gq = np.concatenate([-p.C.mean(0).T @ (y - y_T), p.G_y(x, y, fi)])
        fall = (q - gap(p, o["x"], o["y"], fi, 0.3, 120)[0]) / (e * eta * (q if by_value else gq @ gq))
        report(f"by_value={by_value}: q falls by e phi (lam = {o['lam']:.2f})", abs(fall - 1), 1e-2)
    # alpha = 0: y_T = y, so q = 0 and gq = (0, grad_y G)
    between = (solution(p, x) + p.t.mean(0)) / 2  # the two levels pull it apart, so lam > 0
    o = bome(p, x, between, every, 1, 0.1, 0.2, 0.0, 4, 0.4, True)[0]
    g, f = p.G_y(x, between, fi), p.F_y(x, between, fo)
    lam = -(f @ g) / (g @ g + 1e-8)
    assert lam > 0
    hand = dict(x=x - 0.1 * p.F_x(x, between, fo), y=between - 0.2 * (f + lam * g), lam=lam)
    report("alpha=0 by hand", diff([o], [hand], ("x", "y", "lam")), 1e-12)
    out = bome(p, x, y, every, 400, 0.05, 0.05, 0.3, 8, 0.5, False)
    assert all(o["lam"] >= 0 for o in out), "lam >= 0"
    start, end = (np.max(np.abs(hypergradient(p, z))) for z in (x, out[-1]["x"]))
    report(f"full batches: hypergradient falls from {start:.2f}", end, 0.1 * start)


def check():
    signs = set()
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        for by_value in (True, False):
            signs |= check_steps(name, by_value)
    assert signs == {True, False}, "lam > 0 and lam = 0 must both be seen"
    print("--- limits")
    check_limits()
    print("all checks passed")


if __name__ == "__main__":
    check()
