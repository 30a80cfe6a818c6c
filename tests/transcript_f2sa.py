"""NumPy transcript of F2SA-p (Chen, Li, Chayti, Zhang, arXiv:2509.02937), P = 1, 2, 4; P = 1 is F2SA.  Float64.

Only first derivatives: each point y^j follows j nu F + G, and the hypergradient is a difference formula in nu.
Runs k = 0..K-1 and returns K dicts, after the step: k, x, y (reported), points (one row per point), convex.
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript
from transcript_soba import amax, diff, identity, report
from transcript_values import G_x, all_matter, ball, example, hypergradient, solution

POINTS = {1: (0, 1), 2: (-1, 1), 4: (-2, -1, 1, 2)}  # the j of each P, in the order of the records
WEIGHTS = {1: {0: -1.0, 1: 1.0}, 2: {-1: -1 / 2, 1: 1 / 2}, 4: {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}}  # a_j


def f2sa(problem, x0, y0, draws, K, gamma, eta, nu, c, T, P, proj=identity, proj_y=identity):
    """draws(k): inner[t][p] = (B_G, B_F) of inner step t and point number p (B_F is None for j = 0);
    B_G, B_F of the hypergradient and the guard, the same for all points."""
    x = np.array(x0, np.float64)  # x_0, y_0: not projected
    y = {j: np.array(y0, np.float64) for j in POINTS[P]}  # all points start at y_0
    out = []
    for k in range(K):
        s = draws(k)
        nu_k = nu / (k + 1) ** c
        for t in range(T):
            for number, j in enumerate(POINTS[P]):
                B_G, B_F = s.inner[t][number]
                step = problem.G_y(x, y[j], B_G)
                if j != 0:  # j nu grad_y F + grad_y G
                    step = j * nu_k * problem.F_y(x, y[j], B_F) + step
                y[j] = proj_y(y[j] - eta * step)

        Phi = np.zeros_like(x)  # sum_j a_j ( j grad_x F(x, y^j) + grad_x G(x, y^j) / nu )
        for j in POINTS[P]:
            Phi = Phi + WEIGHTS[P][j] * (j * problem.F_x(x, y[j], s.B_F) + G_x(problem, x, y[j], s.B_G) / nu_k)

        convex = True
        if P > 1:  # the guard: g - J nu f between the outermost points
            J = P // 2
            D = lambda z: problem.G_y(x, z, s.B_G) - J * nu_k * problem.F_y(x, z, s.B_F)
            convex = not (y[-J] - y[J]) @ (D(y[-J]) - D(y[J])) < 0
        if convex:
            x = proj(x - gamma * Phi)
        else:  # x stays, and all points restart from the middle
            middle = (y[-1] + y[1]) / 2
            y = {j: middle for j in POINTS[P]}
        shown = y[0] if P == 1 else (y[-1] + y[1]) / 2
        points = np.stack([y[j] for j in POINTS[P]])
        out.append(dict(k=k, x=x, y=shown, points=points, convex=1.0 if convex else 0.0))
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def batches(rng, n, m, T, P, size=4):
    """The draws of one step."""
    inner = [[(rng.integers(n, size=size), rng.integers(m, size=size) if j else None) for j in POINTS[P]]
             for _ in range(T)]  # fmt: skip
    return NS(inner=inner, B_G=rng.integers(n, size=size), B_F=rng.integers(m, size=size))


def by_hand(p, x, points, s, gamma, eta, nu, T, P, px=identity, py=identity):
    """One step, for points given as rows.  Gradients are finite differences of L_j = j nu F + G, from values alone;
    the hypergradient is that of sum_j a_j L_j(x, y^j) / nu in x.  The guard is (x stays, all points in the middle)."""
    js, new = POINTS[P], []
    for number, j in enumerate(js):
        y = points[number]
        for t in range(T):
            B_G, B_F = s.inner[t][number]
            L = lambda z, B_G=B_G, B_F=B_F, j=j: p.G(x, z, B_G) + (j * nu * p.F(x, z, B_F) if j else 0.0)
            y = py(y - eta * transcript._fd(L, y))
        new.append(y)
    L = lambda z, j, y: (j * nu * p.F(z, y, s.B_F) + p.G(z, y, s.B_G)) / nu
    total = transcript._fd(lambda z: sum(WEIGHTS[P][j] * L(z, j, y) for j, y in zip(js, new, strict=True)), x)
    lowest = lambda y: p.G(x, y, s.B_G) - P // 2 * nu * p.F(x, y, s.B_F)
    slope = transcript._fd(lowest, new[0]) - transcript._fd(lowest, new[-1])
    bends_down = P > 1 and (new[0] - new[-1]) @ slope < 0
    new = [(new[P // 2 - 1] + new[P // 2]) / 2] * len(js) if bends_down else new
    y = new[0] if P == 1 else (new[P // 2 - 1] + new[P // 2]) / 2
    x = x if bends_down else px(x - gamma * total)
    return dict(x=x, y=y, points=np.array(new), convex=0.0 if bends_down else 1.0)


def check_steps(name, P):
    p, x, y, fi, fo, rng = example(name, 11)
    K, T, keys = 4 if name == "quadratic" else 2, 2, ("x", "y", "points", "convex")
    D = [batches(rng, len(fi), len(fo), T, P) for _ in range(K)]
    seen = set()
    for nu in (0.03, 3.0 / max(1, P // 2)):  # g - J nu f is not convex at the second, at first
        kw = dict(gamma=0.07, eta=0.05, nu=nu, c=0.9)
        run = lambda **kw: f2sa(p, x, y, D.__getitem__, K, T=T, P=P, **kw)
        out = all_matter(run, kw, keys) if nu < 1 else run(**kw)
        assert [o["k"] for o in out] == list(range(K)) and set(out[0]) == {"k", *keys}
        projected = run(**kw, proj=ball(0.5), proj_y=ball(0.7))
        acts = diff(out, projected, "x") > 1e-3 and diff(out, projected, "y") > 1e-3
        assert acts or nu > 1, "both projections must act (after a guard event x is not projected)"
        for label, records, projections in (("", out, ()), ("projected, ", projected, (ball(0.5), ball(0.7)))):
            X, points, err = x, [y] * len(POINTS[P]), 0.0
            for k, o in enumerate(records):
                hand = by_hand(p, X, points, D[k], 0.07, 0.05, nu * (k + 1) ** -0.9, T, P, *projections)
                err = max(err, diff([o], [hand], keys))
                X, points = o["x"], o["points"]
                seen.add(o["convex"])
                if not o["convex"]:
                    assert amax(points, o["y"]) < 1e-15, "after a guard event all points are the reported y"
            report(f"P={P}, nu={nu:g}: {label}every step by hand", err, 1e-6)
    if name == "quadratic":
        assert seen == ({1.0} if P == 1 else {0.0, 1.0}), "both outcomes of the guard must be seen"


def check_order():
    """Full batches, inner problems solved: halving nu divides the error by about 2^P."""
    p, x, y, fi, fo, _ = example("quadratic", 12)
    top, exact = np.linalg.eigvalsh(p.A.mean(0))[-1], hypergradient(p, x)
    T = 80
    for P in (1, 2, 4):
        errors = []
        for nu in (0.04, 0.02):
            s = NS(inner=[[(fi, fo)] * len(POINTS[P])] * T, B_G=fi, B_F=fo)
            o = f2sa(p, x, solution(p, x), lambda k, s=s: s, 1, 1.0, 1.0 / top, nu, 0.0, T, P)[0]
            errors.append(amax(x - o["x"], exact))
            if P == 1:
                report("P=1: reported y == y*(x)", amax(o["y"], solution(p, x)), 1e-9)
        report(f"P={P}: error at nu=0.02 (it is {errors[0]:.1e} at 0.04)", errors[1], 0.3**P)
        report(f"P={P}: error falls by {errors[0] / errors[1]:.3f}", abs(errors[0] / errors[1] / 2**P - 1), 0.25)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        for P in (1, 2, 4):
            check_steps(name, P)
    print("--- order")
    check_order()
    print("all checks passed")


if __name__ == "__main__":
    check()
