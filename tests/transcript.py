"""NumPy transcript of "Provably Faster Algorithms for Bilevel Optimization".

Algorithm 1 (MRBO), Algorithm 2 (VRBO), Algorithm 3 (Hessian-vector hypergradient),
equations (4) and (5).  Written from the paper alone; float64; every Hessian
nabla_y^2 G (d_y x d_y) and Jacobian nabla_x nabla_y G (d_x x d_y) is an explicit matrix.
"line n" is the n-th numbered line of the listing (\\IF, \\ELSE, \\ENDIF, ... count).

A batch is an integer index array (entries may repeat); every function is the mean over it.
"""
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping

import numpy as np

Array = np.ndarray


# ---------------------------------------------------------------- problems
class Quadratic:
    """G(x,y;i) = 1/2 y'A_i y - y'C_i x - b_i'y   (A_i symmetric),
    F(x,y;i) = 1/2 |y - t_i|^2 + delta/2 |x|^2 + c_i'x."""

    def __init__(self, A, C, b, t, c, delta):
        self.A, self.C, self.b, self.t, self.c = (np.asarray(a, np.float64) for a in (A, C, b, t, c))
        self.delta = float(delta)

    def F(self, x, y, batch):
        return np.mean([0.5 * np.sum((y - self.t[i]) ** 2) + 0.5 * self.delta * (x @ x) + self.c[i] @ x
                        for i in batch])

    def G(self, x, y, batch):
        return np.mean([0.5 * y @ self.A[i] @ y - y @ self.C[i] @ x - self.b[i] @ y for i in batch])

    def F_x(self, x, y, batch):
        return np.mean([self.delta * x + self.c[i] for i in batch], axis=0)

    def F_y(self, x, y, batch):
        return np.mean([y - self.t[i] for i in batch], axis=0)

    def G_y(self, x, y, batch):
        return np.mean([self.A[i] @ y - self.C[i] @ x - self.b[i] for i in batch], axis=0)

    def G_yy(self, x, y, batch):
        return np.mean([self.A[i] for i in batch], axis=0)

    def G_xy(self, x, y, batch):
        return np.mean([-self.C[i].T for i in batch], axis=0)


class HyperCleaning:
    """y = W.ravel(), W of shape (classes, features), row-major; x has one entry per inner sample.
    G(x,y;i) = sigmoid(x_i) CE(W a_i, l_i) + C sum(W**2);   F(x,y;i) = CE(W a_i, l_i), outer data.

    With p = softmax(W a) and e = one-hot(l):  CE = logsumexp(W a) - (W a)_l,
    dCE/dy = kron(p - e, a),   d2CE/dy2 = kron(diag(p) - p p', a a')."""

    def __init__(self, inner_features, inner_labels, outer_features, outer_labels, classes, C):
        self.inner = (np.asarray(inner_features, np.float64), np.asarray(inner_labels, int))
        self.outer = (np.asarray(outer_features, np.float64), np.asarray(outer_labels, int))
        self.classes, self.C = int(classes), float(C)

    @staticmethod
    def sigmoid(s):
        return 0.5 * (1.0 + np.tanh(0.5 * s))

    def logits(self, y, a):
        return y.reshape(self.classes, -1) @ a

    def p(self, y, a):
        z = self.logits(y, a)
        e = np.exp(z - z.max())
        return e / e.sum()

    def CE(self, y, a, label):
        z = self.logits(y, a)
        return z.max() + np.log(np.sum(np.exp(z - z.max()))) - z[label]

    def CE_y(self, y, a, label):
        return np.kron(self.p(y, a) - np.eye(self.classes)[label], a)

    def CE_yy(self, y, a):
        p = self.p(y, a)
        return np.kron(np.diag(p) - np.outer(p, p), np.outer(a, a))

    def F(self, x, y, batch):
        a, l = self.outer
        return np.mean([self.CE(y, a[i], l[i]) for i in batch])

    def G(self, x, y, batch):
        a, l = self.inner
        return np.mean([self.sigmoid(x[i]) * self.CE(y, a[i], l[i]) + self.C * (y @ y) for i in batch])

    def F_x(self, x, y, batch):
        return np.zeros_like(x)

    def F_y(self, x, y, batch):
        a, l = self.outer
        return np.mean([self.CE_y(y, a[i], l[i]) for i in batch], axis=0)

    def G_y(self, x, y, batch):
        a, l = self.inner
        return np.mean([self.sigmoid(x[i]) * self.CE_y(y, a[i], l[i]) + 2 * self.C * y for i in batch], axis=0)

    def G_yy(self, x, y, batch):
        a, _ = self.inner
        return np.mean([self.sigmoid(x[i]) * self.CE_yy(y, a[i]) + 2 * self.C * np.eye(y.size)
                        for i in batch], axis=0)

    def G_xy(self, x, y, batch):
        a, l = self.inner
        J = np.zeros((x.size, y.size))
        for i in batch:  # only row i depends on sample i; a repeated i accumulates
            s = self.sigmoid(x[i])
            J[i] += s * (1 - s) * self.CE_y(y, a[i], l[i]) / len(batch)
        return J


# ---------------------------------------------------------------- hypergradient estimators
def algorithm3(problem, x, y, B_F, B_G, B: Mapping[int, Array], eta: float) -> Array:
    """Algorithm 3; B = {1: B_1, ..., Q: B_Q}.  In lines 4-5 and 8, r_q and M_Q are constants
    with respect to the differentiation."""
    Q = len(B)                                                             # line 1
    F_x = problem.F_x(x, y, B_F)                                           # line 2
    r = [problem.F_y(x, y, B_F)]                                           # line 2: r_0
    for q in range(Q):                                                     # line 3: q = 0..Q-1
        r.append(r[q] - eta * problem.G_yy(x, y, B[Q - q]) @ r[q])         # lines 4-5: r_{q+1}
    M_Q = eta * sum(r)                                                     # line 7: q = 0..Q
    return F_x - problem.G_xy(x, y, B_G) @ M_Q                             # line 8


def equation4(problem, x, y, B_F, B_G, B: Mapping[int, Array], eta: float) -> Array:
    """Equation (4): the product over j = Q-q..Q is written left to right with j ascending,
    so the factor of B_Q stands next to nabla_y F; q = -1 is the empty product I."""
    Q, I = len(B), np.eye(y.size)
    total = np.zeros((y.size, y.size))
    for q in range(-1, Q):                                                 # q = -1..Q-1
        P = I
        for j in range(Q - q, Q + 1):                                      # j = Q-q..Q
            P = P @ (I - eta * problem.G_yy(x, y, B[j]))
        total = total + P
    return problem.F_x(x, y, B_F) - problem.G_xy(x, y, B_G) @ (eta * total) @ problem.F_y(x, y, B_F)


def equation5(problem, x, y, xi, zeta, zetas: Mapping[int, Array], eta: float) -> Array:
    """Equation (5): mean over i = 1..S of the single-sample estimator with xi_i, zeta_i, zeta_i^j."""
    S, Q, I = len(xi), len(zetas), np.eye(y.size)
    assert len(zeta) == S and all(len(zetas[j]) == S for j in range(1, Q + 1))
    total = np.zeros(x.size)
    for i in range(S):
        series = np.zeros((y.size, y.size))
        for q in range(-1, Q):                                             # q = -1..Q-1
            P = I
            for j in range(Q - q, Q + 1):                                  # j = Q-q..Q
                P = P @ (I - eta * problem.G_yy(x, y, [zetas[j][i]]))
            series = series + P
        total = total + (problem.F_x(x, y, [xi[i]])
                         - problem.G_xy(x, y, [zeta[i]]) @ (eta * series) @ problem.F_y(x, y, [xi[i]]))
    return total / S


# ---------------------------------------------------------------- Algorithm 1
def mrbo(problem, x0, y0, draws: Callable[[int], Any], K, gamma, lam, c1, c2, d, m, Q, eta) -> List[Dict]:
    """Algorithm 1, k = 0..K-1 (the listing prints k = 0..K).  eta is the Neumann step,
    eta_k the step size.  The inputs alpha_0, beta_0 of line 1 are never used."""
    def hatgrad(x, y, s):  # hat-nabla Phi(x; B_x), computed by Algorithm 3
        assert len(s.B) == Q
        return algorithm3(problem, x, y, s.B_F, s.B_G, s.B, eta)

    x, y = np.array(x0, np.float64), np.array(y0, np.float64)
    out = []
    for k in range(K):                                                     # line 2
        s = draws(k)                                                       # line 3
        if k == 0:                                                         # line 4
            v = hatgrad(x, y, s)                                           # line 5
            u = problem.G_y(x, y, s.B_y)                                   # line 5
        else:                                                              # line 6
            v = hatgrad(x, y, s) + (1 - alpha) * (v - hatgrad(x_prev, y_prev, s))                       # line 7
            u = problem.G_y(x, y, s.B_y) + (1 - beta) * (u - problem.G_y(x_prev, y_prev, s.B_y))        # line 8
        eta_k = d / np.cbrt(m + k)                                         # line 10
        alpha, beta = c1 * eta_k ** 2, c2 * eta_k ** 2                     # line 10: alpha_{k+1}, beta_{k+1}
        x_prev, y_prev = x, y
        x, y = x - gamma * eta_k * v, y - lam * eta_k * u                  # line 11
        out.append(dict(k=k, x=x, y=y, v=v, u=u, eta_k=eta_k, alpha_next=alpha, beta_next=beta))
    return out


# ---------------------------------------------------------------- Algorithm 2
def vrbo(problem, x0, y0, large: Callable[[int], Any], small: Callable[[int, int], Any],
         K, alpha, beta, m, q, Q, eta, per_sample: bool) -> List[Dict]:
    """Algorithm 2, k = 0..K-1 (the listing prints k = 0..K).  nabla_y G is taken on B_y of the
    batch, hat-nabla Phi on B_F, B_G, B: equation (4), or equation (5) if per_sample.
    large(k) is called only if mod(k, q) = 0; small(k, t) once for each t = 0..m+1."""
    def hatgrad(x, y, s):
        assert len(s.B) == Q
        return (equation5 if per_sample else equation4)(problem, x, y, s.B_F, s.B_G, s.B, eta)

    x, y = np.array(x0, np.float64), np.array(y0, np.float64)              # x_k, y_k
    out = []
    for k in range(K):                                                     # line 2
        if k % q == 0:                                                     # line 3
            S1 = large(k)                                                  # line 4
            u, v = problem.G_y(x, y, S1.B_y), hatgrad(x, y, S1)            # line 5
        else:                                                              # line 6
            u, v = ut[m + 1], vt[m + 1]                                    # line 7: of k - 1
        x_next = x - alpha * v                                             # line 9
        xt, yt = {-1: x, 0: x_next}, {-1: y, 0: y}                         # line 10: x~_{k,t}, y~_{k,t}
        vt, ut = {-1: v}, {-1: u}                                          # line 10: v~_{k,t}, u~_{k,t}
        for t in range(m + 2):                                             # line 11: t = 0..m+1
            S2 = small(k, t)                                               # line 12
            vt[t] = vt[t - 1] + hatgrad(xt[t], yt[t], S2) - hatgrad(xt[t - 1], yt[t - 1], S2)           # line 13
            ut[t] = (ut[t - 1] + problem.G_y(xt[t], yt[t], S2.B_y)
                     - problem.G_y(xt[t - 1], yt[t - 1], S2.B_y))          # line 14
            xt[t + 1], yt[t + 1] = xt[t], yt[t] - beta * ut[t]             # line 15 (y~_{k,m+2} is never used)
        x, y = x_next, yt[m + 1]                                           # line 17: y_{k+1} = y~_{k,m+1}
        out.append(dict(k=k, x=x, y=y, v=v, u=u, v_last=vt[m + 1], u_last=ut[m + 1]))
    return out


# ---------------------------------------------------------------- checks
@dataclass
class Draw:
    B_y: Array
    B_F: Array
    B_G: Array
    B: Dict[int, Array]


def _fd(f, z, h=1e-5):
    """Central differences; row a is d f / d z_a."""
    return np.array([(f(z + h * e) - f(z - h * e)) / (2 * h) for e in np.eye(z.size)])


def _example(name, rng):
    if name == "quadratic":
        n, mo, dx, dy = 7, 6, 3, 4
        R = rng.normal(size=(n, dy, dy))
        A = 0.2 * R @ R.transpose(0, 2, 1) + 0.5 * np.eye(dy)
        p = Quadratic(A, rng.normal(size=(n, dy, dx)), rng.normal(size=(n, dy)),
                      rng.normal(size=(mo, dy)), rng.normal(size=(mo, dx)), 0.3)
    else:
        n, mo, dx, classes, feats = 7, 6, 7, 3, 4
        dy = classes * feats
        p = HyperCleaning(rng.normal(size=(n, feats)), rng.integers(classes, size=n),
                          rng.normal(size=(mo, feats)), rng.integers(classes, size=mo), classes, 0.05)

    def draw(S, Q):  # with replacement: entries repeat
        return Draw(rng.integers(n, size=S), rng.integers(mo, size=S), rng.integers(n, size=S),
                    {j: rng.integers(n, size=S) for j in range(1, Q + 1)})
    full = lambda Q: Draw(np.arange(n), np.arange(mo), np.arange(n), {j: np.arange(n) for j in range(1, Q + 1)})
    return p, rng.normal(size=dx), rng.normal(size=dy), draw, full


def check():
    def report(label, err, tol):
        print(f"{label:58s} {err:.2e}  (tol {tol:g})")
        assert err < tol, label

    amax = lambda a, b: float(np.max(np.abs(a - b)))
    for name in ("quadratic", "hypercleaning"):
        rng = np.random.default_rng(0)
        p, x, y, draw, full = _example(name, rng)
        print("---", name)

        # derivatives, on batches with repeated entries
        bo, bi = np.array([1, 4, 4, 0, 5]), np.array([2, 2, 0, 6, 3])
        report("F_x", amax(p.F_x(x, y, bo), _fd(lambda z: p.F(z, y, bo), x)), 1e-8)
        report("F_y", amax(p.F_y(x, y, bo), _fd(lambda z: p.F(x, z, bo), y)), 1e-8)
        report("G_y", amax(p.G_y(x, y, bi), _fd(lambda z: p.G(x, z, bi), y)), 1e-8)
        report("G_yy", amax(p.G_yy(x, y, bi), _fd(lambda z: p.G_y(x, z, bi), y)), 1e-8)
        report("G_yy symmetric", amax(p.G_yy(x, y, bi), p.G_yy(x, y, bi).T), 1e-15)
        report("G_xy", amax(p.G_xy(x, y, bi), _fd(lambda z: p.G_y(z, y, bi), x)), 1e-8)

        # hypergradient estimators
        for Q in (0, 1, 2, 5):
            s, one = draw(4, Q), draw(1, Q)
            a3, e4 = (f(p, x, y, s.B_F, s.B_G, s.B, 0.2) for f in (algorithm3, equation4))
            report(f"algorithm3 == equation4, Q={Q}", amax(a3, e4), 1e-12)
            report(f"equation5 (S=1) == equation4 (size one), Q={Q}",
                   amax(equation5(p, x, y, one.B_F, one.B_G, one.B, 0.2),
                        equation4(p, x, y, one.B_F, one.B_G, one.B, 0.2)), 1e-12)
        rev = {j: s.B[Q + 1 - j] for j in s.B}
        assert amax(e4, equation4(p, x, y, s.B_F, s.B_G, rev, 0.2)) > 1e-6, "order must matter"
        assert amax(e4, equation5(p, x, y, s.B_F, s.B_G, s.B, 0.2)) > 1e-6, "(4) and (5) must differ"
        f = full(2000 if name == "quadratic" else 20)
        H, J = p.G_yy(x, y, f.B_y), p.G_xy(x, y, f.B_G)
        w, V = np.linalg.eigh(H)                        # eta sum_{q=0}^Q (1 - eta w)^q, eigenvalue by eigenvalue
        closed = V @ np.diag((1 - (1 - 0.2 * w) ** (len(f.B) + 1)) / w) @ V.T
        ref = p.F_x(x, y, f.B_F) - J @ closed @ p.F_y(x, y, f.B_F)
        report("algorithm3, full batch == closed-form Neumann sum",
               amax(algorithm3(p, x, y, f.B_F, f.B_G, f.B, 0.2), ref), 1e-10)
        if name == "quadratic":                         # Q large: the true hypergradient, at y = y*(x)
            ystar = lambda z: np.linalg.solve(p.A.mean(0), p.C.mean(0) @ z + p.b.mean(0))
            report("algorithm3, Q=2000, y=y*(x) == d/dx F(x, y*(x))",
                   amax(algorithm3(p, x, ystar(x), f.B_F, f.B_G, f.B, 0.2),
                        _fd(lambda z: p.F(z, ystar(z), f.B_F), x)), 1e-8)

        # MRBO
        Q, K, kw = 3, 6, dict(gamma=0.3, lam=0.4, c1=0.7, c2=0.9, d=0.8, m=2.0, Q=3, eta=0.2)
        D = [draw(4, Q) for _ in range(K)]
        out = mrbo(p, x, y, D.__getitem__, K, **kw)
        # k = 2 from the records alone
        h = lambda a, b, s: equation4(p, a, b, s.B_F, s.B_G, s.B, 0.2)
        (z0, z1, z2), s = out[:3], D[2]
        al, be = 0.7 * 0.8 ** 2 / 3.0 ** (2 / 3), 0.9 * 0.8 ** 2 / 3.0 ** (2 / 3)   # alpha_2, beta_2 from eta_1
        v2 = h(z1["x"], z1["y"], s) + (1 - al) * (z1["v"] - h(z0["x"], z0["y"], s))
        u2 = p.G_y(z1["x"], z1["y"], s.B_y) + (1 - be) * (z1["u"] - p.G_y(z0["x"], z0["y"], s.B_y))
        report("mrbo: v_2, u_2 by hand", max(amax(v2, z2["v"]), amax(u2, z2["u"])), 1e-13)
        step = 0.8 / 4.0 ** (1 / 3)
        report("mrbo: x_3, y_3 by hand", max(amax(z1["x"] - 0.3 * step * v2, z2["x"]),
                                             amax(z1["y"] - 0.4 * step * u2, z2["y"])), 1e-13)
        out = mrbo(p, x, y, lambda k: full(Q), K, **kw)  # no noise: v_k, u_k are the current gradients
        err = 0.0
        for a, b in zip(out, out[1:]):
            err = max(err, amax(b["v"], h(a["x"], a["y"], full(Q))), amax(b["u"], p.G_y(a["x"], a["y"], full(Q).B_y)))
        report("mrbo: constant batch, v_k and u_k telescope", err, 1e-12)

        # VRBO
        K, m, q = 5, 3, 2
        for per in (False, True):
            est = equation5 if per else equation4
            g = lambda a, b, s: est(p, a, b, s.B_F, s.B_G, s.B, 0.2)
            S1 = {k: draw(6, Q) for k in range(0, K, q)}          # KeyError if called off period
            S2 = {(k, t): draw(3, Q) for k in range(K) for t in range(m + 2)}
            used = []
            small = lambda k, t: (used.append((k, t)), S2[k, t])[1]
            out = vrbo(p, x, y, S1.__getitem__, small, K, 0.1, 0.2, m, q, Q, 0.2, per)
            assert used == sorted(S2) and len(used) == K * (m + 2)
            # k = 0 in the telescoped form: the t = 0 term moves x only, the t >= 1 terms move y only
            v, u, yy, x1 = out[0]["v"], out[0]["u"], y, x - 0.1 * out[0]["v"]
            v = v + g(x1, yy, S2[0, 0]) - g(x, yy, S2[0, 0])
            u = u + p.G_y(x1, yy, S2[0, 0].B_y) - p.G_y(x, yy, S2[0, 0].B_y)
            for t in range(1, m + 2):                             # m + 1 updates of y
                yn, s = yy - 0.2 * u, S2[0, t]
                v = v + g(x1, yn, s) - g(x1, yy, s)
                u, yy = u + p.G_y(x1, yn, s.B_y) - p.G_y(x1, yy, s.B_y), yn
            o = out[0]
            report(f"vrbo: k=0 by hand, per_sample={per}",
                   max(amax(o["v"], g(x, y, S1[0])), amax(o["u"], p.G_y(x, y, S1[0].B_y)), amax(o["x"], x1),
                       amax(o["y"], yy), amax(o["v_last"], v), amax(o["u_last"], u)), 1e-13)
            assert all((out[k]["v"] is out[k - 1]["v_last"]) == (k % q != 0) for k in range(1, K))
        fb = full(Q)                                              # no noise: m + 1 gradient steps on y
        out = vrbo(p, x, y, lambda k: fb, lambda k, t: fb, K, 0.1, 0.2, m, q, Q, 0.2, False)
        X, Y, err = x, y, 0.0
        for o in out:
            X = X - 0.1 * equation4(p, X, Y, fb.B_F, fb.B_G, fb.B, 0.2)
            for _ in range(m + 1):
                Y = Y - 0.2 * p.G_y(X, Y, fb.B_y)
            err = max(err, amax(o["x"], X), amax(o["y"], Y), amax(o["u_last"], p.G_y(X, Y, fb.B_y)),
                      amax(o["v_last"], equation4(p, X, Y, fb.B_F, fb.B_G, fb.B, 0.2)))
        report("vrbo: constant batch == deterministic, m+1 steps on y", err, 1e-12)
    print("all checks passed")


if __name__ == "__main__":
    check()
