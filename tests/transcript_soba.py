"""NumPy transcript of SOBA (Dagreou, Ablin, Vaiter, Moreau, NeurIPS 2022); float64, explicit matrices.

A problem has F_x, F_y, G_y, G_yy (d_y x d_y) and G_xy (d_x x d_y); a batch is an integer index array.
Runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v = v_{k+1}.
v is the linear-system variable, not the direction that moved x.
Plus sign: v -> + Hyy^{-1} grad_y f, hypergradient grad_x f - Jxy v (the paper keeps -v).
"""

from types import SimpleNamespace as NS

import numpy as np
import transcript


def identity(z):
    return z


def soba(problem, x0, y0, draws, K, gamma, rho, rho_v, a, b, proj=identity, proj_y=identity):
    """draws(k): B_G (in D_y, D_v, D_x), B_F (in D_v, D_x).  gamma, a move x; rho, rho_v, b move y, v."""
    x, y = np.array(x0, np.float64), np.array(y0, np.float64)  # x_0, y_0: not projected
    v = np.zeros_like(y)  # v_0 = 0
    out = []
    for k in range(K):
        s = draws(k)  # one inner batch (zeta) and one outer batch (xi)
        D_y = problem.G_y(x, y, s.B_G)  # grad_y G(x, y; zeta)
        D_v = problem.G_yy(x, y, s.B_G) @ v - problem.F_y(x, y, s.B_F)  # Hyy(x, y; zeta) v - grad_y F(x, y; xi)
        D_x = problem.F_x(x, y, s.B_F) - problem.G_xy(x, y, s.B_G) @ v  # grad_x F(x, y; xi) - Jxy(x, y; zeta) v
        y = proj_y(y - rho / (k + 1) ** b * D_y)  # y_{k+1}
        v = v - rho_v / (k + 1) ** b * D_v  # v_{k+1}: D_v of the old (x, y, v), never projected
        x = proj(x - gamma / (k + 1) ** a * D_x)  # x_{k+1}: D_x of the old (x, y, v)
        out.append(dict(k=k, x=x, y=y, v=v))  # the state after the step
    return out


# ---------------------------------------------------------------- the transcript against steps by hand and its limits
def report(label, err, tol):
    print(f"{label:66s} {err:.2e}  (tol {tol:g})")
    assert err < tol, label


def amax(a, b):
    return float(np.max(np.abs(a - b)))


def diff(A, B, keys="xyv"):
    return max(amax(a[key], b[key]) for a, b in zip(A, B, strict=True) for key in keys)


def elementwise(p, x, y, v, s):
    """D_y, D_v, D_x sample by sample and entry by entry: the mean over samples of scalar sums."""
    nG, nF = len(s.B_G), len(s.B_F)
    D_y, D_v, D_x = np.zeros(y.size), np.zeros(y.size), np.zeros(x.size)
    for i in s.B_G:
        g, H, J = p.G_y(x, y, [i]), p.G_yy(x, y, [i]), p.G_xy(x, y, [i])
        for r in range(y.size):
            D_y[r] += g[r] / nG
            for c in range(y.size):
                D_v[r] += H[r, c] * v[c] / nG
        for r in range(x.size):
            for c in range(y.size):
                D_x[r] -= J[r, c] * v[c] / nG
    for j in s.B_F:
        D_v -= p.F_y(x, y, [j]) / nF
        D_x += p.F_x(x, y, [j]) / nF
    return D_y, D_v, D_x


def differences(p, x, y, v, s):
    """The same from L(x, y, v) = F(x, y; xi) - v' grad_y G(x, y; zeta): D_y = -L_v, D_v = -L_y, D_x = L_x.
    Only the values of F and G and grad_y G are used: no second derivative."""
    L = lambda x, y, v: p.F(x, y, s.B_F) - v @ p.G_y(x, y, s.B_G)
    D_y = transcript._fd(lambda z: p.G(x, z, s.B_G), y)
    D_v = -transcript._fd(lambda z: L(x, z, v), y)
    D_x = transcript._fd(lambda z: L(z, y, v), x)
    report("   -L_v == difference of G", amax(-transcript._fd(lambda z: L(x, y, z), v), D_y), 1e-7)
    return D_y, D_v, D_x


def inner_solution(p, x, y, batch):
    """y*(x) on the batch, by Newton's method from y."""
    for _ in range(30):
        y = y - np.linalg.solve(p.G_yy(x, y, batch), p.G_y(x, y, batch))
    report("   Newton: grad_y G at y*", float(np.max(np.abs(p.G_y(x, y, batch)))), 1e-12)
    return y


def check_steps(name):
    """The equations: one start, one later step, a whole run, the order of the updates, projections."""
    rng = np.random.default_rng(1)
    p, x, y, _, full = transcript._example(name, rng)
    n, m, K = len(full(0).B_G), len(full(0).B_F), 6
    D = [NS(B_G=rng.integers(n, size=4), B_F=rng.integers(m, size=3)) for _ in range(K)]  # entries repeat
    g, r, rv, a, b = 0.13, 0.21, 0.34, 0.6, 0.4  # five different numbers
    asked, x_before, y_before = [], x.copy(), y.copy()
    out = soba(p, x, y, lambda k: (asked.append(k), D[k])[1], K, g, r, rv, a, b)
    assert asked == list(range(K)) == [o["k"] for o in out], "one draw per step"
    assert all(set(o) == {"k", "x", "y", "v"} for o in out)
    assert amax(x, x_before) == 0 and amax(y, y_before) == 0, "x0 and y0 are left alone"

    # k = 0: v_0 = 0, so x moves along grad_x F and v_1 = + rho_v grad_y F; all steps are undamped
    s = D[0]
    first = dict(x=x - g * p.F_x(x, y, s.B_F), y=y - r * p.G_y(x, y, s.B_G), v=rv * p.F_y(x, y, s.B_F))
    report("k=0 by hand (v_0 = 0)", diff(out[:1], [first]), 1e-14)

    # k = 2, from the records of k = 1 alone: steps are damped by 3^-a and 3^-b
    X, Y, V = (out[1][key] for key in "xyv")
    for label, directions, tol in (("elementwise", elementwise, 1e-13), ("finite differences", differences, 1e-7)):
        D_y, D_v, D_x = directions(p, X, Y, V, D[2])
        third = dict(x=X - g * 3**-a * D_x, y=Y - r * 3**-b * D_y, v=V - rv * 3**-b * D_v)
        report(f"k=2 by hand, {label}", diff(out[2:3], [third]), tol)

    # the whole run, and the same run with each update using a variable that has already moved
    def rerun(order):
        z, records = dict(x=x, y=y, v=np.zeros(y.size)), []
        for k in range(K):
            size = dict(x=g * (k + 1) ** -a, y=r * (k + 1) ** -b, v=rv * (k + 1) ** -b)
            old = dict(z)
            for key in order or "xyv":
                at = z if order else old
                d = dict(zip("yvx", elementwise(p, at["x"], at["y"], at["v"], D[k]), strict=True))
                z[key] = z[key] - size[key] * d[key]
            records.append(dict(z))
        return records

    report("whole run by hand", diff(out, rerun("")), 1e-13)
    for order in ("yvx", "xyv", "vyx", "vxy", "xvy", "yxv"):
        assert diff(out, rerun(order)) > 1e-6, f"updating in the order {order} must differ"

    # each batch and each number matters
    kw = dict(gamma=g, rho=r, rho_v=rv, a=a, b=b)
    for key in kw:
        assert diff(out, soba(p, x, y, D.__getitem__, K, **{**kw, key: kw[key] + 0.01})) > 1e-6, f"{key} must matter"
    for key in ("B_G", "B_F"):
        E = [NS(**{**vars(s), key: (getattr(s, key) + 1) % (n if key == "B_G" else m)}) for s in D]
        assert diff(out, soba(p, x, y, E.__getitem__, K, **kw)) > 1e-6, f"{key} must matter"

    # projections: different radii on x and y, none on v; the next step starts from the projected point
    ball = lambda R: lambda z: z / max(1.0, np.linalg.norm(z) / R)
    px, py = ball(0.5), ball(0.7)
    pr = soba(p, x, y, D.__getitem__, K, **kw, proj=px, proj_y=py)
    X, Y, V = x, y, np.zeros(y.size)
    err, active = 0.0, dict(x=0, y=0)
    for k, o in enumerate(pr):
        D_y, D_v, D_x = elementwise(p, X, Y, V, D[k])
        X1, Y1, V = X - g * (k + 1) ** -a * D_x, Y - r * (k + 1) ** -b * D_y, V - rv * (k + 1) ** -b * D_v
        X, Y = px(X1), py(Y1)
        active["x"] += amax(X, X1) > 1e-3
        active["y"] += amax(Y, Y1) > 1e-3
        err = max(err, diff([o], [dict(x=X, y=Y, v=V)]))
    report("projected run by hand", err, 1e-13)
    assert all(active.values()), "both projections must act"


def check_linear_system(name):
    """gamma = 0: x stays, and v solves the linear system."""
    rng = np.random.default_rng(2)
    p, x, y, _, full = transcript._example(name, rng)
    fo, fi = full(0).B_F, full(0).B_G
    every = lambda k: NS(B_G=fi, B_F=fo)

    # y frozen as well, one fixed small batch: v_K is the Neumann sum of K terms, Q = K - 1 in Algorithm 3
    bG, bF, K = rng.integers(len(fi), size=4), rng.integers(len(fo), size=3), 7
    v = soba(p, x, y, lambda k: NS(B_G=bG, B_F=bF), K, 0.0, 0.0, 0.2, 0, 0)[-1]["v"]
    ref = transcript.algorithm3(p, x, y, bF, bG, {q: bG for q in range(1, K)}, 0.2)
    got = p.F_x(x, y, bF) - p.G_xy(x, y, bG) @ v
    report("x, y frozen: F_x - G_xy v_K == algorithm3, Q = K - 1", amax(got, ref), 1e-12)

    # full batches, constant steps: y -> y*(x), v -> + Hyy^{-1} grad_y f at y*
    ystar = inner_solution(p, x, y, fi)
    H = p.G_yy(x, ystar, fi)
    vstar = np.linalg.inv(H) @ p.F_y(x, ystar, fo)
    top, low = np.linalg.eigvalsh(H)[[-1, 0]]
    out = soba(p, x, y, every, int(40 * top / low), 0.0, 0.9 / top, 0.7 / top, 0, 0)
    assert all(amax(o["x"], x) == 0 for o in out), "gamma = 0: x does not move"
    report(f"gamma=0, {len(out)} steps: y == y*", amax(out[-1]["y"], ystar), 1e-9)
    report("gamma=0: v == + inverse(G_yy) F_y", amax(out[-1]["v"], vstar), 1e-9)
    assert np.max(np.abs(vstar)) > 0.1, "so that the sign is seen"
    direction = p.F_x(x, ystar, fo) - p.G_xy(x, ystar, fi) @ out[-1]["v"]
    if name == "quadratic":  # y* in closed form, so that its value can be differentiated
        solution = lambda z: np.linalg.solve(p.A.mean(0), p.C.mean(0) @ z + p.b.mean(0))
        ref = transcript._fd(lambda z: p.F(z, solution(z), fo), x)
        report("gamma=0: F_x - G_xy v == d/dx F(x, y*(x))", amax(direction, ref), 1e-8)

        errors = np.array([o["y"] - ystar for o in out[:5]])  # (I - rho H)^(k+1) (y_0 - y*)
        w, U = np.linalg.eigh(H)
        ref = np.array([U @ ((1 - 0.9 / top * w) ** (k + 1) * (U.T @ (y - ystar))) for k in range(5)])
        report("gamma=0: y_k - y* in closed form, k = 1..5", amax(errors, ref), 1e-12)


def check_stationary():
    """All three move, full batches, small constant steps: the limit has a zero exact hypergradient."""
    rng = np.random.default_rng(3)
    p, x, y, _, full = transcript._example("quadratic", rng)
    fo, fi = full(0).B_F, full(0).B_G
    A, C, b = p.A.mean(0), p.C.mean(0), p.b.mean(0)
    solution = lambda z: np.linalg.solve(A, C @ z + b)
    phi = lambda z: p.F(z, solution(z), fo)
    M = np.linalg.solve(A, C)  # dy*/dx
    curvature = p.delta * np.eye(x.size) + M.T @ M  # of Phi, which is quadratic
    xstar = np.linalg.solve(curvature, M.T @ (p.t.mean(0) - np.linalg.solve(A, b)) - p.c.mean(0))
    report("quadratic: closed-form minimiser, d/dx F(x, y*(x))", np.max(np.abs(transcript._fd(phi, xstar))), 1e-8)
    assert np.max(np.abs(transcript._fd(phi, x))) > 0.1, "the start is not stationary"

    rho, rho_v, gamma = 0.3, 0.25, 0.03
    out = soba(p, x, y, lambda k: NS(B_G=fi, B_F=fo), 6000, gamma, rho, rho_v, 0, 0)
    o = out[-1]
    report("limit: exact hypergradient (finite differences)", np.max(np.abs(transcript._fd(phi, o["x"]))), 1e-8)
    report("limit: x == closed-form minimiser", amax(o["x"], xstar), 1e-9)
    report("limit: y == y*(x)", amax(o["y"], solution(o["x"])), 1e-9)
    report("limit: v == + inverse(G_yy) F_y", amax(o["v"], np.linalg.inv(A) @ p.F_y(o["x"], o["y"], fo)), 1e-9)


def check():
    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        check_steps(name)
        check_linear_system(name)
    print("--- all three variables")
    check_stationary()
    print("all checks passed")


if __name__ == "__main__":
    check()
