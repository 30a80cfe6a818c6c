"""AmIGO, amortised implicit differentiation (Arbel and Mairal, ICLR 2022)."""

import math
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms import inner_loops
from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad.neumann import ratio
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step
from bilax.numerics.tree import axpy, norm, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, each_batch
from bilax.sampling import keys
from bilax.types import Key, PyTree


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class AmIGO:
    r"""T steps on y, T steps on the linear system, both from where the last iteration ended, then one on x.

    .. math::
        y &\leftarrow y - \rho \nabla_y G(x_k, y; \zeta_t) \qquad T \text{ times} \\
        v &\leftarrow v - \rho_v (\nabla_y^2 G(x_k, y; \zeta'_t) v - \nabla_y F(x_k, y; \xi)) \qquad T \text{ times} \\
        x_{k+1} &= x_k - \gamma (\nabla_x F(x_k, y; \xi) - \nabla_x\nabla_y G(x_k, y; \zeta'') v)

    One outer batch serves both of its gradients; every other batch is a fresh one.

    >>> AmIGO(S=10).cost(k=0)
    Counts(F=10, G=100, JV=10, HV=100, HINV=0)
    """

    about = About(
        name="amigo",
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "T * S", "JV": "S", "HV": "T * S"},
        draws={"F": "S", "G": "(2 * T + 1) * S"},
        complexity="eps^-2, with batches that grow",
        reference="Arbel, Mairal. Amortized Implicit Differentiation for Stochastic Bilevel Optimization. ICLR 2022",
        scaling=Scaling(
            exponent=2.0,
            fixed=lambda eps: {"T": 5, "rho_v": 0.5, "S": math.ceil(1 / eps)},
            grid={"gamma": (0.001, 0.003, 0.01, 0.04), "rho": (0.02, 0.05, 0.1, 0.2)},
            steps=20_000,
            others=(
                lambda eps: {"T": 5, "rho_v": 0.5, "S": math.ceil(0.25 / eps)},
                lambda eps: {"T": 5, "rho_v": 0.5, "S": math.ceil(0.06 / eps)},
            ),
        ),
    )

    gamma: Step = outer_step(default=0.1)
    rho: Step = inner_step(default=0.1)
    rho_v: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    T: int = count(default=10, doc="steps on y, and on the linear system")
    S: int = batch_size(default=64, doc="size of all batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(y0), start(self.gamma, x0), start(self.rho, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_v, key_G = jax.random.split(key, 4)
        y, y_memory, u = inner_loops.sgd(oracle, key_y, s.x, s.y, s.y_memory, self.T, self.S, self.rho)
        F_x, F_y = oracle.grad_F(s.x, y, oracle.draw_F(key_F, self.S))
        through, batch_of = each_batch(oracle.draw_G, keys.for_loop(key_v, self.T), self.S)

        def once(carry: Any, item: Any) -> Any:
            zeta = batch_of(item)
            right = oracle.tangent(s.x, y, zeta, F_y)
            D_v = axpy(-1, right, oracle.hvp_G(s.x, y, zeta, carry[0]))
            return (descend(self.rho_v, (), D_v, carry[0])[0], ratio(norm(D_v), norm(right))), None

        (v, residual), _ = jax.lax.scan(once, (s.v, jnp.zeros_like(norm(s.v))), through)
        D_x = axpy(-1, oracle.jvp_G(s.x, y, oracle.draw_G(key_G, self.S), v), F_x)
        x, x_memory = descend(self.gamma, s.x_memory, D_x, s.x, oracle.project_x)
        return State(s.k + 1, x, y, v, x_memory, y_memory), info(D_x, u, rho_v=self.rho_v, residual=residual)

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=self.T * self.S, JV=self.S, HV=self.T * self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=(2 * self.T + 1) * self.S)
