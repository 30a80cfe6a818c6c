"""What a finished run looks like: whether its result can be trusted, and if it diverged, why."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.algorithms.protocol import Info
from bilax.errors import Doubts
from bilax.hypergrad.neumann import grew
from bilax.results import History, Outcome

FAR = 10.0  # times as large as at the start, a loss has grown far beyond it
HUGE = 1e6  # times as large as at the start (or as 1), so has x or y
UNSOLVED = 0.99  # of the right-hand side of the linear system is left
FEW, ENOUGH = 10, 100  # steps at least, before growth is judged, and before all else is
ROWS = 5  # at least, before the residual is judged: one of a random length may be 1
WRONG = 0.1  # relative error of second derivatives, well above that of differences
SHARE = 0.01  # of the inner loss is what an inner gradient must be able to change, to matter


def check_second_derivatives(doubts: Doubts, error: float) -> None:
    """Warn if they are not the derivatives of the gradients; ``error`` is relative."""
    if error > WRONG:
        doubts.add(
            f"the second derivatives of inner_loss are {100 * error:.0f} % off the differences of its gradients: its "
            "derivative rule (jax.custom_vjp) holds something constant, as jax.lax.stop_gradient does, so the "
            "hypergradients are wrong. Take Problem(second_derivatives='differences')."
        )


def check_row(doubts: Doubts, row: dict[str, Any]) -> bool:
    """Warn if a loss is not a number although x and y are; tell whether it was so."""
    for name in ("outer_loss", "inner_loss"):
        if np.isnan(row.get(name, 0.0)):
            doubts.add(
                f"{name} is NaN at step {row['k']}, although x and y are finite: its gradients do not show it "
                "(as where jnp.where picks the other branch). Rewrite the loss so that no branch divides by 0 or "
                "takes the logarithm of 0."
            )
            return True
    return False


def check_end(
    doubts: Doubts, history: History, sizes: tuple[dict[str, float], dict[str, float]], series_grew: bool
) -> None:
    """Warn about a result that is no solution; ``sizes`` are the norms of x and y, first and last."""
    steps = history[-1]["k"] - history[0]["k"]
    if _is_not_convex(doubts, history):  # what else is wrong comes from that
        return
    if steps >= FEW:
        _check_growth(doubts, history, sizes)
        _check_curvature(doubts, history)
    if steps < ENOUGH:
        return
    if not series_grew:  # that was told already
        _check_system(doubts, history)
    _check_inner(doubts, history, sizes[1]["y"])


def _is_not_convex(doubts: Doubts, history: History) -> bool:
    """Warn if a method that looks whether its problems are convex found in most steps that they are not."""
    convex = [row["convex"] for row in history[1:] if "convex" in row]
    if not convex or sum(convex) > len(convex) / 2:
        return False
    doubts.add(
        f"x waited at {convex.count(0.0)} of {len(convex)} measurements: between the points of the method, g - nu f is "
        "not convex, so they have no minimum to tend to. Take a smaller nu, or order P = 1."
    )
    return True


def _check_growth(doubts: Doubts, history: History, sizes: tuple[dict[str, float], dict[str, float]]) -> None:
    first, last = (row.get("outer_loss", 0.0) for row in (history[0], history[-1]))
    if last > FAR * abs(first) and _still_high(history, "outer_loss"):
        doubts.add(
            f"the outer loss grew from {first:.4g} to {last:.4g}: this is no solution. "
            "Try smaller step sizes; if that does not help, the inner problem may be nearly singular (add a "
            "regularisation) or too badly conditioned for the steps taken on it."
        )
        return
    for name in ("x", "y"):
        if sizes[1][name] > HUGE * max(sizes[0][name], 1):
            doubts.add(
                f"the norm of {name} grew from {sizes[0][name]:.4g} to {sizes[1][name]:.4g}: the run is running away. "
                f"Try smaller step sizes, or a regularisation of {name} in its loss."
            )
            return


def _check_curvature(doubts: Doubts, history: History) -> None:
    """Warn if a method that looks at the curvature of the inner loss often found it negative, or made things worse."""
    met = [(row["negative_curvature"], row["residual"]) for row in history[1:] if "negative_curvature" in row]
    negative, worse = (sum(values) for values in zip(*((n > 0, r > 1) for n, r in met), strict=True)) if met else (0, 0)
    if 2 * max(negative, worse) <= len(met):
        return
    what = "met negative curvature" if negative else "left more than all of the right-hand side"
    doubts.add(
        f"the linear system behind the hypergradient {what} at {max(negative, worse)} of {len(met)} measurements: the "
        "inner Hessian is not positive definite, or nearly singular, so the hypergradients cannot be trusted. Give the "
        "problem a damping (Problem(damping=1.0), or more), take bilax.GaussNewton, or a first-order method (f2sa)."
    )


def _check_system(doubts: Doubts, history: History) -> None:
    residuals = [row["residual"] for row in history[1:] if "residual" in row]
    if len(residuals) >= ROWS and not min(residuals) < UNSOLVED:
        doubts.add(
            f"the linear system behind the hypergradient stayed unsolved: {residuals[-1]:.4g} of its right-hand side "
            "was left at the last measurement, at no one less than 0.99. The estimates lack almost all of the inner "
            "problem's part. Take more steps on it (Q, N or K), larger ones (eta), or regularise the inner loss, whose "
            "Hessian is nearly singular, or not convex."
        )


def _check_inner(doubts: Doubts, history: History, norm_y: float) -> None:
    first, last = (row.get("inner_gradient", 0.0) for row in (history[0], history[-1]))
    matters = last * (1 + norm_y) > SHARE * abs(history[-1].get("inner_loss", 0.0))
    if last > 0 and last >= first and matters and _still_high(history, "inner_gradient"):
        doubts.add(
            f"the inner problem is not being solved: the norm of its gradient went from {first:.4g} to {last:.4g}. "
            "The hypergradient is that of another y. Try a smaller or larger inner step size, more inner steps, or a "
            "smaller outer step size."
        )


def _still_high(history: History, name: str) -> bool:
    """Tell whether a quantity is at the end no less than half of what it was at most. (A start may be a solution.)"""
    column = history.column(name) if name in history.names else np.zeros(1)
    return bool(column[-1] >= 0.5 * np.nanmax(column))


def check_iterates(doubts: Doubts, info: Info, status: Outcome) -> None:
    """Warn about runs of `iterate` or `sweep`, which measure nothing; under a trace of JAX, nothing can be said."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((info, status))):
        return
    code = np.atleast_1d(np.asarray(status.code))
    if bad := int(code.sum()):
        runs = "the run" if code.size == 1 else f"{bad} of {code.size} runs"
        where = "" if code.size == 1 else f" (the first: {_indices(code != 0)})"
        doubts.add(f"{runs} met numbers that are not finite{where}; see .status. Try smaller step sizes.")
    fine, told = code == 0, info.own
    if "growth" in told:
        growing = np.atleast_1d(np.asarray(grew(told["growth"]))[..., -1]) & fine
        if growing.any():
            doubts.add(
                f"the series of {int(growing.sum())} of {code.size} runs still grew in the last step: the "
                f'hypergradients cannot be trusted. Take eta="auto", or a smaller eta (the first: {_indices(growing)}).'
            )
    if "residual" in told and np.asarray(told["residual"]).shape[-1] >= ENOUGH:
        least = np.atleast_1d(np.asarray(told["residual"]).min(-1))
        unsolved = fine & ~(least < UNSOLVED)
        if unsolved.any():
            doubts.add(
                f"in {int(unsolved.sum())} of {code.size} runs the linear system stayed unsolved: at least "
                f"{least[unsolved][0]:.4g} of its right-hand side was left in every step. Take more steps on it (Q, N "
                "or K), larger ones (eta), or regularise the inner loss."
            )


def _indices(chosen: np.ndarray) -> str:
    return ", ".join(str(int(i)) for i in np.argwhere(chosen)[0])


CARRIED = "what is carried became NaN or infinite: look at carry, and at what it divides by."


def cause(before: Any, after: Any) -> str:
    """Say what happened in the step from a finite state to one that is not."""
    found: dict[str, tuple[float, Any]] = {}  # the largest number of each leaf before, and its dtype
    wrong = ""
    for (path, new), old in zip(jax.tree.leaves_with_path(after), jax.tree.leaves(before), strict=True):
        if jnp.issubdtype(new.dtype, jnp.inexact):
            name = jax.tree_util.keystr(path).lstrip(".")
            found[name] = float(jnp.abs(old).max()), new.dtype
            wrong = wrong or ("" if bool(jnp.isfinite(new).all()) else name)
    name = max(found, key=lambda name: found[name][0])
    largest, dtype = found[name]
    if largest > float(jnp.finfo(dtype).max) ** 0.25:  # its square, times the square of a gradient, is beyond
        return (
            f"an overflow: {name} has numbers up to {largest:.3g}, and {dtype} ends at {jnp.finfo(dtype).max:.3g}. "
            "Try smaller step sizes."
        )
    what = f"{wrong} became NaN or infinite" if wrong else "the estimates are NaN or infinite"
    return (
        f"{what}, although no number was larger than {largest:.3g} before: look for a division by 0, or a logarithm or "
        f"a root of a negative number, in the losses or their gradients.{_of_optimisers(after)}"
    )


def _of_optimisers(state: Any) -> str:
    if not jax.tree.leaves(getattr(state, "y_memory", ())):
        return ""
    return (
        " If the method differentiates through the steps of an optimiser (reverse): the root in Adam has an infinite "
        "derivative where a gradient is exactly 0; optax.adam(..., eps_root=1e-8) has not."
    )
