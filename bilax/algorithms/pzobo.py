"""PZOBO-S, partial zeroth-order (Sow, Ji and Liang, NeurIPS 2022)."""

from itertools import accumulate
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import batch_size, count, hyperparameters, inner_step, outer_step, positive
from bilax.numerics.tree import axpy, vdot
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle, each_batch
from bilax.sampling import keys
from bilax.types import Key, PyTree, Scalar


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class PZOBO:
    r"""No second derivative: how y_N(x) moves with x is seen by N inner steps at x and at R points beside it.

    .. math::
        \delta_i &= (y_N(x_k + \mu u_i) - y_N(x_k)) / \mu, \qquad u_i \sim N(0, I) \\
        x_{k+1} &= x_k - \gamma (\nabla_x F + \tfrac{1}{R} \sum_i \langle \delta_i, \nabla_y F \rangle u_i), \qquad
        y_{k+1} = y_N(x_k)

    All chains begin at y_k and take the same batches. The variance grows with the dimension of x: for few outer
    variables, not for one weight per sample.

    >>> PZOBO(S=10).cost(k=0)
    Counts(F=10, G=1100, JV=0, HV=0, HINV=0)
    """

    about = About(
        name="pzobo",
        loops="double",
        reduces="nothing",
        calls={"F": "S", "G": "(R + 1) * N * S"},
        draws={"F": "S", "G": "N * S"},
        complexity="dim x eps^-2",
        reference="Sow, Ji, Liang. On the Convergence Theory for Hessian-Free Bilevel Algorithms. NeurIPS 2022",
    )

    gamma: Step = outer_step(default=0.1)
    beta: Step = inner_step(default=0.1)
    mu: Scalar = positive(default=0.01, doc="distance to the points beside x")
    N: int = count(default=10, doc="inner steps")
    R: int = count(default=10, doc="random directions")
    S: int = batch_size(default=64, doc="size of all batches")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        return State(jnp.zeros((), jnp.int32), x0, y0, start(self.gamma, x0), start(self.beta, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        key_y, key_F, key_u = jax.random.split(key, 3)
        u = directions(key_u, s.x, self.R)
        chains = jax.tree.map(
            lambda ui, xi: jnp.concatenate([xi[None], xi + jnp.asarray(self.mu, xi.dtype) * ui]), u, s.x
        )
        through, batch_of = each_batch(oracle.draw_G, keys.for_loop(key_y, self.N), self.S)

        def inner(carry: Any, item: Any) -> Any:
            zeta = batch_of(item)

            def once(x: PyTree, y: PyTree, memory: Any, _: PyTree) -> Any:
                slope = oracle.grad_G(x, y, zeta)
                return *descend(self.beta, memory, slope, y, oracle.project_y), slope

            return jax.vmap(once)(chains, *carry), None

        begin = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.R + 1, *jnp.shape(leaf))), (s.y, s.y_memory))
        none = jax.tree.map(jnp.zeros_like, begin[0])
        (ys, memories, slopes), _ = jax.lax.scan(inner, (*begin, none), through)
        y, y_memory, slope = jax.tree.map(lambda leaf: leaf[0], (ys, memories, slopes))
        F_x, F_y = oracle.grad_F(s.x, y, oracle.draw_F(key_F, self.S))

        rates = jax.vmap(lambda y_i: vdot(axpy(-1, y, y_i), F_y))(jax.tree.map(lambda leaf: leaf[1:], ys))
        rates = rates / jnp.asarray(self.R * self.mu, rates.dtype)
        moved = jax.tree.map(lambda ui: jnp.tensordot(rates.astype(ui.dtype), ui, 1), u)
        v = axpy(1, moved, F_x)
        x, x_memory = descend(self.gamma, s.x_memory, v, s.x, oracle.project_x)
        return State(s.k + 1, x, y, x_memory, y_memory), info(v, slope)

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=(self.R + 1) * self.N * self.S)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.N * self.S)


def directions(key: Key, x: PyTree, R: int) -> PyTree:
    """Return R random directions in the space of x, along a leading axis; the same however x is cut into leaves."""
    leaves, structure = jax.tree.flatten(x)
    ends = list(accumulate(leaf.size for leaf in leaves))
    parts = jnp.split(jax.random.normal(key, (R, ends[-1])), ends[:-1], axis=1)
    shaped = [part.reshape(R, *leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return structure.unflatten(shaped)
