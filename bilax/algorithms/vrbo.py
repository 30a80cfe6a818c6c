"""VRBO, the Variance Reduction Bilevel Optimizer (Yang, Ji and Liang, NeurIPS 2021, Algorithm 2)."""

import math
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hypergrad import neumann
from bilax.hyperparameters import Eta, batch_size, count, hyperparameters, inner_step, outer_step, series_step, switch
from bilax.numerics.tree import norm, storm, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, at_two_points
from bilax.sampling import keys
from bilax.types import Key, PyTree


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v~_{k-1,m+1}, tracks the hypergradient
    u: PyTree  # u~_{k-1,m+1}, tracks grad_y g
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


def _tied(eps: float, m: int, S1: float, S2: float, q: float) -> dict[str, Any]:
    """Batches and period as the theory ties them to eps, with these constants."""
    sizes = {"S1": math.ceil(S1 / eps), "S2": math.ceil(S2 / eps**0.5), "q": max(1, round(q / eps**0.5))}
    return {"Q": 10, "eta": 0.75, "m": m, **sizes}


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
        name="vrbo",
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
        scaling=Scaling(
            exponent=1.5,
            fixed=lambda eps: _tied(eps, m=4, S1=4, S2=4, q=0.4),  # q: mu L beta S2 / (mu + L) for beta = 0.3
            grid={"alpha": (0.003, 0.01, 0.03, 0.06), "beta": (0.05, 0.1, 0.2, 0.4)},
            steps=4_000,
            others=(lambda eps: _tied(eps, m=3, S1=40, S2=10, q=2), lambda eps: _tied(eps, m=3, S1=10, S2=5, q=1)),
        ),
    )

    alpha: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    m: int = count(default=20, doc="each outer step is followed by m + 1 inner updates", at_least=0)
    q: int = count(default=3, doc="outer steps from one large batch to the next")
    Q: int = count(default=3, doc="Hessian-vector products per hypergradient")
    eta: Eta = series_step(
        default="auto", doc="step of the Neumann series, below 1/L", batch=lambda a: 1 if a.per_sample else a.S2
    )
    S1: int = batch_size(default=1000, doc="size of the large batches")
    S2: int = batch_size(default=64, doc="size of the small batches")
    per_sample: bool = switch(
        default=False, doc="one chain per sample (equation 5) instead of one per batch (equation 4)"
    )

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, zeros_like(x0), zeros_like(y0), start(self.alpha, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_1, key_2 = jax.random.split(key)

        def restart():  # lines 4-5
            return self._estimates(oracle, key_1, self.S1)(s.x, s.y)

        def carry_on():  # line 7
            none = jnp.zeros_like(norm(s.y))
            return neumann.Estimate(s.v, none, none), s.u

        seen, u = jax.lax.cond(s.k % self.q == 0, restart, carry_on)
        v = seen.value
        x, x_memory = descend(self.alpha, s.x_memory, v, s.x, oracle.project_x)  # line 9

        def inner(carry, key_t):  # lines 12-15
            x_prev, y_prev, _, y_t, memory, v_t, u_t, seen = carry
            estimates = self._estimates(oracle, key_t, self.S2)
            (Phi, G_y), (Phi_prev, G_y_prev) = at_two_points(estimates, (x, y_t), (x_prev, y_prev))
            v_t = storm(v_t, 0, Phi.value, Phi_prev.value)
            u_t = storm(u_t, 0, G_y, G_y_prev)
            after = descend(self.beta, memory, u_t, y_t, oracle.project_y)
            seen = neumann.with_larger_residuals(neumann.with_larger_residuals(seen, Phi), Phi_prev)
            return (x, y_t, memory, *after, v_t, u_t, seen), None

        first = (s.x, s.y, s.y_memory, s.y, s.y_memory, v, u, seen)  # line 10
        last, _ = jax.lax.scan(inner, first, keys.for_loop(key_2, self.m + 2))  # line 11
        _, y, y_memory, _, _, v_last, u_last, seen = last  # line 17: y is y~_{k,m+1}
        state = State(s.k + 1, x, y, v_last, u_last, x_memory, y_memory)
        return state, info(v, u, **neumann.told(seen, self.eta))

    def _estimates(self, oracle: Oracle, key: Key, S: int):
        key_y, key_x = jax.random.split(key)
        B_y, B_x = oracle.draw_G(key_y, S), neumann.draw(oracle, key_x, S, self.Q)
        hypergrad = neumann.hypergrad_per_sample if self.per_sample else neumann.hypergrad
        return lambda x, y: (hypergrad(oracle, x, y, B_x, self.eta), oracle.grad_G(x, y, B_y))

    def cost(self, k: int) -> Counts:
        def once(S: int) -> Counts:
            return Counts(G=S) + neumann.cost(S, self.Q)

        return (once(self.S1) if k % self.q == 0 else Counts()) + 2 * (self.m + 2) * once(self.S2)

    @property
    def period(self) -> int:
        return self.q

    def draws(self) -> Draws:
        each = self.S1 / self.q + (self.m + 2) * self.S2
        return Draws(F=each, G=(self.Q + 2) * each)
