"""RSVRB, the (randomized) stochastic variance-reduced bilevel method (Guo, Hu, Zhang and Yang, 2021)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import dense
from bilax.hyperparameters import batch_size, hyperparameters, inner_step, outer_step, positive, weight
from bilax.numerics.tree import storm, zeros_like
from bilax.optimisers import Step, descend, size_of, start
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.types import Key, PyTree, Scalar


class Pieces(NamedTuple):
    a: PyTree  # grad_x f
    b: PyTree  # grad_y f
    s: PyTree  # grad_y g
    H: dense.Matrices  # J and H of the paper


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    y_prev: PyTree  # y_{k-1}
    z: Pieces  # z_{k-1}
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class RSVRB:
    r"""Recursive momentum on every piece of the hypergradient, combined by a dense inverse. One lower-level problem.

    .. math::
        z_k &= z(x_k, y_k; B) + (1 - \beta)(z_{k-1} - z(x_{k-1}, y_{k-1}; B)), \quad
        z \in \{\nabla_x F, \nabla_y F, \nabla_x\nabla_y G, \nabla_y^2 G, \nabla_y G\} \\
        x_{k+1} &= x_k - \gamma (a_k - J_k H_k^{-1} b_k), \qquad y_{k+1} = y_k - \tau \gamma s_k

    where H_k keeps eigenvalues of at least mu and J_k singular values of at most C, as in STABLE.

    >>> RSVRB(S=10).draws()
    Draws(F=10, G=10)
    """

    about = About(
        name="rsvrb",
        loops="single",
        reduces="every gradient, the Hessian and the Jacobian (STORM)",
        calls={"F": "2 * S", "G": "2 * S", "JV": "2 * d_y * S", "HV": "2 * d_y * S", "HINV": "1"},
        random={"JV": "2 * d_y * S", "HV": "2 * d_y * S"},
        draws={"F": "S", "G": "S"},
        complexity="eps^-1.5",
        reference="Guo, Hu, Zhang, Yang. Randomized Stochastic Variance-Reduced Methods for Multi-Task Stochastic "
        "Bilevel Optimization. arXiv:2105.02266, 2021",
        scaling=Scaling(
            exponent=1.5,
            fixed=lambda eps: {"S": 1, "mu": 0.2, "C": 10.0},
            grid={"gamma": (1e-3, 3e-3, 1e-2, 3e-2), "tau": (10.0, 30.0), "beta": (0.03, 0.3)},
            steps=100_000,
            others=(
                lambda eps: {"S": 4, "mu": 0.2, "C": 10.0},
                lambda eps: {"S": 16, "mu": 0.2, "C": 10.0},
                lambda eps: {"S": 64, "mu": 0.2, "C": 10.0},
            ),
        ),
    )

    gamma: Step = outer_step(default=0.1)
    tau: Step = inner_step(default=1.0, doc="inner step size relative to the outer one")
    beta: Scalar = weight(default=0.1, doc="weight of the new pieces")
    mu: Scalar = positive(default=1e-3, doc="lower bound of the eigenvalues of H")
    C: Scalar = positive(default=1e3, doc="upper bound of the singular values of J")
    S: int = batch_size(default=1, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        H = dense.zeros("RSVRB", x0, y0)
        z = Pieces(zeros_like(x0), zeros_like(y0), zeros_like(y0), H)
        return State(jnp.zeros((), jnp.int32), x0, y0, x0, y0, z, start(self.gamma, x0), start(self.tau, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_G, key_F = jax.random.split(key)
        B_G, B_F = oracle.draw_G(key_G, self.S), oracle.draw_F(key_F, self.S)

        def pieces(x, y):
            F_x, F_y = oracle.grad_F(x, y, B_F)
            F_y = oracle.tangent(x, y, B_G, F_y)
            return Pieces(F_x, F_y, oracle.grad_G(x, y, B_G), dense.matrices(oracle, x, y, B_G))

        new, old = at_two_points(pieces, (s.x, s.y), (s.x_prev, s.y_prev))
        z = storm(s.z, jnp.where(s.k == 0, 1, self.beta), new, old)
        z = z._replace(H=dense.project(z.H, self.mu, self.C))
        a, unravel_x = ravel_pytree(z.a)
        v = unravel_x(a - z.H.xy @ oracle.factor(z.H.yy)(ravel_pytree(z.b)[0]))
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x)
        gamma = size_of(self.gamma, "also for y, relative to it")
        y, y_memory = descend(self.tau, s.y_memory, z.s, s.y, oracle.project_y, gamma)
        calls = 2 * dense.calls(s.y, B_G)
        return State(s.k + 1, x, y, s.x, s.y, z, x_memory, y_memory), info(v, z.s, Counts(HV=calls, JV=calls))

    def cost(self, k: int) -> Counts:
        return Counts(F=2 * self.S, G=2 * self.S, HINV=1)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)
