"""The only door between a problem and an algorithm: draw a batch, differentiate on it."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from bilax.problem import Functions, Loss, Problem, unconstrained
from bilax.products import merged
from bilax.sampler import Sampler, resolve
from bilax.types import PyTree

T = TypeVar("T")


def _cholesky(H: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Factorise a positive definite matrix once; return the solver of linear systems with it."""
    factors = jax.scipy.linalg.cho_factor(H)
    return lambda b: jax.scipy.linalg.cho_solve(factors, b)


class Oracle(NamedTuple):
    """All that a stochastic bilevel method may ask; its calls are what the paper's Table 1 counts."""

    draw_F: Callable[..., PyTree]  # (key, size)        -> batch of the outer data, xi
    draw_G: Callable[..., PyTree]  # (key, size)        -> batch of the inner data, zeta
    grad_F: Callable[..., tuple[PyTree, PyTree]]  # (x, y, xi)         -> (grad_x F, grad_y F)      Gc(F)
    grad_G: Callable[..., PyTree]  # (x, y, zeta)       -> grad_y G                  Gc(G)
    hvp_G: Callable[..., PyTree]  # (x, y, zeta, r)    -> (grad_y^2 G) r            Hv(G)
    jvp_G: Callable[..., PyTree]  # (x, y, zeta, r)    -> (grad_x grad_y G) r       Jv(G)
    project_x: Callable[..., PyTree] = unconstrained  # onto the set that x is kept in
    project_y: Callable[..., PyTree] = unconstrained
    factor: Callable[..., Any] = _cholesky  # dense Hessian -> solver of systems with it    Hyy^inv(G)


def make_oracle(problem: Problem, sampler: str | Sampler = "iid") -> Oracle:
    """Return the oracle of a problem whose batches are drawn by ``sampler``."""
    return from_parts(problem.functions, problem.outer_data, problem.inner_data, resolve(sampler))


def from_parts(functions: Functions, outer_data: PyTree, inner_data: PyTree, sampler: Sampler) -> Oracle:
    """Return the oracle of two losses; the data may be traced, so that a compiled program does not hold them."""
    F, G = _scalar("outer_loss", functions.F), _scalar("inner_loss", functions.G)

    def hvp_G(x, y, zeta, r):
        return jax.jvp(lambda y: jax.grad(G, argnums=1)(x, y, zeta), (y,), (r,))[1]

    def jvp_G(x, y, zeta, r):
        # Differentiating the directional derivative along r never builds grad_y G.
        return jax.grad(lambda x: jax.jvp(lambda y: G(x, y, zeta), (y,), (r,))[1])(x)

    return Oracle(
        draw_F=partial(sampler, outer_data),
        draw_G=partial(sampler, inner_data),
        grad_F=jax.grad(F, argnums=(0, 1)),
        grad_G=jax.grad(G, argnums=1),
        hvp_G=merged(hvp_G),
        jvp_G=merged(jvp_G),
        project_x=_like("project_x", functions.project_x),
        project_y=_like("project_y", functions.project_y),
    )


def both(fn: Callable[..., T], new: tuple, old: tuple) -> tuple[T, T]:
    """Return ``(fn(*new), fn(*old))``, evaluated together.

    The points are stacked and ``fn`` is vmapped over the pair. Batches inside ``fn`` depend on neither point,
    so they are drawn and read once, and each product of a batch with a vector becomes one with two.
    """
    # jnp.stack would put the pair before the members of a sweep, and every loop inside would transpose.
    pair = jax.vmap(fn)(*jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[None]]), new, old))
    return jax.tree.map(lambda a: a[0], pair), jax.tree.map(lambda a: a[1], pair)


@dataclass(frozen=True)
class Counts:
    """Oracle calls counted in samples, the columns of the paper's Table 1.

    >>> 2 * Counts(F=10, HV=30) + Counts(G=10)
    Counts(F=20, G=10, JV=0, HV=60, HINV=0)
    """

    F: int = 0  # gradients of the outer loss
    G: int = 0  # gradients of the inner loss
    JV: int = 0  # products of the mixed Jacobian with a vector
    HV: int = 0  # products of the inner Hessian with a vector
    HINV: int = 0  # factorisations of a dense inner Hessian

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, n: int) -> "Counts":
        return Counts(*(n * a for a in astuple(self)))

    __rmul__ = __mul__


KINDS = tuple(Counts.__dataclass_fields__)  # the columns of Table 1


def _like(name: str, project: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Keep the dtype of what is projected, and refuse a projection that changes its structure or shapes."""
    if project is unconstrained:
        return unconstrained

    def checked(z: PyTree) -> PyTree:
        new = project(z)
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (z, new)]
        if shapes[0] != shapes[1]:
            raise TypeError(
                f"{name} must return a pytree like its argument; of shapes {shapes[0]} it made {shapes[1]}."
            )
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), z, new)

    return checked


def _scalar(name: str, loss: Loss) -> Loss:
    """Refuse, while tracing, a loss that does not return one floating-point number."""

    def checked(x: PyTree, y: PyTree, batch: PyTree) -> Any:
        value = loss(x, y, batch)
        leaves = jax.tree.leaves(value)
        if len(leaves) != 1 or jax.tree.structure(value) != jax.tree.structure(0):
            raise TypeError(f"{name} must return one scalar, the mean over the batch; it returned {value!r}.")
        shape, dtype = jnp.shape(value), jnp.result_type(value)
        if shape != ():
            raise TypeError(
                f"{name} must return one scalar, the mean over the batch; it returned an array of shape {shape}. "
                "Wrap the result in jnp.mean."
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{name} must return a floating-point scalar; it returned dtype {dtype}.")
        return value

    return checked
