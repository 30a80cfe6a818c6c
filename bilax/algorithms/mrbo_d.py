"""MRBO(D), the double-loop MRBO of the experiments on 20 Newsgroups (Yang, Ji and Liang, NeurIPS 2021, Appendix B)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import neumann
from bilax.hyperparameters import (
    Eta,
    batch_size,
    count,
    hyperparameters,
    inner_step,
    nonnegative,
    outer_step,
    positive,
    series_step,
)
from bilax.numerics.tree import real, storm, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, at_two_points, each_batch
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_prev: PyTree  # x_{k-1}
    y_prev: PyTree  # y_{k-1}
    y_last: PyTree  # where u was last evaluated, with x_prev
    v: PyTree
    u: PyTree
    alpha: jax.Array
    beta: jax.Array
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class MRBOD:
    r"""MRBO with its inner update applied N times per outer step, each time on a new batch.

    .. math::
        u_{k,j} = \nabla_y G(x_k, y_{k,j}; B_j) + (1 - \beta_k)(u^- - \nabla_y G(x^-, y^-; B_j)), \quad
        y_{k,j+1} = y_{k,j} - \lambda \eta_k u_{k,j}, \quad j < N

    where u^- is the preceding u and (x^-, y^-) its point; all else is as in MRBO. With N = 1 the two are the same.

    >>> MRBOD(S=10).cost(k=0)
    Counts(F=20, G=200, JV=20, HV=60, HINV=0)
    """

    about = About(
        name="mrbo-d",
        loops="double",
        reduces="x and y (STORM)",
        calls={"F": "2 * S", "G": "2 * N * S", "JV": "2 * S", "HV": "2 * Q * S"},
        draws={"F": "S", "G": "(N + Q + 1) * S"},
        complexity="not analysed",
        reference="Yang, Ji, Liang. Provably Faster Algorithms for Bilevel Optimization. NeurIPS 2021, Appendix B",
        scaling=Scaling(
            exponent=None,
            fixed=lambda eps: {"Q": 10, "eta": 0.75, "S": 1, "d": 1.0, "m": 8.0, "N": 4},
            grid={"gamma": (0.003, 0.01, 0.03, 0.1), "lam": (0.1, 0.3), "c1": (0.3, 3.0)},
            steps=30_000,
        ),
    )

    gamma: Step = outer_step(default=0.1)
    lam: Step = inner_step(default=0.1, doc="inner step size, lambda in the paper")
    c1: Scalar = nonnegative(default=1.0, doc="outer momentum, alpha_{k+1} = c1 eta_k^2")
    c2: Scalar = nonnegative(default=1.0, doc="inner momentum, beta_{k+1} = c2 eta_k^2")
    d: Scalar = positive(default=1.0, doc="scale of eta_k = d / (m + k)^(1/3)")
    m: Scalar = positive(default=8.0, doc="delay of eta_k = d / (m + k)^(1/3)")
    N: int = count(default=10, doc="inner updates per outer step")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k, one = jnp.zeros((), jnp.int32), jnp.ones((), float)
        v, u = zeros_like(x0), zeros_like(y0)
        return State(k, x0, y0, x0, y0, y0, v, u, one, one, start(self.gamma, x0), start(self.lam, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_x = jax.random.split(key)
        B_x = neumann.draw(oracle, key_x, self.S, self.Q)
        eta_k = self.d / (self.m + real(s.k)) ** (1 / 3)
        through, batch_of = each_batch(oracle.draw_G, keys.for_loop(key_y, self.N), self.S)

        def inner(carry, item):
            x_prev, y_prev, y_j, u, memory = carry
            B_j = batch_of(item)
            G_y, G_y_prev = at_two_points(lambda x, y: oracle.grad_G(x, y, B_j), (s.x, y_j), (x_prev, y_prev))
            u = storm(u, s.beta, G_y, G_y_prev)
            y_next, memory = descend(self.lam, memory, u, y_j, oracle.project_y, eta_k)
            return (s.x, y_j, y_next, u, memory), None

        def hypergrad(x, y):
            return neumann.hypergrad(oracle, x, y, B_x, self.eta)

        Phi, Phi_prev = at_two_points(hypergrad, (s.x, s.y), (s.x_prev, s.y_prev))
        v = storm(s.v, s.alpha, Phi.value, Phi_prev.value)
        first = (s.x_prev, s.y_last, s.y, s.u, s.y_memory)
        (_, y_last, y, u, y_memory), _ = jax.lax.scan(inner, first, through)
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x, eta_k)
        alpha, beta = (jnp.minimum(c * eta_k**2, 1).astype(float) for c in (self.c1, self.c2))
        Phi = neumann.with_larger_residuals(Phi, Phi_prev)
        state = State(s.k + 1, x, y, s.x, s.y, y_last, v, u, alpha, beta, x_memory, y_memory)
        return state, info(v, u, **neumann.told(Phi, self.eta))

    def cost(self, k: int) -> Counts:
        return 2 * (Counts(G=self.N * self.S) + neumann.cost(self.S, self.Q))

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(self.N + self.Q + 1) * self.S)
