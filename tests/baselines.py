"""NumPy transcripts of eleven bilevel methods and five hypergradient estimators; float64, explicit matrices.

Companion of transcript.py (problem classes, Algorithm 3, MRBO).  A problem has F_x, F_y, G_y,
G_yy (d_y x d_y) and G_xy (d_x x d_y); a batch is an integer index array.
Every method runs k = 0..K-1 and returns K dicts: k, x = x_{k+1}, y = y_{k+1}, v (moved x), u (last that moved y).
proj is applied to every new x, proj_y to every new y (inner steps included); both default to the identity.
In the comments of a loop, x and y are x_k and y_k until they are overwritten.
"""

import numpy as np
import transcript


def identity(z):
    return z


def start(x0, y0):
    return np.array(x0, np.float64), np.array(y0, np.float64)


# ---------------------------------------------------------------- hypergradient estimators
def dense(problem, x, y, B_F, B_G):
    w = np.linalg.solve(problem.G_yy(x, y, B_G), problem.F_y(x, y, B_F))
    return problem.F_x(x, y, B_F) - problem.G_xy(x, y, B_G) @ w


def random_series(problem, x, y, B_F, B_G, factors, N, eta):
    """factors: list of p batches, p in {0, ..., N-1} the random length; N terms in the series."""
    assert len(factors) <= N - 1
    r = problem.F_y(x, y, B_F)
    for batch in factors:
        r = r - eta * problem.G_yy(x, y, batch) @ r
    w = N * eta * r
    return problem.F_x(x, y, B_F) - problem.G_xy(x, y, B_G) @ w


def fixed_point(problem, x, y, B_F, B_G, steps, eta):
    H, F_y = problem.G_yy(x, y, B_G), problem.F_y(x, y, B_F)
    v = np.zeros_like(F_y)
    for _ in range(steps):
        v = v - eta * H @ v + F_y
    return problem.F_x(x, y, B_F) - eta * problem.G_xy(x, y, B_G) @ v


def conjugate_gradient(problem, x, y, B_F, B_G, steps):
    H, b = problem.G_yy(x, y, B_G), problem.F_y(x, y, B_F)
    w, r, p = np.zeros_like(b), b, b  # w_0 = 0, r_0 = b - H w_0, p_0 = r_0
    for _ in range(steps):
        if r @ r == 0:  # solved exactly: the next step would be 0/0
            break
        a = (r @ r) / (p @ H @ p)
        w = w + a * p
        r_new = r - a * H @ p
        beta = (r_new @ r_new) / (r @ r)
        p = r_new + beta * p
        r = r_new
    return problem.F_x(x, y, B_F) - problem.G_xy(x, y, B_G) @ w


def unrolled(problem, x, ys, batches, B_F, step, last):
    """ys = [y_0, ..., y_T], y_{t+1} = y_t - step G_y(x, y_t; batches[t]).
    d/dx F(x, y_T(x); B_F) with y_{T-last} a constant."""
    T = len(ys) - 1
    assert len(batches) == T and 0 <= last <= T
    grad = problem.F_x(x, ys[T], B_F)
    a = problem.F_y(x, ys[T], B_F)  # a = dF/dy_{t+1}
    for t in reversed(range(T - last, T)):  # t = T-1, ..., T-last
        grad = grad - step * problem.G_xy(x, ys[t], batches[t]) @ a
        a = a - step * problem.G_yy(x, ys[t], batches[t]).T @ a
    return grad


# ---------------------------------------------------------------- matrix projections (STABLE, RSVRB)
def clip_norm(M, C):
    """Nearest matrix of spectral norm <= C: singular values clipped at C."""
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return U @ np.diag(np.minimum(s, C)) @ Vt


def clip_below(M, mu):
    """Nearest symmetric matrix with eigenvalues >= mu: symmetrise, then clip."""
    w, V = np.linalg.eigh((M + M.T) / 2)
    return V @ np.diag(np.maximum(w, mu)) @ V.T


# ---------------------------------------------------------------- 1. MRBO, several inner updates
def mrbo_d(problem, x0, y0, draws, K, gamma, lam, c1, c2, d, m, Q, eta, inner, proj=identity, proj_y=identity):
    """draws(k): B_F, B_G, B (1..Q), B_y (list of `inner` batches).  alpha, beta are not clipped at 1."""

    def g(x, y, s):
        assert len(s.B) == Q
        return transcript.algorithm3(problem, x, y, s.B_F, s.B_G, s.B, eta)

    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B_y) == inner
        eta_k = d / np.cbrt(m + k)
        if k == 0:
            alpha = beta = 1.0
            v = g(x, y, s)
        else:
            v = g(x, y, s) + (1 - alpha) * (v - g(x_prev, y_prev, s))
        x_prev, y_prev = x, y  # (x_k, y_{k,0}), for v_{k+1}

        for j in range(inner):
            if k == 0:
                u = problem.G_y(x, y, s.B_y[j])
            else:
                u = problem.G_y(x, y, s.B_y[j]) + (1 - beta) * (u - problem.G_y(x_u, y_u, s.B_y[j]))
            x_u, y_u = x, y  # the point at which this u was evaluated
            y = proj_y(y - lam * eta_k * u)

        x = proj(x - gamma * eta_k * v)
        alpha, beta = c1 * eta_k**2, c2 * eta_k**2  # alpha_{k+1}, beta_{k+1}
        out.append(dict(k=k, x=x, y=y, v=v, u=u, eta_k=eta_k, alpha_next=alpha, beta_next=beta))
    return out


# ---------------------------------------------------------------- 2. stocBiO
def stocbio(problem, x0, y0, draws, K, alpha, beta, D, Q, eta, proj=identity, proj_y=identity):
    """draws(k): B_y (list of D), B_F, B_G, B (1..Q).  alpha moves y, beta moves x."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B_y) == D and len(s.B) == Q
        for t in range(D):
            u = problem.G_y(x, y, s.B_y[t])
            y = proj_y(y - alpha * u)
        v = transcript.algorithm3(problem, x, y, s.B_F, s.B_G, s.B, eta)
        x = proj(x - beta * v)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 3. BSA
def bsa(problem, x0, y0, draws, K, alpha, beta, a, b, T, N, eta, proj=identity, proj_y=identity):
    """draws(k): B_y (list of T), B_F, B_G, factors."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B_y) == T
        for t in range(T):
            u = problem.G_y(x, y, s.B_y[t])
            y = proj_y(y - beta / (t + 1) ** b * u)
        v = random_series(problem, x, y, s.B_F, s.B_G, s.factors, N, eta)
        x = proj(x - alpha / (k + 1) ** a * v)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 4. TTSA
def ttsa(problem, x0, y0, draws, K, alpha, beta, a, b, N, eta, proj=identity, proj_y=identity):
    """draws(k): B_y, B_F, B_G, factors."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        u = problem.G_y(x, y, s.B_y)
        y = proj_y(y - beta / (k + 1) ** b * u)  # y_{k+1}
        v = random_series(problem, x, y, s.B_F, s.B_G, s.factors, N, eta)  # at (x_k, y_{k+1})
        x = proj(x - alpha / (k + 1) ** a * v)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 5. MSTSA
def mstsa(problem, x0, y0, draws, K, alpha, beta, c, N, eta, proj=identity, proj_y=identity):
    """draws(k): B_y, B_F, B_G, factors.  STORM on v, plain steps on y."""

    def g(x, y, s):
        return random_series(problem, x, y, s.B_F, s.B_G, s.factors, N, eta)

    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        alpha_k, beta_k = alpha / np.sqrt(k + 1), beta / np.sqrt(k + 1)
        u = problem.G_y(x, y, s.B_y)
        y_new = proj_y(y - beta_k * u)  # y_{k+1}
        if k == 0:
            v = g(x, y_new, s)
        else:
            v = g(x, y_new, s) + (1 - eta_k) * (v - g(x_prev, y, s))  # (x_k, y_{k+1}), (x_{k-1}, y_k)
        eta_k = min(1.0, c * alpha_k)  # eta_{k+1}
        x_prev = x
        x, y = proj(x - alpha_k * v), y_new
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 6. SUSTAIN
def sustain(problem, x0, y0, draws, K, c, c_b, c_f, c_g, w, N, eta, proj=identity, proj_y=identity):
    """draws(k): B_y, B_F, B_G, factors.  STORM on u and v."""

    def g(x, y, s):
        return random_series(problem, x, y, s.B_F, s.B_G, s.factors, N, eta)

    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        alpha_k = c / np.cbrt(w + k)
        beta_k = c_b * alpha_k
        if k == 0:
            u, v = problem.G_y(x, y, s.B_y), g(x, y, s)
        else:
            u = problem.G_y(x, y, s.B_y) + (1 - eta_g) * (u - problem.G_y(x_prev, y_prev, s.B_y))
            v = g(x, y, s) + (1 - eta_f) * (v - g(x_prev, y_prev, s))
        eta_f, eta_g = min(1.0, c_f * alpha_k**2), min(1.0, c_g * alpha_k**2)  # of k+1
        x_prev, y_prev = x, y
        x, y = proj(x - alpha_k * v), proj_y(y - beta_k * u)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 7. SEMA
def sema(problem, x0, y0, draws, K, gamma, tau, alpha, beta, Q, eta, proj=identity, proj_y=identity):
    """draws(k): B_y, B_F, B_G, B (1..Q).  Plain moving averages."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B) == Q
        G_y = problem.G_y(x, y, s.B_y)
        g = transcript.algorithm3(problem, x, y, s.B_F, s.B_G, s.B, eta)
        if k == 0:
            u, v = G_y, g
        else:
            u = (1 - beta) * u + beta * G_y
            v = (1 - alpha) * v + alpha * g
        x, y = proj(x - gamma * v), proj_y(y - tau * u)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 8. STABLE
def stable(problem, x0, y0, draws, K, alpha, beta, tau, mu, C, proj=identity, proj_y=identity):
    """draws(k): B_G (phi_k), B_F (xi_k).  Hxy, Hyy of the record are the matrices used at step k."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        phi, xi = s.B_G, s.B_F
        if k == 0:  # tau_0 = 1
            Hxy = clip_norm(problem.G_xy(x, y, phi), C)
            Hyy = clip_below(problem.G_yy(x, y, phi), mu)
        else:
            Hxy = clip_norm((1 - tau) * (Hxy - problem.G_xy(x_prev, y_prev, phi)) + problem.G_xy(x, y, phi), C)
            Hyy = clip_below((1 - tau) * (Hyy - problem.G_yy(x_prev, y_prev, phi)) + problem.G_yy(x, y, phi), mu)
        v = problem.F_x(x, y, xi) - Hxy @ np.linalg.solve(Hyy, problem.F_y(x, y, xi))
        u = problem.G_y(x, y, phi)
        x_new = proj(x - alpha * v)
        y_new = proj_y(y - beta * u - np.linalg.solve(Hyy, Hxy.T @ (x_new - x)))
        x_prev, y_prev = x, y
        x, y = x_new, y_new
        out.append(dict(k=k, x=x, y=y, v=v, u=u, Hxy=Hxy, Hyy=Hyy))
    return out


# ---------------------------------------------------------------- 9. RSVRB, one lower-level task
def rsvrb(problem, x0, y0, draws, K, gamma, tau, beta, mu, C, proj=identity, proj_y=identity):
    """draws(k): B_F (a, b), B_G (J, H, s).  J, H of the record are the projected matrices of step k."""

    def pieces(x, y, d):
        return (
            problem.F_x(x, y, d.B_F),
            problem.F_y(x, y, d.B_F),
            problem.G_xy(x, y, d.B_G),
            problem.G_yy(x, y, d.B_G),
            problem.G_y(x, y, d.B_G),
        )

    x, y = start(x0, y0)
    out = []
    for k in range(K):
        d = draws(k)
        if k == 0:  # beta_0 = 1
            z = pieces(x, y, d)
        else:
            z = tuple(
                new + (1 - beta) * (before - old)
                for new, before, old in zip(pieces(x, y, d), z, pieces(x_prev, y_prev, d))
            )
        a, b, J, H, s = z
        J, H = clip_norm(J, C), clip_below(H, mu)
        z = a, b, J, H, s  # what step k+1 recurses on
        v = a - J @ np.linalg.solve(H, b)
        x_prev, y_prev = x, y
        x, y = proj(x - gamma * v), proj_y(y - tau * gamma * s)
        out.append(dict(k=k, x=x, y=y, v=v, u=s, a=a, b=b, J=J, H=H))
    return out


# ---------------------------------------------------------------- 10. AID
def aid(problem, x0, y0, draws, K, alpha, beta, T, estimator, proj=identity, proj_y=identity):
    """draws(k): B_y (list of T), B_F, B_G.  estimator(problem, x, y, B_F, B_G).  alpha moves x, beta moves y."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B_y) == T
        for t in range(T):
            u = problem.G_y(x, y, s.B_y[t])
            y = proj_y(y - beta * u)
        v = estimator(problem, x, y, s.B_F, s.B_G)
        x = proj(x - alpha * v)
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out


# ---------------------------------------------------------------- 11. reverse mode (ITD), truncated
def reverse(problem, x0, y0, draws, K, alpha, beta, T, last, proj=identity):
    """draws(k): B_y (list of T), B_F.  No proj_y: `unrolled` differentiates unprojected steps."""
    x, y = start(x0, y0)
    out = []
    for k in range(K):
        s = draws(k)
        assert len(s.B_y) == T
        ys = [y]
        for t in range(T):
            u = problem.G_y(x, ys[t], s.B_y[t])
            ys.append(ys[t] - beta * u)
        v = unrolled(problem, x, ys, s.B_y, s.B_F, beta, last)
        x, y = proj(x - alpha * v), ys[T]
        out.append(dict(k=k, x=x, y=y, v=v, u=u))
    return out
