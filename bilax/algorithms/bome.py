"""BOME, bilevel optimization made easy (Liu, Ye, Wright, Stone and Liu, NeurIPS 2022)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import (
    batch_size,
    count,
    hyperparameters,
    inner_step,
    nonnegative,
    outer_step,
    positive,
    switch,
)
from bilax.numerics.tree import axpy, vdot
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.types import Key, PyTree, Scalar

TINY = 1e-8  # keeps the division defined where y is already a minimiser


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    lam: jax.Array  # the weight of the barrier in the last step
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class BOME:
    r"""First-order, deterministic: descend on f while q = g(x, y) - min g(x, .) falls, as in a barrier method.

    .. math::
        q(x, y) &= g(x, y) - g(x, y_T), \qquad y_T \text{: T steps of size alpha from } y \text{, then held fixed} \\
        \lambda_k &= \max(0, (\phi_k - \langle \nabla f, \nabla q \rangle) / \|\nabla q\|^2) \\
        (x, y)_{k+1} &= (x, y)_k - (\gamma, \rho) (\nabla f + \lambda_k \nabla q)

    with phi_k = c |grad q|^2, or c q (``by_value``). A step takes one inner and one outer batch; its theory is for
    ``sampler="full"``.

    >>> BOME(S=10).cost(k=0)
    Counts(F=10, G=110, JV=0, HV=0, HINV=0)
    """

    about = About(
        name="bome",
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "(T + 1) * S"},
        draws={"F": "S", "G": "S"},
        complexity="not of this kind: a KKT residual falls, without noise",
        reference="Liu, Ye, Wright, Stone, Liu. BOME! Bilevel Optimization Made Easy: A Simple First-Order Approach. "
        "NeurIPS 2022",
    )

    gamma: Step = outer_step(default=0.1)
    rho: Step = inner_step(default=0.01)
    alpha: Scalar = positive(default=0.1, doc="step of the T inner steps")
    c: Scalar = nonnegative(default=0.1, doc="how fast the barrier falls")
    T: int = count(default=10, doc="inner steps towards the minimum of g")
    by_value: bool = switch(default=False, doc="the barrier falls with q itself, not with its squared gradient")
    S: int = batch_size(default=64, doc="size of both batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k, lam = jnp.zeros((), jnp.int32), jnp.zeros((), float)
        return State(k, x0, y0, lam, start(self.gamma, x0), start(self.rho, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_G, key_F = jax.random.split(key)
        zeta, xi = oracle.draw_G(key_G, self.S), oracle.draw_F(key_F, self.S)
        G_x, G_y = oracle.grads_G(s.x, s.y, zeta)

        def inner(y: PyTree, _: Any) -> Any:
            return descend(self.alpha, (), oracle.grad_G(s.x, y, zeta), y, oracle.project_y)[0], None

        first, _ = descend(self.alpha, (), G_y, s.y, oracle.project_y)
        y_T, _ = jax.lax.scan(inner, first, length=self.T - 1)
        q_x, q_y = axpy(-1, oracle.grads_G(s.x, y_T, zeta)[0], G_x), G_y
        f_x, f_y = oracle.grad_F(s.x, s.y, xi)
        square = vdot(q_x, q_x) + vdot(q_y, q_y)
        if self.by_value:
            phi = self.c * (oracle.value_G(s.x, s.y, zeta) - oracle.value_G(s.x, y_T, zeta))
        else:
            phi = self.c * square
        lam = jnp.maximum((phi - vdot(f_x, q_x) - vdot(f_y, q_y)) / (square + TINY), 0.0)
        v, u = axpy(lam, q_x, f_x), axpy(lam, q_y, f_y)
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x)
        y, y_memory = descend(self.rho, s.y_memory, u, s.y, oracle.project_y)
        return State(s.k + 1, x, y, lam.astype(float), x_memory, y_memory), info(v, u, lam=lam)

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=(self.T + 1) * self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)
