"""The estimators as things of their own, for `bilax.hypergradient`."""

import math
from typing import Any, ClassVar, Protocol, final

import jax
from jax.core import Tracer

from bilax.errors import Doubts, UnsafeEta
from bilax.given import as_variable
from bilax.hypergrad import (
    auto_eta,
    conjugate_gradient,
    dense,
    differences,
    fixed_point,
    neumann,
    nystrom,
    random_neumann,
    subspace,
    unrolled,
)
from bilax.hypergrad.neumann import Estimate
from bilax.hyperparameters import (
    Auto,
    Eta,
    anything,
    batch_size,
    count,
    hyperparameters,
    inner_step,
    positive,
    series_step,
    switch,
)
from bilax.numerics.tree import scale
from bilax.optimisers import Step, start
from bilax.oracle import Oracle, Traced, traced, with_one_draw
from bilax.problem import Problem
from bilax.sampling import keys
from bilax.sampling.samplers import Sampler
from bilax.types import Key, PyTree, Scalar

UNSOLVED = 0.99  # of the right-hand side is left: hardly anything was done


class Estimator(Protocol):
    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate: ...


def hypergradient(
    problem: Problem | Oracle,
    x: PyTree,
    y: PyTree,
    method: Estimator | None = None,
    *,
    seed: int = 0,
    sampler: str | Sampler = "full",
) -> Estimate:
    r"""Return an estimate of the gradient of Phi at x, with y in place of the inner solution.

    .. math::
        \nabla_x f(x, y) - \nabla_x \nabla_y g(x, y) [\nabla_y^2 g(x, y)]^{-1} \nabla_y f(x, y)

    Args:
      problem: what to differentiate.
      x: where.
      y: where. If it is the inner solution y*(x), this is the gradient of Phi.
      method: one of `Exact` (the default, for small y), `Neumann`, `RandomNeumann`, `FixedPoint`,
        `ConjugateGradient`, `Nystrom`, `Subspace`, `Unrolled`, `Differences`, `SAMA`.
      seed: decides the batches.
      sampler: how they are drawn, as in `solve`; by default each is all of the data.

    Returns:
      An `Estimate`: ``.value`` like x, and ``.residual``, what is left of the linear system.

    >>> from bilax.problems import quadratic
    >>> q = quadratic()
    >>> x = q.problem.x0
    >>> estimate = hypergradient(q.problem, x, q.y_star(x), ConjugateGradient(N=4))
    >>> bool(abs(estimate.value - q.gradient(x)).max() < 1e-3)
    True
    """
    x, y = as_variable("x", x), as_variable("y", y)
    method = Exact() if method is None else method
    if isinstance(method, type) or not hasattr(method, "estimate"):
        raise TypeError(f"method must be an estimator such as bilax.hypergrad.Neumann(Q=10); got {method!r}.")
    stream = keys.root(seed if isinstance(seed, jax.Array) else keys.checked_seed(seed))
    estimate = _estimate(traced(problem, sampler), method, keys.at(stream, 0), x, y)
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(estimate)):
        _check(method, estimate)
    return estimate


def _check(method: Estimator, estimate: Estimate) -> None:
    """Warn about an estimate of a system that was not solved."""
    name, residual, growth = type(method).__name__, float(estimate.residual), float(estimate.growth)
    if neumann.grew(estimate.growth):
        Doubts().add(
            f"{name}: the series grew, by a factor of {growth:.4g} from one term to the next, so the estimate cannot "
            'be trusted. Take eta="auto", or an eta below 1/L, L being the largest eigenvalue of the inner Hessian; if '
            "that does not help, the inner loss is not convex in y here.",
            UnsafeEta,
        )
    elif estimate.negative:
        Doubts().add(
            f"{name} met a direction of negative curvature and stopped with {residual:.4g} of the right-hand side "
            "left: the inner loss is not convex at this y, so the estimate cannot be trusted. Problem(damping=...) or "
            "Problem(second_derivatives=bilax.GaussNewton(...)) make the system positive definite."
        )
    elif not residual <= getattr(method, "solved", UNSOLVED):
        Doubts().add(
            f"{name}: {residual:.4g} of the right-hand side of the linear system is left, so the estimate cannot be "
            "trusted. The inner Hessian is singular, not positive definite, or too badly conditioned for the steps "
            f"taken (Q, N or T) or for {estimate.residual.dtype}. A regularisation of the inner loss, more steps, or "
            "jax_enable_x64 help; so does Problem(damping=...)."
        )


@jax.jit
def _estimate(problem: Traced, method: Estimator, key: Key, x: PyTree, y: PyTree) -> Estimate:
    oracle = problem.oracle()._replace(start_y=None)  # y is given
    return method.estimate(with_one_draw(oracle, key) if oracle.paired else oracle, key, x, y)


@final
@hyperparameters
class Exact:
    """Dense Hessian and Jacobian, one linear solve: exact on its batch, for inner variables of which a matrix fits."""

    solved: ClassVar[float] = 0.01  # of the right-hand side may be left

    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        dense.refuse_if_too_large("the exact hypergradient", x, y)
        key_F, key_G = jax.random.split(key)
        return dense.hypergrad(oracle, x, y, oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S))


@final
@hyperparameters
class Neumann:
    r"""The truncated Neumann series, with an independent batch for each factor: equation 4 of the paper.

    .. math::
        w = \eta \sum_{q=-1}^{Q-1} \prod_{j=Q-q}^{Q} (I - \eta \nabla_y^2 G(x, y; B_j)) \nabla_y F(x, y; B_F)

    With ``per_sample`` there is one chain for each sample of the batch (equation 5).
    """

    Q: int = count(default=10, doc="Hessian-vector products")
    eta: Eta = series_step(default="auto", doc="step of the series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")
    per_sample: bool = switch(default=False, doc="one chain per sample (equation 5)")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_x, key_L = jax.random.split(key)
        eta = _eta(self.eta, oracle, key_L, x, y, 1 if self.per_sample else self.S)
        series = neumann.hypergrad_per_sample if self.per_sample else neumann.hypergrad
        return series(oracle, x, y, neumann.draw(oracle, key_x, self.S, self.Q), eta)


@final
@hyperparameters
class RandomNeumann:
    """One product of random length in place of the series: the same mean as `Neumann`, and on average half the
    products."""

    solved: ClassVar[float] = 1.0  # a product of length 0 leaves everything

    Q: int = count(default=10, doc="largest number of Hessian-vector products")
    eta: Eta = series_step(default="auto", doc="step of the series, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_x, key_L = jax.random.split(key)
        eta = _eta(self.eta, oracle, key_L, x, y, self.S)
        return random_neumann.hypergrad(oracle, x, y, random_neumann.draw(oracle, key_x, self.S, self.Q), eta)


@final
@hyperparameters
class FixedPoint:
    r"""Fixed-point iterations for the linear system, on one batch: :math:`w \leftarrow w - \eta (H w - \nabla_y F)`."""

    N: int = count(default=10, doc="iterations")
    eta: Eta = series_step(default="auto", doc="step of the map, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G, key_L = jax.random.split(key, 3)
        eta = _eta(self.eta, oracle, key_L, x, y, self.S)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        return fixed_point.hypergrad(oracle, x, y, B_F, B_G, self.N, eta)


@final
@hyperparameters
class ConjugateGradient:
    """Conjugate gradients for the linear system, on one batch; they stop at a direction of negative curvature."""

    N: int = count(default=10, doc="steps")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G = jax.random.split(key)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        return conjugate_gradient.hypergrad(oracle, x, y, B_F, B_G, self.N)


@final
@hyperparameters
class Nystrom:
    """The inverse of the damped Hessian from a few of its columns, drawn at random; no step to choose."""

    rank: int = count(default=10, doc="columns of the Hessian")
    damping: Scalar = positive(default=0.1, doc="what is added to the Hessian's diagonal")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G, key_C = jax.random.split(key, 3)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        return nystrom.hypergrad(oracle, key_C, x, y, B_F, B_G, self.rank, self.damping)


@final
@hyperparameters
class Subspace:
    """SubBiO's subspace of two dimensions, again and again on one batch."""

    N: int = count(default=10, doc="times")
    eta: Eta = series_step(default="auto", doc="step of the map, below 1/L")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G, key_L = jax.random.split(key, 3)
        eta = _eta(self.eta, oracle, key_L, x, y, self.S)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        return subspace.hypergrad(oracle, x, y, B_F, B_G, self.N, eta)


@final
@hyperparameters
class Differences:
    """T1-T2, as in DARTS: the identity in place of the inverse Hessian, and no second derivative; biased."""

    solved: ClassVar[float] = math.inf  # it does not claim to solve the linear system

    alpha: Scalar = positive(default=0.1, doc="what stands for the inverse Hessian: the inner step")
    distance: Scalar = positive(default=0.01, doc="how far y is moved to both sides")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G = jax.random.split(key)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        return differences.hypergrad(oracle, x, y, B_F, B_G, lambda u: scale(self.alpha, u), self.distance)


@final
@hyperparameters
class SAMA:
    """T1-T2 with the inner optimiser's own scales: how its step changes with the gradient, in place of the inverse
    Hessian; no second derivative, biased.

    ``memory`` is what the optimiser remembers, such as ``result.state.y_memory``; without it, it is at its start.

    >>> import optax
    >>> from bilax.problems import quadratic
    >>> problem = quadratic().problem
    >>> x, y = problem.x0, problem.y0
    >>> by_sgd = hypergradient(problem, x, y, SAMA(step=optax.sgd(0.1)))  # then it is T1-T2
    >>> bool(abs(by_sgd.value - hypergradient(problem, x, y, Differences(alpha=0.1)).value).max() < 1e-4)
    True
    """

    solved: ClassVar[float] = math.inf

    step: Step = inner_step(default=0.1)
    memory: Any = anything(default=None, doc="what the optimiser remembers; None: as at its start")
    distance: Scalar = positive(default=0.01, doc="how far y is moved to both sides")
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_F, key_G = jax.random.split(key)
        B_F, B_G = oracle.draw_F(key_F, self.S), oracle.draw_G(key_G, self.S)
        fresh = start(self.step, y)
        memory = fresh if self.memory is None else self.memory
        if jax.tree.map(jax.numpy.shape, memory) != jax.tree.map(jax.numpy.shape, fresh):
            raise ValueError(
                "SAMA: memory is not what the optimiser remembers of this y; take it from a run with the same one "
                "(result.state.y_memory), or leave it out."
            )
        inverse = differences.of_the_step(self.step, memory, oracle.grad_G(x, y, B_G), y)
        return differences.hypergrad(oracle, x, y, B_F, B_G, inverse, self.distance)


@final
@hyperparameters
class Unrolled:
    """T inner steps from y, differentiated in reverse through the last K (0: all)."""

    step: Step = inner_step(default=0.1)
    T: int = count(default=10, doc="inner steps")
    K: int = count(default=0, doc="steps to differentiate through, 0 for all", at_least=0)
    S: int = batch_size(default=64, doc="size of every batch")

    def estimate(self, oracle: Oracle, key: Key, x: PyTree, y: PyTree) -> Estimate:
        key_y, key_F = jax.random.split(key)
        last, B_F = min(self.K, self.T) or self.T, oracle.draw_F(key_F, self.S)
        memory = start(self.step, y)
        return unrolled.hypergrad(oracle, key_y, B_F, x, y, memory, self.step, self.T, last, self.S).estimate


def _eta(eta: Eta, oracle: Oracle, key: Key, x: PyTree, y: PyTree, S: int) -> Scalar:
    if not isinstance(eta, Auto):
        return eta  # type: ignore[return-value]  # "auto" has become Auto
    curvature, _ = auto_eta.update(auto_eta.unmeasured(x, y), eta.fraction, oracle, key, 0, x, y, S)
    return auto_eta.safe_eta(curvature, eta.fraction)
