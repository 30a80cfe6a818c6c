"""The transcripts of baselines.py against finite differences, closed forms, each other, and steps taken by hand."""

import numpy as np
import transcript
from baselines import (
    aid,
    bsa,
    clip_below,
    clip_norm,
    conjugate_gradient,
    dense,
    fixed_point,
    mrbo_d,
    mstsa,
    random_series,
    reverse,
    rsvrb,
    sema,
    stable,
    stocbio,
    sustain,
    ttsa,
    unrolled,
)


def check():
    from types import SimpleNamespace as NS

    def report(label, err, tol):
        print(f"{label:66s} {err:.2e}  (tol {tol:g})")
        assert err < tol, label

    amax = lambda a, b: float(np.max(np.abs(a - b)))
    diff = lambda A, B, keys="xyvu": max(amax(a[key], b[key]) for a, b in zip(A, B, strict=True) for key in keys)
    points = lambda x, y, out: [(x, y)] + [(o["x"], o["y"]) for o in out[:-1]]  # (x_k, y_k), k = 0..K-1
    fd = transcript._fd

    for name in ("quadratic", "hypercleaning"):
        print("---", name)
        rng = np.random.default_rng(1)
        p, x, y, draw, full = transcript._example(name, rng)
        fo, fi = full(0).B_F, full(0).B_G  # all outer, all inner samples
        batch = lambda n=4: rng.integers(len(fi), size=n)
        outer = lambda n=4: rng.integers(len(fo), size=n)
        K = 6

        # ---- estimators
        bF, bG = outer(), batch(9)
        exact = dense(p, x, y, bF, bG)
        report("fixed_point == dense", amax(fixed_point(p, x, y, bF, bG, 4000, 0.2), exact), 1e-8)
        report(
            "conjugate_gradient (d_y steps) == dense", amax(conjugate_gradient(p, x, y, bF, bG, y.size), exact), 1e-8
        )
        report(
            "conjugate_gradient (3 d_y steps) == dense",
            amax(conjugate_gradient(p, x, y, bF, bG, 3 * y.size), exact),
            1e-8,
        )
        H, b = p.G_yy(x, y, bG), p.F_y(x, y, bF)  # 2 steps: minimiser on span{b, Hb}
        S = np.stack([b, H @ b], axis=1)
        w = S @ np.linalg.solve(S.T @ H @ S, S.T @ b)
        report(
            "conjugate_gradient (2 steps) == Krylov minimiser",
            amax(conjugate_gradient(p, x, y, bF, bG, 2), p.F_x(x, y, bF) - p.G_xy(x, y, bG) @ w),
            1e-10,
        )
        N = 5
        mean = np.mean([random_series(p, x, y, bF, bG, [bG] * n, N, 0.2) for n in range(N)], axis=0)
        a3 = transcript.algorithm3(p, x, y, bF, bG, dict.fromkeys(range(1, N), bG), 0.2)
        report("mean over p of random_series == algorithm3, Q=N-1", amax(mean, a3), 1e-12)
        report("fixed_point, N steps == algorithm3, Q=N-1", amax(fixed_point(p, x, y, bF, bG, N, 0.2), a3), 1e-12)
        T, step = 5, 0.3
        bs = [batch() for _ in range(T)]

        def path(z, y, bs):
            ys = [y]
            for s in bs:
                ys.append(ys[-1] - step * p.G_y(z, ys[-1], s))
            return ys

        ys = path(x, y, bs)
        for last in (T, 2, 0):  # y_{T-last} held fixed
            ref = fd(lambda z: p.F(z, path(z, ys[T - last], bs[T - last :])[-1], bF), x)
            report(
                f"unrolled, last={last} of {T} == finite differences",
                amax(unrolled(p, x, ys, bs, bF, step, last), ref),
                1e-8,
            )

        # ---- projections
        M = rng.normal(size=(3, 5))
        U, s, Vt = np.linalg.svd(M, full_matrices=False)
        c = (s[0] + s[1]) / 2
        report(
            "clip_norm: only the largest singular value moves",
            amax(clip_norm(M, c), M - (s[0] - c) * np.outer(U[:, 0], Vt[0])),
            1e-12,
        )
        M = rng.normal(size=(4, 4))
        P, Sy = clip_below(M, 0.3), (M + M.T) / 2
        dual = P - Sy  # optimality: dual >= 0, dual (P - mu I) = 0
        assert np.linalg.eigvalsh(P)[0] > 0.3 - 1e-12 and np.linalg.eigvalsh(dual)[0] > -1e-12
        report("clip_below: optimality of the nearest matrix", amax(dual @ (P - 0.3 * np.eye(4)), 0), 1e-12)

        # ---- 1. MRBO
        kw = dict(gamma=0.3, lam=0.4, c1=0.7, c2=0.9, d=0.8, m=2.0, Q=3, eta=0.2)
        D = [draw(4, 3) for _ in range(K)]
        lists = [NS(B_F=s.B_F, B_G=s.B_G, B=s.B, B_y=[s.B_y]) for s in D]
        report(
            "mrbo_d, inner=1 == mrbo",
            diff(
                mrbo_d(p, x, y, lists.__getitem__, K, inner=1, **kw), transcript.mrbo(p, x, y, D.__getitem__, K, **kw)
            ),
            1e-15,
        )
        f = full(3)
        out = mrbo_d(p, x, y, lambda k: NS(B_F=f.B_F, B_G=f.B_G, B=f.B, B_y=[fi] * 3), K, inner=3, **kw)
        X, Y, err = x, y, 0.0
        for k, o in enumerate(out):  # full batch: plain gradients
            v = transcript.algorithm3(p, X, Y, f.B_F, f.B_G, f.B, 0.2)
            for _ in range(3):
                u = p.G_y(X, Y, fi)
                Y = Y - 0.4 * 0.8 / (2 + k) ** (1 / 3) * u
            X = X - 0.3 * 0.8 / (2 + k) ** (1 / 3) * v
            err = max(err, diff([o], [dict(x=X, y=Y, v=v, u=u)]))
        report("mrbo_d, inner=3, full batch == deterministic", err, 1e-12)
        L = [NS(B_F=s.B_F, B_G=s.B_G, B=s.B, B_y=[batch(), batch()]) for s in D]
        out = mrbo_d(p, x, y, L.__getitem__, 2, inner=2, **kw)  # k = 1, inner = 2, by hand
        e0, e1 = 0.8 / 2 ** (1 / 3), 0.8 / 3 ** (1 / 3)
        y01 = y - 0.4 * e0 * p.G_y(x, y, L[0].B_y[0])
        u01 = p.G_y(x, y01, L[0].B_y[1])
        y10, x1, be = y01 - 0.4 * e0 * u01, out[0]["x"], 0.9 * e0**2
        u10 = p.G_y(x1, y10, L[1].B_y[0]) + (1 - be) * (u01 - p.G_y(x, y01, L[1].B_y[0]))
        y11 = y10 - 0.4 * e1 * u10
        u11 = p.G_y(x1, y11, L[1].B_y[1]) + (1 - be) * (u10 - p.G_y(x1, y10, L[1].B_y[1]))
        h = lambda x, y: transcript.algorithm3(p, x, y, L[1].B_F, L[1].B_G, L[1].B, 0.2)
        v1 = h(x1, y10) + (1 - 0.7 * e0**2) * (out[0]["v"] - h(x, y))
        report(
            "mrbo_d, inner=2, k=1 by hand",
            diff(out[1:], [dict(x=x1 - 0.3 * e1 * v1, y=y11 - 0.4 * e1 * u11, v=v1, u=u11)]),
            1e-13,
        )

        # ---- 2., 10., 11. same inner loop
        D2 = [
            NS(B_y=[batch() for _ in range(T)], B_F=outer(), B_G=(bg := batch(9)), B=dict.fromkeys(range(1, N), bg))
            for _ in range(K)
        ]
        st = stocbio(p, x, y, D2.__getitem__, K, 0.2, 0.1, T, N - 1, 0.2)
        fp = aid(p, x, y, D2.__getitem__, K, 0.1, 0.2, T, lambda *a: fixed_point(*a, N, 0.2))
        report("stocbio == aid with fixed_point, one batch", diff(st, fp), 1e-12)
        cg = aid(p, x, y, D2.__getitem__, K, 0.1, 0.2, T, lambda *a: conjugate_gradient(*a, y.size))
        report(
            "aid with conjugate_gradient == aid with dense",
            diff(cg, aid(p, x, y, D2.__getitem__, K, 0.1, 0.2, T, dense)),
            1e-8,
        )
        rv = reverse(p, x, y, D2.__getitem__, K, 0.1, step, T, T)
        err = 0.0
        for k, (X, Y) in enumerate(points(x, y, rv)):
            end = lambda z: path(z, Y, D2[k].B_y)[-1]
            err = max(
                err,
                amax(rv[k]["y"], end(X)),
                amax(rv[k]["v"], fd(lambda z: p.F(z, end(z), D2[k].B_F), X)),
                amax(rv[k]["x"], X - 0.1 * rv[k]["v"]),
            )
        report("reverse, last=T: every v_k == finite differences", err, 1e-8)

        # ---- 3.-6. random_series methods
        R = [
            NS(B_y=batch(), B_F=outer(), B_G=batch(), factors=[batch() for _ in range(rng.integers(N))])
            for _ in range(K)
        ]
        one = [NS(B_y=[s.B_y], B_F=s.B_F, B_G=s.B_G, factors=s.factors) for s in R]
        three = [batch() for _ in range(3)]
        I, P = np.eye(y.size), np.eye(y.size)
        for s in three:  # the last batch stands leftmost
            P = (I - 0.2 * p.G_yy(x, y, s)) @ P
        report(
            "random_series == explicit product, first batch next to F_y",
            amax(
                random_series(p, x, y, bF, bG, three, N, 0.2),
                p.F_x(x, y, bF) - p.G_xy(x, y, bG) @ (N * 0.2 * P @ p.F_y(x, y, bF)),
            ),
            1e-12,
        )
        many = [NS(B_y=[batch() for _ in range(3)], B_F=s.B_F, B_G=s.B_G, factors=s.factors) for s in R]
        bs3 = bsa(p, x, y, many.__getitem__, 2, 0.1, 0.2, 0.6, 0.4, 3, N, 0.2)  # k = 1 by hand
        (X, Y), s = (bs3[0]["x"], bs3[0]["y"]), many[1]
        for step_t, b_t in zip((0.2, 0.2 / 2**0.4, 0.2 / 3**0.4), s.B_y):
            Y = Y - step_t * p.G_y(X, Y, b_t)
        v = random_series(p, X, Y, s.B_F, s.B_G, s.factors, N, 0.2)
        report("bsa, T=3, k=1 by hand", diff(bs3[1:], [dict(x=X - 0.1 / 2**0.6 * v, y=Y, v=v)], "xyv"), 1e-14)
        ball = lambda z: z / max(1.0, np.linalg.norm(z))
        report(
            "bsa, T=1 == ttsa, b=0 (projected on the unit ball)",
            diff(
                bsa(p, x, y, one.__getitem__, K, 0.1, 0.2, 0.6, 0.4, 1, N, 0.2, ball),
                ttsa(p, x, y, R.__getitem__, K, 0.1, 0.2, 0.6, 0.0, N, 0.2, ball),
            ),
            1e-15,
        )
        report(
            "mstsa, c large (eta_k = 1) == ttsa, a = b = 1/2",
            diff(
                mstsa(p, x, y, R.__getitem__, K, 0.1, 0.2, 1e9, N, 0.2),
                ttsa(p, x, y, R.__getitem__, K, 0.1, 0.2, 0.5, 0.5, N, 0.2),
            ),
            1e-13,
        )
        tt = ttsa(p, x, y, R.__getitem__, 3, 0.1, 0.2, 0.6, 0.4, N, 0.2)  # k = 2 by hand
        X, Y = tt[1]["x"], tt[1]["y"]
        Y2 = Y - 0.2 / 3**0.4 * p.G_y(X, Y, R[2].B_y)
        v2 = random_series(p, X, Y2, R[2].B_F, R[2].B_G, R[2].factors, N, 0.2)
        report("ttsa, k=2 by hand", diff(tt[2:], [dict(x=X - 0.1 / 3**0.6 * v2, y=Y2, v=v2)], "xyv"), 1e-14)
        ms = mstsa(p, x, y, R.__getitem__, 3, 0.1, 0.2, 4.0, N, 0.2)  # k = 2 by hand
        g = lambda x, y: random_series(p, x, y, R[2].B_F, R[2].B_G, R[2].factors, N, 0.2)
        (x1, y1), (x2, y2), y3 = (ms[0]["x"], ms[0]["y"]), (ms[1]["x"], ms[1]["y"]), ms[2]["y"]
        v2 = g(x2, y3) + (1 - 4.0 * 0.1 / 2**0.5) * (ms[1]["v"] - g(x1, y2))
        report(
            "mstsa, k=2 by hand",
            diff(ms[2:], [dict(x=x2 - 0.1 / 3**0.5 * v2, v=v2, y=y2 - 0.2 / 3**0.5 * p.G_y(x2, y2, R[2].B_y))], "xyv"),
            1e-14,
        )
        bare = [NS(B_y=s.B_y, B_F=s.B_F, B_G=s.B_G, factors=[], B={}) for s in R]
        report(
            "sustain, N=1 == mrbo, Q=0",
            diff(
                sustain(p, x, y, bare.__getitem__, K, 0.4, 0.9, 3.0, 5.0, 2.0, 1, 0.2),
                transcript.mrbo(p, x, y, bare.__getitem__, K, 1.0, 0.9, 3.0, 5.0, 0.4, 2.0, 0, 0.2),
            ),
            1e-13,
        )
        fixed = NS(B_y=fi, B_F=fo, B_G=fi, factors=[fi] * 3)
        g = lambda x, y: random_series(p, x, y, fo, fi, fixed.factors, N, 0.2)
        su = sustain(p, x, y, lambda k: fixed, K, 0.2, 0.9, 3.0, 5.0, 2.0, N, 0.2)
        err = max(max(amax(o["v"], g(X, Y)), amax(o["u"], p.G_y(X, Y, fi))) for o, (X, Y) in zip(su, points(x, y, su)))
        report("sustain, constant batch: v_k, u_k telescope", err, 1e-12)
        ms = mstsa(p, x, y, lambda k: fixed, K, 0.1, 0.2, 4.0, N, 0.2)
        err = max(amax(o["v"], g(X, o["y"])) for o, (X, _) in zip(ms, points(x, y, ms)))
        report("mstsa, constant batch: v_k telescopes at (x_k, y_{k+1})", err, 1e-12)

        # ---- 7. SEMA
        se = sema(p, x, y, D.__getitem__, K, 0.1, 0.2, 0.3, 0.6, 3, 0.2)
        g = [
            (p.G_y(X, Y, s.B_y), transcript.algorithm3(p, X, Y, s.B_F, s.B_G, s.B, 0.2))
            for s, (X, Y) in zip(D, points(x, y, se))
        ]
        avg = lambda c, i: (1 - c) ** (K - 1) * g[0][i] + sum(c * (1 - c) ** (K - 1 - k) * g[k][i] for k in range(1, K))
        report(
            "sema: last u, v == closed-form weights",
            max(amax(se[-1]["u"], avg(0.6, 0)), amax(se[-1]["v"], avg(0.3, 1))),
            1e-13,
        )

        # ---- 8., 9. STABLE, RSVRB
        mu, C = 1e-3, 1e3  # inactive
        fb = NS(B_F=fo, B_G=fi)
        sb = stable(p, x, y, lambda k: fb, K, 0.1, 0.2, 0.3, mu, C)
        err = max(
            max(
                amax(o["Hxy"], p.G_xy(X, Y, fi)), amax(o["Hyy"], p.G_yy(X, Y, fi)), amax(o["v"], dense(p, X, Y, fo, fi))
            )
            for o, (X, Y) in zip(sb, points(x, y, sb))
        )
        report("stable, full batch: exact Hxy, Hyy, v", err, 1e-12)
        if name == "quadratic":  # y - y*(x) contracts whatever x does
            ystar = lambda z: np.linalg.solve(p.A.mean(0), p.C.mean(0) @ z + p.b.mean(0))
            e = (np.eye(4) - 0.2 * p.A.mean(0)) @ (y - ystar(x))
            report(
                "stable, full batch: y_1 - y*(x_1) = (I - beta A)(y_0 - y*)",
                amax(sb[0]["y"] - ystar(sb[0]["x"]), e),
                1e-12,
            )
        rs = rsvrb(p, x, y, lambda k: fb, K, 0.1, 2.0, 0.3, mu, C)
        err = max(
            max(
                amax(o["J"], p.G_xy(X, Y, fi)),
                amax(o["H"], p.G_yy(X, Y, fi)),
                amax(o["u"], p.G_y(X, Y, fi)),
                amax(o["v"], dense(p, X, Y, fo, fi)),
            )
            for o, (X, Y) in zip(rs, points(x, y, rs))
        )
        report("rsvrb, full batch: exact J, H, s, v", err, 1e-12)
        C = 0.8 * np.linalg.norm(p.G_xy(x, y, fi), 2)  # now active, small batches
        mu = 1.5 * np.linalg.eigvalsh(p.G_yy(x, y, fi))[0]
        Db = [NS(B_F=outer(), B_G=batch()) for _ in range(2)]
        s = Db[1]
        for label, out, J, H, q in (
            ("stable", stable(p, x, y, Db.__getitem__, 2, 0.1, 0.2, 0.3, mu, C), "Hxy", "Hyy", 0.7),
            ("rsvrb", rsvrb(p, x, y, Db.__getitem__, 2, 0.1, 2.0, 0.4, mu, C), "J", "H", 0.6),
        ):
            X, Y = out[0]["x"], out[0]["y"]
            J1 = clip_norm(p.G_xy(X, Y, s.B_G) + q * (clip_norm(p.G_xy(x, y, Db[0].B_G), C) - p.G_xy(x, y, s.B_G)), C)
            H1 = clip_below(
                p.G_yy(X, Y, s.B_G) + q * (clip_below(p.G_yy(x, y, Db[0].B_G), mu) - p.G_yy(x, y, s.B_G)), mu
            )
            a, b, u = p.F_x(X, Y, s.B_F), p.F_y(X, Y, s.B_F), p.G_y(X, Y, s.B_G)
            if label == "rsvrb":
                a, b = (n(X, Y, s.B_F) + q * (n(x, y, Db[0].B_F) - n(x, y, s.B_F)) for n in (p.F_x, p.F_y))
                u = u + q * (p.G_y(x, y, Db[0].B_G) - p.G_y(x, y, s.B_G))
            v = a - J1 @ np.linalg.inv(H1) @ b
            move = 0.2 * u + (np.linalg.inv(H1) @ J1.T @ (-0.1 * v) if label == "stable" else 0)
            report(
                f"{label}, active projections, k=1 by hand",
                diff(
                    out[1:],
                    [{"x": X - 0.1 * v, "y": Y - move, "v": v, "u": u, J: J1, H: H1}],
                    ["x", "y", "v", "u", J, H],
                ),
                1e-11,
            )
            for free, key in ((dict(mu=mu, C=1e9), J), (dict(mu=1e-9, C=C), H)):  # both projections do act
                o = (
                    stable(p, x, y, Db.__getitem__, 2, 0.1, 0.2, 0.3, **free)
                    if label == "stable"
                    else rsvrb(p, x, y, Db.__getitem__, 2, 0.1, 2.0, 0.4, **free)
                )
                assert amax(o[0][key], out[0][key]) > 1e-3, f"{label}: projection of {key} inactive"

        # ---- every new x and y is projected; STABLE moves y by the projected x_{k+1} - x_k
        small = lambda z: z / max(1.0, np.linalg.norm(z) / 0.5)
        pr = dict(proj=small, proj_y=small)
        runs = [
            mrbo_d(p, x, y, L.__getitem__, K, inner=2, **kw, **pr),
            stocbio(p, x, y, D2.__getitem__, K, 0.2, 0.1, T, N - 1, 0.2, **pr),
            bsa(p, x, y, one.__getitem__, K, 0.1, 0.2, 0.6, 0.4, 1, N, 0.2, **pr),
            ttsa(p, x, y, R.__getitem__, K, 0.1, 0.2, 0.6, 0.4, N, 0.2, **pr),
            mstsa(p, x, y, R.__getitem__, K, 0.1, 0.2, 4.0, N, 0.2, **pr),
            sustain(p, x, y, R.__getitem__, K, 0.2, 0.9, 3.0, 5.0, 2.0, N, 0.2, **pr),
            sema(p, x, y, D.__getitem__, K, 0.1, 0.2, 0.3, 0.6, 3, 0.2, **pr),
            stable(p, x, y, lambda k: fb, K, 0.1, 0.2, 0.3, mu, C, **pr),
            rsvrb(p, x, y, lambda k: fb, K, 0.1, 2.0, 0.3, mu, C, **pr),
            aid(p, x, y, D2.__getitem__, K, 0.1, 0.2, T, dense, **pr),
        ]
        report(
            "projected runs: largest norm minus the radius",
            max(np.linalg.norm(o[key]) for run in runs for o in run for key in "xy") - 0.5,
            1e-12,
        )
        o = stable(p, x, y, lambda k: fb, 1, 0.1, 0.2, 0.3, 1e-3, 1e3, proj=small)[0]
        ref = (
            y
            - 0.2 * p.G_y(x, y, fi)
            - np.linalg.inv(p.G_yy(x, y, fi)) @ p.G_xy(x, y, fi).T @ (small(x - 0.1 * dense(p, x, y, fo, fi)) - x)
        )
        report("stable, projected x: y_1 by hand", amax(o["y"], ref), 1e-11)
    print("all checks passed")
