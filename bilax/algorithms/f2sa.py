"""F2SA, fully first-order (Kwon and others, ICML 2023), of any order (Chen and others, ICLR 2026)."""

import math
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.inner_loops import decay
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import (
    batch_size,
    choice,
    count,
    hyperparameters,
    inner_step,
    nonnegative,
    outer_step,
    positive,
)
from bilax.numerics.tree import axpy, scale, vdot, where
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar

# order -> {j: weight of the point j in the difference}
WEIGHTS = {
    1: {0: -1.0, 1: 1.0},
    2: {-1: -1 / 2, 1: 1 / 2},
    4: {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12},
    6: {-3: -1 / 60, -2: 3 / 20, -1: -3 / 4, 1: 3 / 4, 2: -3 / 20, 3: 1 / 60},
    8: {-4: 1 / 280, -3: -4 / 105, -2: 1 / 5, -1: -4 / 5, 1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280},
}


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # near the minimiser of g: y^0, or the mean of y^-1 and y^1
    points: tuple[PyTree, ...]  # y^j, near the minimiser of j nu f + g
    x_memory: Any  # of the optimisers of x and of each point
    y_memory: tuple[Any, ...]


@final
@hyperparameters
class F2SA:
    r"""No second derivative: the hypergradient is a finite difference in nu of the value of min_y j nu f + g.

    .. math::
        y^j &\leftarrow y^j - \beta (j \nu_k \nabla_y F(x_k, y^j; \xi_j) + \nabla_y G(x_k, y^j; \zeta_j))
            \qquad T \text{ times, for each } j \\
        x_{k+1} &= x_k - \gamma \sum_j a_j (j \nabla_x F(x_k, y^j; \xi) + \nabla_x G(x_k, y^j; \zeta) / \nu_k)

    with nu_k = nu / (k+1)^c, which is 1 / lambda. Order P = 1 is F2SA (j = 0, 1); of even order j = -P/2, ..., P/2
    without 0, and the error is of order nu^P. A large nu can take the convexity from g - (P/2) nu f: where the
    curvature between the outermost points is negative, x waits, and the points begin anew from their mean (``convex``
    is then 0).

    >>> F2SA(S=10).cost(k=0)
    Counts(F=220, G=220, JV=0, HV=0, HINV=0)
    """

    about = About(
        name="f2sa",
        loops="double",
        reduces="nothing",
        calls={"F": "(T + 1) * P * S", "G": "(T + 1) * max(P, 2) * S"},
        draws={"F": "(T * P + 1) * S", "G": "(T * max(P, 2) + 1) * S"},
        complexity="eps^(-2 - 1/P)",
        reference="Kwon, Kwon, Wright, Nowak. A Fully First-Order Method for Stochastic Bilevel Optimization. ICML "
        "2023; Chen, Li, Chayti, Zhang. Faster Gradient Methods for Highly-smooth Stochastic Bilevel Optimization. "
        "ICLR 2026",
        scaling=Scaling(
            exponent=2.5,
            fixed=lambda eps: {"T": 5, "P": 2, "nu": 0.2 * eps**0.25, "S": math.ceil(1 / eps)},
            grid={"gamma": (0.003, 0.01, 0.03, 0.06), "beta": (0.2, 0.4, 0.8, 1.2)},
            steps=4_000,
            others=(lambda eps: {"T": 5, "P": 2, "nu": 0.2 * eps**0.25, "S": math.ceil(4 / eps)},),
        ),
    )

    gamma: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    nu: Scalar = positive(default=0.1, doc="weight of f beside g, 1 / lambda")
    c: Scalar = nonnegative(default=0.0, doc="exponent of nu, nu / (k+1)^c; 0 keeps it fixed")
    T: int = count(default=10, doc="inner steps of each point")
    P: int = choice(default=2, among=tuple(WEIGHTS), doc="order of the difference")
    S: int = batch_size(default=64, doc="size of all batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        each, k = range(len(WEIGHTS[self.P])), jnp.zeros((), jnp.int32)
        memory = tuple(start(self.beta, y0) for _ in each)
        return State(k, x0, y0, tuple(y0 for _ in each), start(self.gamma, x0), memory)

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        weights, nu = WEIGHTS[self.P], self.nu * decay(s.k, self.c)
        key_loop, key_G, key_F = jax.random.split(key, 3)

        def inner(carry: Any, key_t: Key) -> Any:
            moved, each = [], jax.random.split(key_t, 2 * len(weights))
            for p, (j, (y, memory)) in enumerate(zip(weights, carry, strict=True)):
                u = oracle.grad_G(s.x, y, oracle.draw_G(each[2 * p], self.S))
                if j:
                    u = axpy(j * nu, oracle.grad_F(s.x, y, oracle.draw_F(each[2 * p + 1], self.S))[1], u)
                moved.append(descend(self.beta, memory, u, y, oracle.project_y))
            return tuple(moved), None

        carry = tuple(zip(s.points, s.y_memory, strict=True))
        carry, _ = jax.lax.scan(inner, carry, keys.for_loop(key_loop, self.T))
        points, memory = zip(*carry, strict=True)

        zeta, xi = oracle.draw_G(key_G, self.S), oracle.draw_F(key_F, self.S)
        G = {j: oracle.grads_G(s.x, y, zeta) for j, y in zip(weights, points, strict=True)}
        F = {j: oracle.grad_F(s.x, y, xi) for j, y in zip(weights, points, strict=True) if j}
        v = scale(0.0, s.x)
        for j, a in weights.items():
            v = axpy(a / nu, G[j][0], v)
            v = axpy(a * j, F[j][0], v) if j else v

        at = dict(zip(weights, points, strict=True))
        y = at[0] if self.P == 1 else scale(0.5, axpy(1, at[-1], at[1]))
        convex = True if self.P == 1 else self._is_convex(at, F, G, nu)
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x)
        x, x_memory = where(convex, (x, x_memory), (s.x, s.x_memory))
        points = tuple(where(convex, point, y) for point in points)
        told = info(v, G[min(weights, key=abs)][1], nu=nu, convex=jnp.asarray(convex, float))
        return State(s.k + 1, x, y, points, x_memory, memory), told

    def _is_convex(self, at: dict, F: dict, G: dict, nu: Scalar) -> jax.Array:
        """Tell whether g - J nu f has no negative curvature between the outermost points, J = P/2."""
        J = self.P // 2

        def slope(j: int) -> PyTree:
            return axpy(-J * nu, F[j][1], G[j][1])

        return vdot(axpy(-1, at[J], at[-J]), axpy(-1, slope(J), slope(-J))) >= 0

    def cost(self, k: int) -> Counts:
        return Counts(F=(self.T + 1) * self.P * self.S, G=(self.T + 1) * max(self.P, 2) * self.S)

    def draws(self) -> Draws:
        return Draws(F=(self.T * self.P + 1) * self.S, G=(self.T * max(self.P, 2) + 1) * self.S)
