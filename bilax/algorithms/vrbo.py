"""VRBO, the Variance Reduction Bilevel Optimizer (Yang, Ji and Liang, NeurIPS 2021, Algorithm 2)."""

from typing import NamedTuple, final

import jax
import jax.numpy as jnp

from bilax import keys
from bilax.algorithms.about import About
from bilax.algorithms.protocol import Info, info_of
from bilax.hypergrad import gauge, neumann
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step, switch
from bilax.oracle import Counts, Oracle, both
from bilax.tree import axpy, norm, storm, zeros_like
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v~_{k-1,m+1}, tracks the hypergradient
    u: PyTree  # u~_{k-1,m+1}, tracks grad_y g
    gauge: gauge.Gauge | None


@final
@hyperparameters
class VRBO:
    r"""A double loop with SARAH differences on both levels, restarted from a large batch every q iterations.

    .. math::
        x_{k+1} &= x_k - \alpha v_k \\
        \tilde v_t &= \tilde v_{t-1} + \hat\nabla\Phi(x_{k+1}, \tilde y_t; S_2)
                      - \hat\nabla\Phi(\tilde x_{t-1}, \tilde y_{t-1}; S_2) \\
        \tilde u_t &= \tilde u_{t-1} + \nabla_y G(x_{k+1}, \tilde y_t; S_2)
                      - \nabla_y G(\tilde x_{t-1}, \tilde y_{t-1}; S_2) \\
        \tilde y_{t+1} &= \tilde y_t - \beta \tilde u_t, \qquad t = 0, \dots, m + 1

    with (x~_{-1}, y~_{-1}) = (x_k, y_k), so that t = 0 absorbs the move of x, and y_{k+1} = y~_{m+1}.

    >>> VRBO(m=2, q=3, Q=1, S1=100, S2=10).cost(k=0)
    Counts(F=180, G=180, JV=180, HV=180, HINV=0)
    >>> VRBO(m=2, q=3, Q=1, S1=100, S2=10).cost(k=1)
    Counts(F=80, G=80, JV=80, HV=80, HINV=0)
    """

    about = About(
        loops="double",
        reduces="x and y (SARAH)",
        calls={
            "F": "S1 / q + 2 * (m + 2) * S2",
            "G": "S1 / q + 2 * (m + 2) * S2",
            "JV": "S1 / q + 2 * (m + 2) * S2",
            "HV": "Q * (S1 / q + 2 * (m + 2) * S2)",
        },
        draws={"F": "S1 / q + (m + 2) * S2", "G": "(Q + 2) * (S1 / q + (m + 2) * S2)"},
        complexity="eps^-1.5",
        reference="Yang, Ji, Liang. Provably Faster Algorithms for Bilevel Optimization. NeurIPS 2021, Algorithm 2",
    )

    alpha: Scalar = outer_step(default=0.1)
    beta: Scalar = inner_step(default=0.1)
    m: int = count(default=20, doc="each outer step is followed by m + 1 inner updates", at_least=0)
    q: int = count(default=3, doc="outer steps from one large batch to the next")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(default="auto", doc="step of the Neumann series, below 1/L")
    S1: int = batch_size(default=1000, doc="size of the large batches")
    S2: int = batch_size(default=64, doc="size of the small batches")
    per_sample: bool = switch(
        default=False, doc="one chain per sample (equation 5) instead of one per batch (equation 4)"
    )

    def init(self, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(x0), zeros_like(y0), gauge.init(self.eta, x0, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_1, key_2, key_L = jax.random.split(key, 3)
        eta, L = gauge.read(self.eta, s.gauge, oracle, key_L, s.x, s.y, self.S2, self.per_sample)

        def restart():  # lines 4-5
            return self._estimates(oracle, key_1, self.S1, eta)(s.x, s.y)

        def carry_on():  # line 7
            none = jnp.zeros_like(norm(s.y))
            return neumann.Estimate(s.v, none, none), s.u

        seen, u = jax.lax.cond(s.k % self.q == 0, restart, carry_on)
        v = seen.value
        x = oracle.project_x(axpy(-self.alpha, v, s.x))  # line 9

        def inner(carry, key_t):  # lines 12-15
            x_prev, y_prev, y_t, v_t, u_t, seen = carry
            estimates = self._estimates(oracle, key_t, self.S2, eta)
            (Phi, G_y), (Phi_prev, G_y_prev) = both(estimates, (x, y_t), (x_prev, y_prev))
            v_t = storm(v_t, 0, Phi.value, Phi_prev.value)
            u_t = storm(u_t, 0, G_y, G_y_prev)
            y_next = oracle.project_y(axpy(-self.beta, u_t, y_t))
            return (x, y_t, y_next, v_t, u_t, neumann.worst(neumann.worst(seen, Phi), Phi_prev)), None

        start = (s.x, s.y, s.y, v, u, seen)  # line 10
        (_, y, _, v_last, u_last, seen), _ = jax.lax.scan(inner, start, keys.turns(key_2, self.m + 2))  # line 11
        state = State(s.k + 1, x, y, v_last, u_last, gauge.note(L, seen.growth))  # line 17: y is y~_{k,m+1}
        return state, info_of(v, u, seen, eta, L)

    def _estimates(self, oracle: Oracle, key: Key, S: int, eta: Scalar):
        key_y, key_x = jax.random.split(key)
        B_y, B_x = oracle.draw_G(key_y, S), neumann.draw(oracle, key_x, S, self.Q)
        hypergrad = neumann.hypergrad_per_sample if self.per_sample else neumann.hypergrad
        return lambda x, y: (hypergrad(oracle, x, y, B_x, eta), oracle.grad_G(x, y, B_y))

    def cost(self, k: int) -> Counts:
        def once(S: int) -> Counts:
            return Counts(G=S) + neumann.cost(S, self.Q)

        return (once(self.S1) if k % self.q == 0 else Counts()) + 2 * (self.m + 2) * once(self.S2)
