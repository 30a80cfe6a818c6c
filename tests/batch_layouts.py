"""How the batches that a step drew are handed to its transcript."""

from collections.abc import Callable
from typing import Any

import numpy as np
from problem_cases import ProblemCase
from stepping import Batches

from bilax.algorithms.f2sa import WEIGHTS


def numbers(batch) -> np.ndarray:
    return np.asarray(batch["number"])


def series(draws: list) -> Batches:
    """B_y, B_F, B_G, then the factors, B_Q first: the order in which a step draws."""
    (_, B_y), (_, B_F), (_, B_G), *factors = draws
    assert [level for level, _ in draws[:3]] == ["G", "F", "G"]
    factors = [numbers(batch) for _, batch in factors]
    B = {len(factors) - i: batch for i, batch in enumerate(factors)}
    # Transcripts take the factors by number or in order.
    return Batches(B_y=numbers(B_y), B_F=numbers(B_F), B_G=numbers(B_G), B=B, factors=factors)


def loop_then_series(T: int, draws: list) -> Batches:
    """T inner batches, then B_F, B_G and the factors."""
    s = series(draws[T - 1 :])
    s.B_y = [numbers(batch) for _, batch in draws[:T]]
    return s


def series_then_loop(Q: int, draws: list) -> Batches:
    """B_F, B_G, the Q factors, then the inner batches."""
    s = series([draws[-1], *draws[: 2 + Q]])
    s.B_y = [numbers(batch) for _, batch in draws[2 + Q :]]
    return s


def two(draws: list) -> Batches:
    (_, B_G), (_, B_F) = draws
    return Batches(B_G=numbers(B_G), B_F=numbers(B_F))


def loop_outer_loop(T: int, draws: list) -> Batches:
    """T inner batches for y, the outer batch, T inner batches for v, one more."""
    assert [level for level, _ in draws] == ["G"] * T + ["F"] + ["G"] * (T + 1)
    found = [numbers(batch) for _, batch in draws]
    return Batches(B_y=found[:T], B_F=found[T], B_v=found[T + 1 : -1], B_G=found[-1])


def five(draws: list) -> Batches:
    assert [level for level, _ in draws] == ["G", "G", "G", "F", "F"]
    return Batches(**dict(zip(("B1", "B2", "B4", "B3", "B5"), (numbers(batch) for _, batch in draws), strict=True)))


def two_or_none(draws: list) -> Batches:
    return two(draws) if draws else Batches()


def points_then_two(a: Any, draws: list) -> Batches:
    """For each inner step an inner and an outer batch for each point, then one of each."""
    *loop, (_, B_G), (_, B_F) = draws
    left = iter(loop)
    inner = [[(next_of(left, "G"), next_of(left, "F") if j else None) for j in WEIGHTS[a.P]] for _ in range(a.T)]
    assert next(left, None) is None
    return Batches(inner=inner, B_G=numbers(B_G), B_F=numbers(B_F))


def next_of(left: Any, level: str) -> np.ndarray:
    of, batch = next(left)
    assert of == level
    return numbers(batch)


def outer_then_loop(T: int, draws: list) -> Batches:
    """B_F, then the T inner batches; reverse draws them again on its way back."""
    assert draws[0][0] == "F"
    return Batches(B_F=numbers(draws[0][1]), B_y=[numbers(batch) for _, batch in draws[1 : T + 1]])


def written(method: Callable, layout: Callable[[Any, list], Any], parameters: Callable[[Any], dict]) -> Callable:
    """A transcript that is called with the drawn batches, laid out, and the algorithm's parameters."""

    def run(a: Any, case: ProblemCase, drawn: list, K: int, **projections) -> list[dict]:
        draws = [laid_out(layout, a, k, step) for k, step in enumerate(drawn)]
        rows = method(case.twin, case.x0, case.y0.ravel(), draws.__getitem__, K, **parameters(a), **projections)
        return [{**row, "draws": batches} for row, batches in zip(rows, draws, strict=True)]

    return run


def laid_out(layout: Callable[[Any, list], Any], a: Any, k: int, step: list) -> Any:
    try:
        return layout(a, step)
    except (AssertionError, ValueError, IndexError) as error:
        levels = " ".join(level for level, _ in step)
        raise AssertionError(f"step {k}: the draws do not agree with the row's layout; drawn: {levels}") from error


def named(*names: str, **renamed: str) -> Callable[[Any], dict]:
    return lambda a: {n: getattr(a, n) for n in names} | {theirs: getattr(a, ours) for theirs, ours in renamed.items()}


def terms(parameters: Callable[[Any], dict]) -> Callable[[Any], dict]:
    """A series of random length up to Q has N = Q + 1 terms."""
    return lambda a: parameters(a) | {"N": a.Q + 1, "eta": a.eta}
