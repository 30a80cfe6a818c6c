"""NumPy transcript of MA-SOBA (Chen, Xiao, Balasubramanian, JMLR 25(151)); float64, explicit matrices.

Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}, h = h_{k+1}.
x moves along h_k, the average BEFORE this step's sample (the paper's order).
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v.
"""

from types import SimpleNamespace as NS

import numpy as np
from transcript_soba import amax, diff, elementwise, identity, report, soba
from transcript_values import all_matter, ball, example, hypergradient, solution


def ma_soba(problem, x0, y0, draws, K, alpha, beta, nu, theta, proj=identity, proj_y=identity):
    """draws(k): B_G (in D_y, D_v, D_x), B_F (in D_v, D_x).  Constant steps."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v, h = np.zeros_like(y), np.zeros_like(x)  # v_0 = 0, h_0 = 0
    out = []
    for k in range(K):
        s = draws(k)
        D_y = problem.G_y(x, y, s.B_G)  # grad_y G(x_k, y_k; zeta)
        D_v = problem.G_yy(x, y, s.B_G) @ v - problem.F_y(x, y, s.B_F)  # Hyy(x_k, y_k; zeta) v_k - grad_y F
        D_x = problem.F_x(x, y, s.B_F) - problem.G_xy(x, y, s.B_G) @ v  # grad_x F - Jxy(x_k, y_k; zeta) v_k
        x = proj(x - alpha * h)  # x_{k+1}: the old average h_k
        y = proj_y(y - beta * D_y)  # y_{k+1}
        v = v - nu * D_v  # v_{k+1}: not projected
        h = (1 - theta) * h + theta * D_x  # h_{k+1}
        out.append(dict(k=k, x=x, y=y, v=v, h=h))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def by_hand(p, x, y, D, alpha, beta, nu, theta, px=identity, py=identity):
    """Directions entry by entry; h_k is the weighted sum of all earlier D_x, not a recursion."""
    v, past, out = np.zeros(y.size), [], []
    average = lambda: sum((theta * (1 - theta) ** i * d for i, d in enumerate(reversed(past))), np.zeros(x.size))
    for s in D:
        D_y, D_v, D_x = elementwise(p, x, y, v, s)
        x, y, v = px(x - alpha * average()), py(y - beta * D_y), v - nu * D_v
        past.append(D_x)
        out.append(dict(x=x, y=y, v=v, h=average()))
    return out


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 5)
    K = 6
    D = [NS(B_G=rng.integers(len(fi), size=4), B_F=rng.integers(len(fo), size=3)) for _ in range(K)]
    kw = dict(alpha=0.13, beta=0.21, nu=0.34, theta=0.45)
    run = lambda **kw: ma_soba(p, x, y, D.__getitem__, K, **kw)
    out = all_matter(run, kw, "xyvh")
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", "x", "y", "v", "h"}

    s = D[0]  # k = 0: h_0 = 0, so x does not move; v_0 = 0, so h_1 = theta grad_x F
    first = dict(x=x, y=y - 0.21 * p.G_y(x, y, s.B_G), v=0.34 * p.F_y(x, y, s.B_F), h=0.45 * p.F_x(x, y, s.B_F))
    report("k=0 by hand (v_0 = 0, h_0 = 0)", diff(out[:1], [first], "xyvh"), 1e-14)
    report("whole run by hand", diff(out, by_hand(p, x, y, D, **kw), "xyvh"), 1e-13)
    px, py = ball(0.5), ball(0.7)
    projected = run(**kw, proj=px, proj_y=py)
    report("projected run by hand", diff(projected, by_hand(p, x, y, D, **kw, px=px, py=py), "xyvh"), 1e-13)
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"

    still = diff(run(**{**kw, "alpha": 0.0}), soba(p, x, y, D.__getitem__, K, 0.0, 0.21, 0.34, 0, 0))
    report("alpha=0: x, y, v of SOBA with gamma=0", still, 1e-14)
    late, err = run(**{**kw, "theta": 1.0}), 0.0  # theta = 1: SOBA with x one step late
    for before, after, s in zip(late, late[1:], D[1:], strict=False):
        D_x = elementwise(p, before["x"], before["y"], before["v"], s)[2]
        err = max(err, amax(after["h"], D_x), amax(after["x"], before["x"] - 0.13 * before["h"]))
    report("theta=1: h_{k+1} == D_x(z_k), x_{k+1} == x_k - alpha D_x(z_{k-1})", err, 1e-13)


def check_stationary():
    """Full batches, small constant steps: the limit has a zero exact hypergradient."""
    p, x, y, fi, fo, _ = example("quadratic", 6)
    assert np.max(np.abs(hypergradient(p, x))) > 0.1, "the start is not stationary"
    o = ma_soba(p, x, y, lambda k: NS(B_G=fi, B_F=fo), 4000, 0.03, 0.3, 0.25, 0.4)[-1]
    report("limit: exact hypergradient", np.max(np.abs(hypergradient(p, o["x"]))), 1e-9)
    report("limit: y == y*(x)", amax(o["y"], solution(p, o["x"])), 1e-9)
    report("limit: v == + inverse(G_yy) F_y", amax(p.A.mean(0) @ o["v"], p.F_y(o["x"], o["y"], fo)), 1e-9)
    report("limit: h == 0", np.max(np.abs(o["h"])), 1e-9)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- all variables")
    check_stationary()
    print("all checks passed")


if __name__ == "__main__":
    check()
