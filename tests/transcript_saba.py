"""NumPy transcript of SABA (Dagreou, Ablin, Vaiter, Moreau, NeurIPS 2022) on blocks; float64, explicit matrices.

Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}.
A block is an index array; w_i = its size / all samples of its level; T[i] is the map's mean over block i.
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v.
"""

from types import SimpleNamespace as NS

import numpy as np
from transcript_soba import amax, diff, elementwise, identity, report, soba
from transcript_srba import sarah
from transcript_values import all_matter, ball, example, hypergradient, solution


class Table:
    """One map: T[i] for each block, and mean = sum_i w_i T[i]."""

    def __init__(self, values, weights):
        self.T, self.w = [np.array(value) for value in values], weights
        self.mean = sum(w * value for w, value in zip(weights, self.T, strict=True))

    def direction(self, i, new):
        change = new - self.T[i]
        s = len(self.T) * self.w[i] * change + self.mean  # n_b w_i (phi_new - T[i]) + the OLD mean
        self.mean = self.mean + self.w[i] * change
        self.T[i] = np.array(new)
        return s


def saba(problem, x0, y0, draws, K, gamma, rho, rho_v, blocks_G, blocks_F, proj=identity, proj_y=identity):
    """draws(k): i, j, the numbers of the inner and the outer block.  Constant steps."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v = np.zeros_like(y)  # v_0 = 0
    w_G = [len(block) / sum(map(len, blocks_G)) for block in blocks_G]
    w_F = [len(block) / sum(map(len, blocks_F)) for block in blocks_F]
    # five tables, exact at (x_0, y_0, v_0)
    T_Gy = Table([problem.G_y(x, y, block) for block in blocks_G], w_G)  # grad_y G
    T_Hv = Table([problem.G_yy(x, y, block) @ v for block in blocks_G], w_G)  # Hyy v
    T_Jv = Table([problem.G_xy(x, y, block) @ v for block in blocks_G], w_G)  # Jxy v
    T_Fy = Table([problem.F_y(x, y, block) for block in blocks_F], w_F)  # grad_y F
    T_Fx = Table([problem.F_x(x, y, block) for block in blocks_F], w_F)  # grad_x F
    out = []
    for k in range(K):
        s = draws(k)
        i, j = s.i, s.j
        G, F = blocks_G[i], blocks_F[j]
        d_y = T_Gy.direction(i, problem.G_y(x, y, G))  # s(grad_y G)
        d_v = T_Hv.direction(i, problem.G_yy(x, y, G) @ v) - T_Fy.direction(j, problem.F_y(x, y, F))
        d_x = T_Fx.direction(j, problem.F_x(x, y, F)) - T_Jv.direction(i, problem.G_xy(x, y, G) @ v)
        x, y, v = proj(x - gamma * d_x), proj_y(y - rho * d_y), v - rho_v * d_v  # all from the old (x, y, v)
        out.append(dict(k=k, x=x, y=y, v=v))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def by_hand(p, x, y, D, gamma, rho, rho_v, blocks_G, blocks_F, px=identity, py=identity):
    """No table: the point of each block's last visit is kept, and every mean is summed anew over the samples."""
    n, m, z = sum(map(len, blocks_G)), sum(map(len, blocks_F)), (x, y, np.zeros(y.size))
    seen_G, seen_F, out = [z for _ in blocks_G], [z for _ in blocks_F], []
    inner = lambda z, B: np.concatenate([p.G_y(z[0], z[1], B), p.G_yy(*z[:2], B) @ z[2], -p.G_xy(*z[:2], B) @ z[2]])
    outer = lambda z, B: np.concatenate([np.zeros(y.size), -p.F_y(z[0], z[1], B), p.F_x(z[0], z[1], B)])
    for s in D:
        d = sum(inner(at, [one]) / n for at, B in zip(seen_G, blocks_G, strict=True) for one in B)
        d = d + sum(outer(at, [one]) / m for at, B in zip(seen_F, blocks_F, strict=True) for one in B)
        for one in blocks_G[s.i]:
            d = d + len(blocks_G) / n * (inner(z, [one]) - inner(seen_G[s.i], [one]))
        for one in blocks_F[s.j]:
            d = d + len(blocks_F) / m * (outer(z, [one]) - outer(seen_F[s.j], [one]))
        seen_G[s.i] = seen_F[s.j] = z
        d_y, d_v, d_x = np.split(d, [y.size, 2 * y.size])
        z = (px(z[0] - gamma * d_x), py(z[1] - rho * d_y), z[2] - rho_v * d_v)
        out.append(dict(zip("xyv", z, strict=True)))
    return out


def check_steps(name):
    p, x, y, fi, fo, rng = example(name, 9)
    n, m, K = len(fi), len(fo), 8
    blocks = dict(blocks_G=[fi[:3], fi[3:6], fi[6:]], blocks_F=[fo[:4], fo[4:]])  # the last ones are short
    D = [NS(i=int(rng.integers(3)), j=int(rng.integers(2))) for _ in range(K)]
    kw = dict(gamma=0.05, rho=0.12, rho_v=0.17)
    run = lambda D=D, **kw: saba(p, x, y, D.__getitem__, len(D), **kw, **blocks)
    out = all_matter(run, kw, "xyv")
    assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", "x", "y", "v"}
    report("whole run by hand", diff(out, by_hand(p, x, y, D, **kw, **blocks)), 1e-13)
    projected = run(**kw, proj=ball(0.5), proj_y=ball(0.7))
    hand = by_hand(p, x, y, D, **kw, **blocks, px=ball(0.5), py=ball(0.7))
    report("projected run by hand", diff(projected, hand), 1e-13)
    assert diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3, "both projections must act"

    every = NS(B_G=fi, B_F=fo)
    D_y, D_v, D_x = elementwise(p, x, y, np.zeros(y.size), every)
    first = dict(x=x - 0.05 * D_x, y=y - 0.12 * D_y, v=-0.17 * D_v)
    report("k=0 is exact, whatever the block", diff(out[:1], [first]), 1e-14)

    # unbiased: the mean over all last draws of a run of 5 steps is the full step from the fourth point
    D_y, D_v, D_x = elementwise(p, out[3]["x"], out[3]["y"], out[3]["v"], every)
    ends = [run([*D[:4], NS(i=i, j=j)], **kw)[-1] for i in range(3) for j in range(2)]
    for key, step, d in (("x", 0.05, D_x), ("y", 0.12, D_y), ("v", 0.17, D_v)):
        mean = np.mean([end[key] for end in ends], axis=0)
        report(f"mean over all blocks is the full step of {key}", amax(mean, out[3][key] - step * d), 1e-13)

    # one block: SOBA with constant steps, and SARAH refreshed always
    one = saba(p, x, y, lambda k: NS(i=0, j=0), 30, **kw, blocks_G=[fi], blocks_F=[fo])
    report("one block == SOBA with a=b=0", diff(one, soba(p, x, y, lambda k: every, 30, **kw, a=0, b=0)), 1e-12)
    fresh = sarah(p, x, y, lambda k: NS(), 30, **kw, refresh=lambda k: True, radius=0.0, n=n, m=m)
    report("one block == SARAH, refreshed always", diff(one, fresh), 1e-12)


def check_limits():
    """Constant steps, small blocks: y, v and x converge, so no noise is left."""
    p, x, y, fi, fo, rng = example("quadratic", 10)
    blocks = dict(blocks_G=[fi[:3], fi[3:6], fi[6:]], blocks_F=[fo[:4], fo[4:]])
    draws = lambda k: NS(i=int(rng.integers(3)), j=int(rng.integers(2)))
    o = saba(p, x, y, draws, 800, 0.0, 0.1, 0.1, **blocks)[-1]
    report("gamma=0: y == y*(x)", amax(o["y"], solution(p, x)), 1e-9)
    report("gamma=0: v == + inverse(G_yy) F_y", amax(p.A.mean(0) @ o["v"], p.F_y(x, o["y"], fo)), 1e-9)
    o = saba(p, x, y, draws, 3000, 0.02, 0.1, 0.1, **blocks)[-1]
    report("limit: exact hypergradient", np.max(np.abs(hypergradient(p, o["x"]))), 1e-8)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
    print("--- limits")
    check_limits()
    print("all checks passed")


if __name__ == "__main__":
    check()
