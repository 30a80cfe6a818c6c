"""A look at the problem itself, not at batches, outside of the clock: losses, and whether a run has converged."""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg

from bilax.functions import unconstrained
from bilax.numerics.constraints import on_the_set
from bilax.numerics.second_derivatives import (
    Products,
    automatic,
    error_of_reverse,
    forward_over_reverse,
    has_rules,
    reverse_over_reverse,
)
from bilax.numerics.tree import axpy, norm
from bilax.oracle import Oracle, Traced, TracedProblem
from bilax.sampling import keys
from bilax.sampling.passes import exact_mean
from bilax.sampling.stored import size_of, take
from bilax.types import PyTree

SAMPLES = 10_000  # of each level, at most, on which losses are measured
DRAWS, EACH = 16, 64  # batches, and their size, that stand for all data of an oracle of the user's own
FEW = 64  # samples, on which second derivatives are compared with differences
SOLVER_STEPS = 1000  # of conjugate gradients, at most


class Losses(NamedTuple):
    outer_loss: Any
    inner_loss: Any
    inner_gradient: Any  # norm of grad_y g, after the projection of y


class Verdict(NamedTuple):
    """The three norms that are at most `tol` where a run has converged, over all data."""

    hypergradient: Any  # of the move that a gradient step of length 1 makes, so that an active constraint counts as 0
    inner_gradient: Any  # likewise for y
    residual: Any  # of the linear system

    def fulfils(self, tol: float) -> bool:
        return all(value <= tol for value in self)

    def __str__(self) -> str:
        if np.isnan(self.residual):
            return f"|grad_y g| = {self.inner_gradient:.3g}"
        return (
            f"|grad Phi| = {self.hypergradient:.3g}, |grad_y g| = {self.inner_gradient:.3g}, residual of the linear "
            f"system {self.residual:.3g}"
        )


class Inspector:
    """Looks at one problem."""

    def __init__(self, problem: Traced):
        self.problem = problem
        self.sample = _subsample(problem) if isinstance(problem, TracedProblem) else None

    def losses(self, state: Any, carried: PyTree = None) -> dict[str, float]:
        """Return the losses, on all data or on a fixed part of them; nothing for an oracle, which has none."""
        if self.sample is None:
            return {}
        return {
            name: float(value)
            for name, value in _losses(self.sample.carrying(carried), state.x, state.y)._asdict().items()
        }

    def error_of_second_derivatives(self, state: Any, carried: PyTree = None) -> float:
        """Return how wrong they are on a few samples, where they go through a rule of the user's own; else 0."""
        if self.sample is None or self.sample.functions.second_derivatives is not automatic:
            return 0.0
        x, y, sample = state.x, state.y, self.sample.carrying(carried)
        if has_rules(lambda: jax.eval_shape(_forward, sample, x, y)):
            return 0.0
        G, few = sample.oracle().value_G, _few(sample)
        in_reverse = has_rules(lambda: jax.eval_shape(reverse_over_reverse(G).hvp, x, y, few, y))
        return error_of_reverse(G, x, y, few) if in_reverse else 0.0  # what is differenced is right

    def verdict(self, state: Any, carried: PyTree, tol: float) -> Verdict:
        """Return the three norms. Once the inner gradient is above ``tol``, the other two are not looked at."""
        norms = _verdict(self.problem.carrying(carried), state.x, state.y, jnp.asarray(tol, float))
        return Verdict(*(float(value) for value in norms))


def _subsample(problem: TracedProblem) -> TracedProblem:
    """Return the problem with samples at equal distances, if there are more than are looked at."""

    def some(data: PyTree) -> PyTree:
        n = size_of(data)
        return data if n <= SAMPLES else take(data, jnp.asarray(np.linspace(0, n - 1, SAMPLES).astype(np.int32)))

    return TracedProblem(problem.functions, problem.sampler, some(problem.outer_data), some(problem.inner_data))


@jax.jit  # never run, but traced once for all runs of a problem
def _forward(problem: TracedProblem, x: PyTree, y: PyTree) -> PyTree:
    return forward_over_reverse(problem.oracle().value_G).hvp(x, y, _few(problem), y)


def _few(problem: TracedProblem) -> PyTree:
    data = problem.inner_data
    return take(data, jnp.arange(min(FEW, size_of(data))))


@jax.jit
def _losses(problem: TracedProblem, x: PyTree, y: PyTree) -> Losses:
    oracle = problem.oracle()
    value_and_grad = jax.value_and_grad(oracle.value_G, argnums=1)
    outer = exact_mean(problem.outer_data, lambda batch: oracle.value_F(x, y, batch))
    inner, g = exact_mean(problem.inner_data, lambda batch: value_and_grad(x, y, batch))
    return Losses(outer, inner, _move(oracle.project_y, y, g))


@jax.jit
def _verdict(problem: Traced, x: PyTree, y: PyTree, tol: jax.Array) -> Verdict:
    oracle = whole(problem)
    g = oracle.grad_G(x, y, ())
    inner = _move(oracle.project_y, y, g)

    def the_others() -> tuple[jax.Array, jax.Array]:
        F_x, F_y = oracle.grad_F(x, y, ())
        b = oracle.tangent(x, y, (), F_y)
        H = partial(oracle.hvp_G, x, y, ())
        w, _ = cg(H, b, tol=0.0, atol=cast(float, tol / 2), maxiter=SOLVER_STEPS)
        h = axpy(-1, oracle.jvp_G(x, y, (), w), F_x)
        return _move(oracle.project_x, x, h), norm(axpy(-1, H(w), b))

    unknown = jnp.full_like(inner, jnp.nan)
    hypergradient, residual = jax.lax.cond(inner <= tol, the_others, lambda: (unknown, unknown))
    return Verdict(hypergradient, inner, residual)


def whole(problem: Traced) -> Oracle:
    """Return an oracle whose every answer is over all data, in chunks of bounded memory; its batch is ()."""
    oracle = problem.oracle()
    if isinstance(problem, TracedProblem):
        mean_F, mean_G = (partial(exact_mean, data) for data in (problem.outer_data, problem.inner_data))
        way = problem.functions.reading(problem.carried).second_derivatives
        products = getattr(way, "exact", way)(oracle.value_G)  # a solution is one of the problem, not of a damped one
    else:
        mean_F, mean_G = partial(_over_draws, oracle.draw_F), partial(_over_draws, oracle.draw_G)
        products = Products(oracle.hvp_G, oracle.jvp_G, oracle.linearize_G)

    def mean_of(mean, fn):
        return lambda x, y, _, *r: mean(lambda batch: fn(x, y, batch, *r))

    grad_G, tangent = mean_of(mean_G, oracle.grad_G), oracle.tangent
    products = Products(*(mean_of(mean_G, fn) for fn in products))
    if isinstance(problem, TracedProblem) and oracle.project_y is not unconstrained:
        products, tangent = on_the_set(products, grad_G, oracle.project_y)
        tangent = tangent if problem.functions.frozen_y is None else problem.functions.frozen_y.off(tangent)
    return oracle._replace(
        grad_F=mean_of(mean_F, oracle.grad_F),
        grad_G=grad_G,
        hvp_G=products.hvp,
        jvp_G=products.jvp,
        linearize_G=products.linearize,
        tangent=tangent,
    )


def _over_draws(draw: Any, fn: Any) -> PyTree:
    each = jax.lax.map(lambda key: fn(draw(key, EACH)), jax.random.split(keys.root(0), DRAWS))
    return jax.tree.map(lambda leaf: leaf.mean(0), each)


def _move(project: Any, z: PyTree, g: PyTree) -> jax.Array:
    """Return how far a gradient step of length 1 goes; without a constraint, that is the norm of the gradient."""
    return norm(g) if project is unconstrained else norm(axpy(-1, project(axpy(-1, g, z)), z))
