"""SABA, SAGA on all three directions (Dagréou, Ablin, Vaiter and Moreau, NeurIPS 2022)."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp

from bilax.algorithms.about import About, Scaling
from bilax.algorithms.protocol import Draws, Info, info
from bilax.hyperparameters import Eta, batch_size, hyperparameters, inner_step, outer_step, series_step
from bilax.numerics.memory import bytes_of, refuse_if_too_large
from bilax.numerics.tree import axpy, size, zeros_like
from bilax.optimisers import Step, descend, start
from bilax.oracle import Counts, Oracle
from bilax.sampling import keys, tables
from bilax.sampling.passes import Blocks
from bilax.sampling.stored import size_of
from bilax.sampling.tables import Table
from bilax.types import Key, PyTree


class State(NamedTuple):
    k: jax.Array
    x: PyTree  # x_k
    y: PyTree  # y_k
    v: PyTree  # v_k, which tends to the solution of grad_y^2 g v = grad_y f
    inner: Table  # of grad_y G, grad_y^2 G v, grad_x grad_y G v
    outer: Table  # of grad_y F and, unless F ignores x, grad_x F
    x_memory: Any  # of the optimisers of x and y
    y_memory: Any


@final
@hyperparameters
class SABA:
    r"""SOBA with a memory: of five maps the last value on each block of the data is kept, and corrects the new one.

    .. math::
        s_k = n_b w_i (\phi_i(x_k, y_k, v_k) - T_i) + \sum_j w_j T_j, \qquad T_i \leftarrow \phi_i(x_k, y_k, v_k)

    for a block i drawn at random of the n_b blocks, w_i its share of the samples; phi is each of grad_y G,
    grad_y^2 G v, grad_x grad_y G v, grad_y F, grad_x F. The tables begin exact, by a pass over all data. They take
    ceil(n / S) (2 dim y + dim x) + ceil(m / S) (dim y + dim x) numbers.

    >>> SABA(S=10).cost(k=0)
    Counts(F=10, G=10, JV=10, HV=10, HINV=0)
    """

    about = About(
        name="saba",
        loops="single",
        reduces="x, y and v (SAGA)",
        calls={"F": "S", "G": "S", "JV": "S", "HV": "S"},
        draws={"F": "S", "G": "S"},
        complexity="(n + m)^(2/3) eps^-1",
        reference="Dagréou, Ablin, Vaiter, Moreau. A Framework for Bilevel Optimization that Enables Stochastic and "
        "Global Variance Reduction Algorithms. NeurIPS 2022",
        scaling=Scaling(
            exponent=1.0,
            fixed=lambda eps: {"S": 8, "rho_v": 0.3},
            grid={"gamma": (0.0025, 0.005, 0.01, 0.05), "rho": (0.05, 0.4, 0.8, 1.2)},
            steps=20_000,
        ),
    )

    gamma: Step = outer_step(default=0.01)
    rho: Step = inner_step(default=0.1)
    rho_v: Eta = series_step(default="auto", doc="step of the linear system, below 1/L", of="the linear system")
    S: int = batch_size(default=64, doc="samples in a block")

    def init(self, oracle: Oracle, x0: PyTree, y0: PyTree) -> State:
        v0, zero = zeros_like(y0), (zeros_like(y0), zeros_like(x0))
        G, F = self._blocks(oracle)
        ignored = ignores_x(oracle, F, x0, y0)
        sizes = {"inner": G.count * bytes_of((y0, *zero)), "outer": F.count * bytes_of((y0, () if ignored else x0))}
        refuse_if_too_large(
            f"saba's tables, of {G.count:,} inner and {F.count:,} outer blocks,",
            {f"{level} table": needed for level, needed in sizes.items()},
            "Take larger blocks (S), or a method without tables, such as srba or soba.",
        )
        inner = tables.exact(G, lambda zeta: (oracle.grad_G(x0, y0, zeta), *zero))  # products with v_0 = 0 are 0
        outer = tables.exact(F, lambda xi: _kept(oracle.grad_F(x0, y0, xi), ignored))
        k = jnp.zeros((), jnp.int32)
        return State(k, x0, y0, v0, inner, outer, start(self.gamma, x0), start(self.rho, y0))

    def step(self, oracle: Oracle, key: Key, s: State) -> tuple[State, Info]:
        G, F = self._blocks(oracle)
        i, j = chosen(key, G.count, F.count)
        ignored = len(s.outer.mean) == 1
        new_G = G.evaluate(i, lambda zeta: oracle.linearize_G(s.x, s.y, zeta, s.v))
        new_F = F.evaluate(j, lambda xi: _kept(oracle.grad_F(s.x, s.y, xi), ignored))
        (D_y, Hv, Jv), inner = tables.saga(s.inner, G, i, new_G)
        (F_y, *F_x), outer = tables.saga(s.outer, F, j, new_F)
        F_y = G.evaluate(i, lambda zeta: oracle.tangent(s.x, s.y, zeta, F_y))
        D_x = axpy(-1, Jv, zeros_like(s.x) if ignored else F_x[0])
        y, y_memory = descend(self.rho, s.y_memory, D_y, s.y, oracle.project_y)
        v, _ = descend(self.rho_v, (), axpy(-1, F_y, Hv), s.v)
        x, x_memory = descend(self.gamma, s.x_memory, D_x, s.x, oracle.project_x)
        # The last block is shorter than a batch.
        more_F, more_G = F.samples(j) - self._length(oracle.numbers_F), G.samples(i) - self._length(oracle.numbers_G)
        calls = Counts(F=more_F, G=more_G, JV=more_G, HV=more_G)
        return State(s.k + 1, x, y, v, inner, outer, x_memory, y_memory), info(D_x, D_y, calls, rho_v=self.rho_v)

    def _length(self, numbers: Any) -> int:
        """Return how many samples a batch has that the sampler makes: all of them, if that is its way."""
        return size(jax.eval_shape(lambda: numbers(keys.root(0), self.S)))

    def _blocks(self, oracle: Oracle) -> tuple[Blocks, Blocks]:
        blocks = oracle.blocks_G(self._length(oracle.numbers_G)), oracle.blocks_F(self._length(oracle.numbers_F))
        G, F = (Blocks(one.data, min(one.length, size_of(one.data))) for one in blocks)
        return G, F

    def cost(self, k: int) -> Counts:
        return Counts(F=self.S, G=self.S, JV=self.S, HV=self.S)

    def init_cost(self, oracle: Oracle) -> Counts:
        return Counts(F=oracle.size_F, G=oracle.size_G)

    def draws(self) -> Draws:
        return Draws(F=self.S, G=self.S)


def chosen(key: Key, inner: int, outer: int) -> tuple[jax.Array, jax.Array]:
    """Return the number of an inner and of an outer block."""
    key_G, key_F = jax.random.split(key)
    return jax.random.randint(key_G, (), 0, inner), jax.random.randint(key_F, (), 0, outer)


def ignores_x(oracle: Oracle, blocks: Blocks, x: PyTree, y: PyTree) -> bool:
    """Tell whether the outer loss does not look at x, so that a table of its gradient would be one of zeros."""
    some = jax.eval_shape(lambda: blocks.whole(0))
    try:
        jaxpr = jax.make_jaxpr(oracle.value_F)(x, y, some).jaxpr
    except NotImplementedError:  # an oracle of the user's own, without values
        return False
    mine = jaxpr.invars[: len(jax.tree.leaves(x))]
    return not any(var is leaf for eqn in jaxpr.eqns for var in eqn.invars for leaf in mine)


def _kept(grads: tuple[PyTree, PyTree], ignored: bool) -> tuple:
    F_x, F_y = grads
    return (F_y,) if ignored else (F_y, F_x)
