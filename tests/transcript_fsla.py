"""NumPy transcript of FSLA (Li, Gu, Huang, AAAI 2022); float64, explicit matrices.

Sequential: y, then v at the new y, then x along a STORM average h at the new y and v; five batches.
Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}, h = h_{k+1} (the direction of this
step), x_prev = x_k (the x this step started from).
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v.
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript
from transcript_soba import amax, diff, identity, report
from transcript_values import all_matter, ball, example, hypergradient, solution

KEYS = ("x", "y", "v", "h", "x_prev")


def fsla(problem, x0, y0, draws, K, gamma, rho, rho_v, theta, proj=identity, proj_y=identity):
    """draws(k): B1 (grad_y G), B2 (Hyy), B3 (grad_y F), B4 (Jxy), B5 (grad_x F)."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v = np.zeros_like(y)  # v_0 = 0
    out = []
    for k in range(K):
        s = draws(k)
        decay = 1 / np.sqrt(k + 1)
        theta_k = min(1.0, theta * decay)
        y_new = proj_y(y - rho * decay * problem.G_y(x, y, s.B1))  # y' = y_{k+1}
        D_v = problem.G_yy(x, y_new, s.B2) @ v - problem.F_y(x, y_new, s.B3)
        v_new = v - rho_v * decay * D_v  # v' = v_{k+1}
        h_new = problem.F_x(x, y_new, s.B5) - problem.G_xy(x, y_new, s.B4) @ v_new  # s
        if k > 0:  # s_old: at the point of the previous step's s, (x_{k-1}, y_k, v_k), on the new batches
            s_old = problem.F_x(x_prev, y, s.B5) - problem.G_xy(x_prev, y, s.B4) @ v
            h_new = h_new + (1 - theta_k) * (h - s_old)  # h = s + (1 - theta_k) (h - s_old)
        x_prev, y, v, h = x, y_new, v_new, h_new
        x = proj(x - gamma * decay * h)  # x_{k+1}
        out.append(dict(k=k, x=x, y=y, v=v, h=h, x_prev=x_prev))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def slope(p, x, y, v, s):
    """grad_x F(x, y; B5) - Jxy(x, y; B4) v, as the difference of F - v' grad_y G in x."""
    return transcript._fd(lambda z: p.F(z, y, s.B5) - v @ p.G_y(z, y, s.B4), x)


def by_hand(p, x, y, D, gamma, rho, rho_v, theta, px=identity, py=identity):
    """All x_k, y_k, v_k are kept.  h is the sum over i <= k of (1-theta_{i+1}) ... (1-theta_k) times
    slope_i at step i's point, minus (1-theta_i) slope_i at step i-1's point; no recursion."""
    X, Y, V, out = [x], [y], [np.zeros(y.size)], []
    th = [min(1.0, theta * (k + 1) ** -0.5) for k in range(len(D))]
    for k, s in enumerate(D):
        d = (k + 1) ** -0.5
        Y.append(py(Y[k] - rho * d * transcript._fd(lambda z, k=k, s=s: p.G(X[k], z, s.B1), Y[k])))
        lagrangian = lambda z, k=k, s=s: p.F(X[k], z, s.B3) - V[k] @ p.G_y(X[k], z, s.B2)
        V.append(V[k] + rho_v * d * transcript._fd(lagrangian, Y[k + 1]))
        h = np.zeros(x.size)
        for i in range(k + 1):
            term = slope(p, X[i], Y[i + 1], V[i + 1], D[i])
            if i > 0:
                term = term - (1 - th[i]) * slope(p, X[i - 1], Y[i], V[i], D[i])
            h = h + np.prod([1 - th[e] for e in range(i + 1, k + 1)]) * term
        X.append(px(X[k] - gamma * d * h))
        out.append(dict(x=X[k + 1], y=Y[k + 1], v=V[k + 1], h=h, x_prev=X[k]))
    return out


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 15)
    n, m, K = len(fi), len(fo), 5
    size = dict(B1=n, B2=n, B3=m, B4=n, B5=m)
    D = [NS(**{key: rng.integers(many, size=4) for key, many in size.items()}) for _ in range(K)]
    kw = dict(gamma=0.13, rho=0.21, rho_v=0.34, theta=0.6)
    run = lambda D=D, **kw: fsla(p, x, y, D.__getitem__, len(D), **kw)
    out = all_matter(run, kw, KEYS)
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", *KEYS}
    report("whole run by hand", diff(out, by_hand(p, x, y, D, **kw), KEYS), 1e-8)
    projected = run(**kw, proj=ball(0.5), proj_y=ball(0.4))
    hand = by_hand(p, x, y, D, **kw, px=ball(0.5), py=ball(0.4))
    report("projected run by hand", diff(projected, hand, KEYS), 1e-8)
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"

    s = D[0]  # k = 0: v_0 = 0, so v_1 = rho_v grad_y F at the new y; h_1 = s
    Y = y - 0.21 * p.G_y(x, y, s.B1)
    V = 0.34 * p.F_y(x, Y, s.B3)
    h = p.F_x(x, Y, s.B5) - p.G_xy(x, Y, s.B4) @ V
    report("k=0 by hand", diff(out[:1], [dict(x=x - 0.13 * h, y=Y, v=V, h=h, x_prev=x)], KEYS), 1e-14)
    for key, many in size.items():  # each batch matters (grad_x F of hyper-cleaning is zero)
        moved = [NS(**{**vars(s), key: (getattr(s, key) + 1) % many}) for s in D]
        assert diff(out, run(moved, **kw), KEYS) > 1e-7 or (name, key) == ("hypercleaning", "B5"), f"{key} must matter"

    # theta_k capped at 1: h = s, no memory; all steps then depend on their own batches alone
    plain, err = run(**{**kw, "theta": 9.0}), 0.0
    for o, s in zip(plain, D, strict=True):
        now = p.F_x(o["x_prev"], o["y"], s.B5) - p.G_xy(o["x_prev"], o["y"], s.B4) @ o["v"]
        err = max(err, amax(o["h"], now))
    report("theta_k capped at 1: h == s", err, 1e-15)

    # full batches: s_old is the previous s, so h is the exact direction for every theta, 0 too
    every = NS(B1=fi, B2=fi, B3=fo, B4=fi, B5=fo)
    for theta in (0.0, 0.6):
        err = 0.0
        for o in run([every] * 20, **{**kw, "theta": theta}):
            now = p.F_x(o["x_prev"], o["y"], fo) - p.G_xy(o["x_prev"], o["y"], fi) @ o["v"]
            err = max(err, amax(o["h"], now))
        report(f"full batches, theta={theta}: h == s", err, 1e-13)


def check_stationary():
    p, x, y, fi, fo, _ = example("quadratic", 16)
    every = NS(B1=fi, B2=fi, B3=fo, B4=fi, B5=fo)
    o = fsla(p, x, y, lambda k: every, 1500, 0.6, 0.5, 0.5, 0.5)[-1]
    assert np.max(np.abs(hypergradient(p, x))) > 0.1, "the start is not stationary"
    report("limit: exact hypergradient", np.max(np.abs(hypergradient(p, o["x"]))), 1e-5)
    report("limit: y == y*(x)", amax(o["y"], solution(p, o["x"])), 1e-5)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- all variables")
    check_stationary()
    print("all checks passed")


if __name__ == "__main__":
    check()
