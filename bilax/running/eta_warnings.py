"""The warning that a Neumann series cannot be trusted, because its step eta is too large."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.algorithms.protocol import Algorithm, Info
from bilax.errors import Doubts, UnsafeEta
from bilax.hypergrad import auto_eta
from bilax.hyperparameters import Auto, names_of
from bilax.oracle import Traced, TracedProblem
from bilax.running.loop import auto_steps
from bilax.sampling import keys
from bilax.sampling.stored import take
from bilax.types import PyTree

SAMPLES = 1000  # at most, on which L is measured for a warning


def check_start(doubts: Doubts, algorithm: Algorithm, problem: Traced, state: Any) -> bool:
    """Warn if a fixed eta is unsafe at the starting point, and tell whether it was."""
    for name in names_of("series_step", algorithm):
        eta = getattr(algorithm, name)
        if isinstance(eta, Auto):
            continue
        L = _measured_L(problem, state)
        if float(eta) * L > 1:
            of = algorithm.__dataclass_fields__[name].metadata["of"]  # type: ignore[attr-defined]
            _warn(doubts, algorithm, f"{name} = {float(eta):.3g} is too large for {of}", L, name)
            return True
    return False


def warn_series_grows(doubts: Doubts, algorithm: Algorithm, problem: Traced, state: Any, info: Info) -> None:
    """Warn that the step from ``state`` used a series that grows."""
    eta, growth = float(info.eta), float(info.growth)
    L = _measured_L(problem, state)
    if not auto_steps(algorithm):
        L = max(L, (1 + growth) / eta)  # for a convex inner loss, a residual that grows proves this
    _warn(
        doubts,
        algorithm,
        f"the Neumann series grows at step {int(state.k)}: with eta = {eta:.3g} its residual gets {growth:.4g} "
        "times larger from one term to the next, so the hypergradient cannot be trusted",
        L,
        "eta",
    )


def _warn(doubts: Doubts, algorithm: Algorithm, what: str, L: float, name: str) -> None:
    remedy = (
        f'{name}="auto" lowers it each time; that it went on suggests an inner loss that is not convex in y, or '
        "samples that are far more curved than most: larger batches help then."
        if auto_steps(algorithm)
        else f'Set {name} below this, or {name}="auto".'
    )
    doubts.add(
        f"{type(algorithm).__name__}: {what}. The largest eigenvalue of the inner Hessian is L = {L:.3g} here; the "
        f"largest safe {name} is 1/L = {1 / L:.3g}. {remedy}",
        UnsafeEta,
    )


def _measured_L(problem: Traced, state: Any) -> float:
    return float(_largest_eigenvalue(problem, state.x, state.y))


@jax.jit
def _largest_eigenvalue(problem: Traced, x: PyTree, y: PyTree) -> jax.Array:
    oracle, samples = problem.oracle(), SAMPLES
    if isinstance(problem, TracedProblem):
        n = oracle.size_G or SAMPLES
        samples = min(SAMPLES, n)
        # Each sample once: a batch that holds some twice is more curved than the data are.
        some = take(problem.inner_data, jnp.asarray(np.arange(samples) * n // samples, jnp.int32))
        oracle = oracle._replace(draw_G=lambda key, size: some)
    return auto_eta.largest_eigenvalue(oracle, keys.root(0), x, y, samples)[0]
