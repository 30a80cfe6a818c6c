"""STABLE, the single-timescale stochastic bilevel method (Chen, Sun, Xiao and Yin, AISTATS 2022)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import dense
from bilax.hyperparameters import batch_size, hyperparameters, inner_step, outer_step, positive, weight
from bilax.numerics.tree import axpy, storm
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    y_prev: PyTree  # y_{k-1}
    H: dense.Matrices  # H_{k-1}^xy and H_{k-1}^yy
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class STABLE:
    r"""Recursive momentum on the dense Hessian and Jacobian; y also follows the move of x.

    .. math::
        H^{xy}_k &= P_{\|\cdot\| \le C}\big[(1 - \tau)(H^{xy}_{k-1} - \nabla_x\nabla_y G(x_{k-1}, y_{k-1}; \phi_k))
                   + \nabla_x\nabla_y G(x_k, y_k; \phi_k)\big] \\
        H^{yy}_k &= P_{\succeq \mu I}\big[(1 - \tau)(H^{yy}_{k-1} - \nabla_y^2 G(x_{k-1}, y_{k-1}; \phi_k))
                   + \nabla_y^2 G(x_k, y_k; \phi_k)\big] \\
        x_{k+1} &= \mathrm{Proj}_X(x_k - \alpha (\nabla_x F - H^{xy}_k (H^{yy}_k)^{-1} \nabla_y F)) \\
        y_{k+1} &= y_k - \beta \nabla_y G(x_k, y_k; \phi_k) - (H^{yy}_k)^{-1} (H^{xy}_k)^\top (x_{k+1} - x_k)

    >>> STABLE(S=10).draws()
    Draws(F=10, G=10)
    """

    about = About(
        name="stable",
        loops="single",
        reduces="the Hessian and the Jacobian (STORM)",
        calls={"F": "S", "G": "S", "JV": "2 * d_y * S", "HV": "2 * d_y * S", "HINV": "1"},
        random={"JV": "2 * d_y * S", "HV": "2 * d_y * S"},
        draws={"F": "S", "G": "S"},
        complexity="eps^-2",
        reference="Chen, Sun, Xiao, Yin. A Single-Timescale Method for Stochastic Bilevel Optimization. AISTATS 2022",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"S": 1, "mu": 0.2, "C": 10.0},
            grid={"alpha": (1e-3, 3e-3, 1e-2, 3e-2), "beta": (0.003, 0.03), "tau": (0.03, 0.3)},
            steps=100_000,
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    tau: Scalar = weight(default=0.1, doc="weight of the new matrices")
    mu: Scalar = positive(default=1e-3, doc="lower bound of the eigenvalues of H^yy")
    C: Scalar = positive(default=1e3, doc="upper bound of the singular values of H^xy")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        H = dense.zeros("STABLE", x0, y0)
        return State(jnp.zeros((), jnp.int32), x0, y0, x0, y0, H, start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_G, key_F = jax.random.split(key)
        phi, xi = oracle.draw_G(key_G, self.S), oracle.draw_F(key_F, self.S)
        new, old = at_two_points(lambda x, y: dense.matrices(oracle, x, y, phi), (s.x, s.y), (s.x_prev, s.y_prev))
        tau = jnp.where(s.k == 0, 1, self.tau)
        H = dense.project(storm(s.H, tau, new, old), self.mu, self.C)
        solve = oracle.factor(H.yy)

        F_x, F_y = oracle.grad_F(s.x, s.y, xi)
        F_y = oracle.tangent(s.x, s.y, phi, F_y)
        flat, unravel_x = ravel_pytree(F_x)
        v = unravel_x(flat - H.xy @ solve(ravel_pytree(F_y)[0]))
        x, x_memory = descend(self.alpha, s.x_memory, v, s.x, oracle.project_x)
        u = oracle.grad_G(s.x, s.y, phi)
        moved = ravel_pytree(axpy(-1, s.x, x))[0]
        follow = ravel_pytree(s.y)[1](solve(H.xy.T @ moved))
        y, y_memory = descend(self.beta, s.y_memory, u, s.y)
        y = oracle.project_y(axpy(-1, follow, y))
        calls = 2 * dense.calls(s.y, phi)
        return State(s.k + 1, x, y, s.x, s.y, H, x_memory, y_memory), info(v, u, Counts(HV=calls, JV=calls))

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=self.S, HINV=1)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)
