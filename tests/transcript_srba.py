"""NumPy transcript of SRBA (Dagreou, Moreau, Vaiter, Ablin, AISTATS 2024) and SPABA (Chu, Xu, Yao, Zhang, ICML 2024).

One recursion (SARAH on the three directions of SOBA), two refresh rules: k mod q = 0, or a coin.  Float64.
Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}; d_x, d_y, d_v, the directions of this
step; x_prev, y_prev, v_prev = z_k, the point it started from.
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v.
"""

from types import SimpleNamespace as NS

import numpy as np
from transcript_soba import amax, diff, elementwise, identity, report, soba
from transcript_values import all_matter, ball, example, hypergradient

KEYS = ("x", "y", "v", "d_x", "d_y", "d_v", "x_prev", "y_prev", "v_prev")


def directions(problem, x, y, v, B_G, B_F):
    D_x = problem.F_x(x, y, B_F) - problem.G_xy(x, y, B_G) @ v  # grad_x F(x, y; xi) - Jxy(x, y; zeta) v
    D_y = problem.G_y(x, y, B_G)  # grad_y G(x, y; zeta)
    D_v = problem.G_yy(x, y, B_G) @ v - problem.F_y(x, y, B_F)  # Hyy(x, y; zeta) v - grad_y F(x, y; xi)
    return D_x, D_y, D_v


def sarah(problem, x0, y0, draws, K, gamma, rho, rho_v, refresh, radius, n, m, proj=identity, proj_y=identity):
    """draws(k): B_G, B_F.  refresh(k): whether step k takes fresh directions, over all n inner and m outer samples,
    or over draws(k).B_G, .B_F if draws(k) has them (a large batch).  radius > 0: v is kept in this ball."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v = np.zeros_like(y)  # v_0 = 0
    out = []
    for k in range(K):
        s = draws(k)
        if k == 0 or refresh(k):
            B_G, B_F = getattr(s, "B_G", np.arange(n)), getattr(s, "B_F", np.arange(m))
            d_x, d_y, d_v = directions(problem, x, y, v, B_G, B_F)  # d = D(z_k)
        else:  # d <- d + D(z_k; B_G, B_F) - D(z_{k-1}; B_G, B_F), the same batches at both points
            new = directions(problem, x, y, v, s.B_G, s.B_F)
            old = directions(problem, x_prev, y_prev, v_prev, s.B_G, s.B_F)
            d_x, d_y, d_v = d_x + new[0] - old[0], d_y + new[1] - old[1], d_v + new[2] - old[2]
        x_prev, y_prev, v_prev = x, y, v  # z_k
        x = proj(x_prev - gamma * d_x)  # x_{k+1}
        y = proj_y(y_prev - rho * d_y)  # y_{k+1}
        v = v_prev - rho_v * d_v  # v_{k+1}
        if radius > 0 and np.linalg.norm(v) > radius:
            v = radius * v / np.linalg.norm(v)  # projection on the ball
        out.append(dict(k=k, x=x, y=y, v=v, d_x=d_x, d_y=d_y, d_v=d_v, x_prev=x_prev, y_prev=y_prev, v_prev=v_prev))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def by_hand(p, x, y, D, large, g, r, rv, px=identity, py=identity, pv=identity):
    """d_k summed anew from the last refresh: D(z_r) + sum over i = r+1..k of D(z_i; B_i) - D(z_{i-1}; B_i).
    large: the samples of each refresh, {k: batches}."""
    Z, out = [(x, y, np.zeros(y.size))], []
    for k in range(len(D)):
        last = max(i for i in large if i <= k)
        d = np.concatenate(elementwise(p, *Z[last], large[last]))
        for i in range(last + 1, k + 1):
            d = d + np.concatenate(elementwise(p, *Z[i], D[i])) - np.concatenate(elementwise(p, *Z[i - 1], D[i]))
        d_y, d_v, d_x = d[: y.size], d[y.size : 2 * y.size], d[2 * y.size :]
        X, Y, V = Z[k]
        Z.append((px(X - g * d_x), py(Y - r * d_y), pv(V - rv * d_v)))
        new = dict(zip("xyv", Z[k + 1], strict=True))
        out.append(dict(new, d_x=d_x, d_y=d_y, d_v=d_v, x_prev=X, y_prev=Y, v_prev=V))
    return out


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 7)
    n, m, K = len(fi), len(fo), 7
    small = [NS(B_G=rng.integers(n, size=3), B_F=rng.integers(m, size=2)) for _ in range(K)]
    every, kw = NS(B_G=fi, B_F=fo), dict(gamma=0.03, rho=0.08, rho_v=0.11)
    numbers = tuple(kw.values())
    for label, times in (("k mod 3", {0, 3, 6}), ("coin", {0, 1, 5}), ("never again", {0})):
        draws = lambda k, times=times: NS() if k in times else small[k]
        run = lambda times=times, draws=draws, radius=0.0, **kw: sarah(
            p, x, y, draws, K, refresh=lambda k: k in times - {0}, radius=radius, n=n, m=m, **kw
        )
        out = all_matter(run, kw, KEYS)
        hand = by_hand(p, x, y, small, dict.fromkeys(times, every), *numbers)
        report(f"{label}: whole run by hand", diff(out, hand, KEYS), 1e-12)
        tight = 0.2 * np.linalg.norm(out[-1]["v"])
        projected = run(**kw, radius=tight, proj=ball(0.5), proj_y=ball(0.7))
        hand = by_hand(p, x, y, small, dict.fromkeys(times, every), *numbers, ball(0.5), ball(0.7), ball(tight))
        report(f"{label}: projected run by hand", diff(projected, hand, KEYS), 1e-12)
        assert all(diff(out, projected, key) > 1e-3 for key in "xyv"), "all three projections must act"
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", *KEYS}

    # a large batch at the refreshes, k = 0 too
    large = {k: NS(B_G=rng.integers(n, size=9), B_F=rng.integers(m, size=8)) for k in (0, 4)}
    out = sarah(p, x, y, lambda k: large.get(k, small[k]), K, *numbers, lambda k: k in large, 0.0, n, m)
    report("large batches: whole run by hand", diff(out, by_hand(p, x, y, small, large, *numbers), KEYS), 1e-12)

    # one fixed small batch, never refreshed: d_k = D(z_0) + D(z_k; B) - D(z_0; B)
    B, start = small[0], (x, y, np.zeros(y.size))
    out = sarah(p, x, y, lambda k: B if k else NS(), K, *numbers, lambda k: False, 0.0, n, m)
    err, bias = 0.0, [a - b for a, b in zip(elementwise(p, *start, every), elementwise(p, *start, B), strict=True)]
    for o in out:
        now = elementwise(p, o["x_prev"], o["y_prev"], o["v_prev"], B)
        used = (o["d_y"], o["d_v"], o["d_x"])
        err = max(err, *(amax(d, a + b) for d, a, b in zip(used, now, bias, strict=True)))
    report("one fixed small batch: the recursion telescopes", err, 1e-12)

    # full batches: exact directions for any refresh rule, so SOBA with constant steps
    reference = soba(p, x, y, lambda k: every, 30, *numbers, 0, 0)
    for label, rule in (("always", lambda k: True), ("never", lambda k: False), ("k mod 4", lambda k: k % 4 == 0)):
        out = sarah(p, x, y, lambda k: every, 30, *numbers, rule, 0.0, n, m)
        report(f"full batches, refreshed {label}: SOBA with a=b=0", diff(out, reference), 1e-12)


def check_stationary():
    """Small batches, constant steps: the limit has a zero exact hypergradient all the same (no noise is left)."""
    p, x, y, fi, fo, rng = example("quadratic", 8)
    n, m = len(fi), len(fo)
    draws = lambda k: NS() if k % 3 == 0 else NS(B_G=rng.integers(n, size=3), B_F=rng.integers(m, size=3))
    o = sarah(p, x, y, draws, 1500, 0.04, 0.15, 0.15, lambda k: k % 3 == 0, 0.0, n, m)[-1]
    assert np.max(np.abs(hypergradient(p, x))) > 0.1, "the start is not stationary"
    report("limit: exact hypergradient", np.max(np.abs(hypergradient(p, o["x"]))), 1e-8)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- all three variables")
    check_stationary()
    print("all checks passed")


if __name__ == "__main__":
    check()
