"""NumPy transcript of AmIGO (Arbel, Mairal, ICLR 2022), plain linear-system steps; float64, explicit matrices.

Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}.
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v.
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript
from transcript_soba import amax, diff, identity, report
from transcript_values import all_matter, ball, example, hypergradient


def amigo(problem, x0, y0, draws, K, gamma, rho, rho_v, T, proj=identity, proj_y=identity):
    """draws(k): B_y[t] and B_v[t] for t < T, B_F, B_G (in Jxy).  Constant steps; y and v are warm-started."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v = np.zeros_like(y)  # v_0 = 0
    out = []
    for k in range(K):
        s = draws(k)
        for t in range(T):  # T steps on y, fresh batches
            y = proj_y(y - rho * problem.G_y(x, y, s.B_y[t]))
        F_x, F_y = problem.F_x(x, y, s.B_F), problem.F_y(x, y, s.B_F)  # one outer batch, at the new y
        for t in range(T):  # T steps on v, fresh Hessian batches, the same F_y
            v = v - rho_v * (problem.G_yy(x, y, s.B_v[t]) @ v - F_y)
        x = proj(x - gamma * (F_x - problem.G_xy(x, y, s.B_G) @ v))  # the new y and the new v
        out.append(dict(k=k, x=x, y=y, v=v))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def by_hand(p, x, y, v, s, gamma, rho, rho_v, px=identity, py=identity):
    """One step.  grad_y G by finite differences; v as one sum of products of matrices; grad_x F - Jxy v as the
    difference of F(x, y) - v' grad_y G(x, y) in x."""
    for batch in s.B_y:
        y = py(y - rho * transcript._fd(lambda z, b=batch: p.G(x, z, b), y))
    F_y, P = transcript._fd(lambda z: p.F(x, z, s.B_F), y), np.eye(y.size)
    total = np.zeros(y.size)
    for batch in reversed(s.B_v):  # (I - rho_v H_T) ... (I - rho_v H_1) v + rho_v sum of the shorter products F_y
        total = total + rho_v * P @ F_y
        P = P @ (np.eye(y.size) - rho_v * p.G_yy(x, y, batch))
    v = P @ v + total
    return px(x - gamma * transcript._fd(lambda z: p.F(z, y, s.B_F) - v @ p.G_y(z, y, s.B_G), x)), y, v


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 13)
    K, T, n, m = 4, 3, len(fi), len(fo)
    some = lambda: rng.integers(n, size=4)
    D = [NS(B_y=[some() for _ in range(T)], B_v=[some() for _ in range(T)], B_G=some(), B_F=rng.integers(m, size=3))
         for _ in range(K)]  # fmt: skip
    kw = dict(gamma=0.13, rho=0.11, rho_v=0.17)
    run = lambda D=D, T=T, **kw: amigo(p, x, y, D.__getitem__, len(D), T=T, **kw)
    out = all_matter(run, kw, "xyv")
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", "x", "y", "v"}
    projected = run(**kw, proj=ball(0.5), proj_y=ball(0.7))
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"
    for label, records, projections in (("", out, ()), ("projected, ", projected, (ball(0.5), ball(0.7)))):
        z, err = (x, y, np.zeros(y.size)), 0.0
        for s, o in zip(D, records, strict=True):
            hand = by_hand(p, *z, s, 0.13, 0.11, 0.17, *projections)
            err = max(err, diff([o], [dict(zip("xyv", hand, strict=True))]))
            z = (o["x"], o["y"], o["v"])
        report(f"{label}every step by hand", err, 1e-8)

    s = D[0]  # T = 1, k = 0: v_1 = rho_v grad_y F(x_0, y_1), no Hessian
    Y = y - 0.11 * p.G_y(x, y, s.B_y[0])
    V = 0.17 * p.F_y(x, Y, s.B_F)
    first = dict(x=x - 0.13 * (p.F_x(x, Y, s.B_F) - p.G_xy(x, Y, s.B_G) @ V), y=Y, v=V)
    report("T=1, k=0 by hand (v_0 = 0)", diff(run(D[:1], T=1, **kw), [first]), 1e-14)
    same = NS(**{**vars(s), "B_v": [s.B_G] * T})  # one Hessian batch: Algorithm 3 with Q = T - 1, at the new y
    o = run([same], **kw)[0]
    reference = transcript.algorithm3(p, x, o["y"], s.B_F, s.B_G, {q: s.B_G for q in range(1, T)}, 0.17)
    report("k=0, one Hessian batch == algorithm3, Q = T - 1", amax((x - o["x"]) / 0.13, reference), 1e-13)
    for key in vars(s):  # each batch matters
        move = lambda b, key=key: (b + 1) % (m if key == "B_F" else n)
        moved = [move(b) for b in getattr(s, key)] if key in ("B_y", "B_v") else move(getattr(s, key))
        assert diff(run([NS(**{**vars(s), key: moved})], **kw), out[:1]) > 1e-7, f"{key} must matter"


def check_limits():
    """Full batches: T large gives the exact hypergradient; T = 3 warm-started has the same stationary point."""
    p, x, y, fi, fo, _ = example("quadratic", 14)
    every = lambda T: lambda k: NS(B_y=[fi] * T, B_v=[fi] * T, B_G=fi, B_F=fo)
    o = amigo(p, x, y, every(250), 1, 0.1, 0.3, 0.3, 250)[0]
    report("T=250: exact hypergradient", amax((x - o["x"]) / 0.1, hypergradient(p, x)), 1e-9)
    o = amigo(p, x, y, every(3), 1200, 0.05, 0.3, 0.3, 3)[-1]
    report("limit: exact hypergradient is zero", np.max(np.abs(hypergradient(p, o["x"]))), 1e-9)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- limits")
    check_limits()
    print("all checks passed")


if __name__ == "__main__":
    check()
