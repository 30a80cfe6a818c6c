"""The warning that a Neumann series cannot be trusted, because its step eta is too large."""

import warnings
from functools import partial
from typing import Any

import jax

from bilax import keys
from bilax.algorithms.protocol import Algorithm, Info
from bilax.hypergrad import gauge
from bilax.hyperparameters import Auto, names_of
from bilax.oracle import from_parts
from bilax.problem import Functions, Problem
from bilax.sampler import iid
from bilax.types import PyTree


class UnsafeEta(UserWarning):
    """The step eta of a Neumann series is above 1/L, L being the largest eigenvalue of the inner Hessian."""


def is_auto(algorithm: Algorithm) -> bool:
    return any(isinstance(getattr(algorithm, name), Auto) for name in names_of("series_step", algorithm))


def check_start(algorithm: Algorithm, problem: Problem, state: Any) -> bool:
    """Warn if a fixed eta is unsafe at the starting point, and tell whether it was."""
    for name in names_of("series_step", algorithm):
        eta = getattr(algorithm, name)
        if isinstance(eta, Auto):
            continue
        L = _measured_L(problem, state)
        if float(eta) * L > 1:
            _warn(algorithm, f"{name} = {float(eta):.3g} is too large for the Neumann series", L)
            return True
    return False


def warn_series_grows(algorithm: Algorithm, problem: Problem, state: Any, info: Info) -> None:
    """Warn that the step from ``state`` used a series that grows."""
    eta, growth = float(info.eta), float(info.growth)
    L = _measured_L(problem, state)
    if not is_auto(algorithm):
        L = max(L, (1 + growth) / eta)  # for a convex inner loss, a residual that grows proves this
    _warn(
        algorithm,
        f"the Neumann series grows at step {int(state.k)}: with eta = {eta:.3g} its residual gets {growth:.4g} "
        "times larger from one term to the next, so the hypergradient cannot be trusted",
        L,
    )


def _warn(algorithm: Algorithm, what: str, L: float) -> None:
    remedy = (
        'eta="auto" lowers it each time; that it went on suggests an inner loss that is not convex in y, or samples '
        "that are far more curved than most: larger batches help then."
        if is_auto(algorithm)
        else 'Set eta below this, or eta="auto".'
    )
    warnings.warn(
        f"{type(algorithm).__name__}: {what}. The largest eigenvalue of the inner Hessian is L = {L:.3g} here; the "
        f"largest safe eta is 1/L = {1 / L:.3g}. {remedy}",
        UnsafeEta,
        stacklevel=4,
    )


def _measured_L(problem: Problem, state: Any) -> float:
    samples = min(1000, problem.inner_size)
    parts = (problem.functions, samples, problem.outer_data, problem.inner_data)
    return float(_largest_eigenvalue(*parts, state.x, state.y))


@partial(jax.jit, static_argnums=(0, 1))
def _largest_eigenvalue(
    functions: Functions, samples: int, outer_data: PyTree, inner_data: PyTree, x: PyTree, y: PyTree
) -> jax.Array:
    oracle = from_parts(functions, outer_data, inner_data, iid)
    return gauge.largest_eigenvalue(oracle, keys.root(0), x, y, samples)[0]
