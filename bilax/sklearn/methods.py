"""Any method, with steps for a problem whose curvature is known: nothing is left to tune."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import optax

from bilax.algorithms import ALGORITHMS
from bilax.errors import unknown
from bilax.hyperparameters import names_of

# Their rates are numbers of the compiled program: another rate is not another program.
adam: Any = optax.inject_hyperparams(optax.adam)
sgd: Any = optax.inject_hyperparams(optax.sgd)


def with_steps(method: Any, outer: Any, inner: float, batch: int) -> Any:
    """Return the method of this name with the optimiser ``outer`` for x, steps ``inner`` for y and for linear systems.

    An algorithm with hyper-parameters of the user's own is taken as it is.
    """
    if not isinstance(method, str):
        return method
    if method not in ALGORITHMS:
        raise unknown("method", method, ALGORITHMS)
    made = ALGORITHMS[method]()
    values: dict[str, Any] = dict.fromkeys(names_of("outer_step", made), outer)
    docs = {field.name: field.metadata["doc"] for field in dataclasses.fields(made)}
    for name in names_of("inner_step", made):  # an optimiser is the step itself where a number would be relative
        values[name] = sgd(inner) if "relative" in docs[name] else inner
    values |= dict.fromkeys(names_of("series_step", made), inner)
    values |= dict.fromkeys(names_of("batch_size", made), batch)
    return dataclasses.replace(made, **values)


def by_part(optimisers: Mapping[str, Any]) -> Any:
    """Return an optimiser of x, a dictionary: one for each named part; the others stay as they are."""

    def part(x: Any) -> Any:
        if not isinstance(x, Mapping):  # some methods ask how far a step on a single number goes
            return next(iter(optimisers), "fixed")
        return {name: name if name in optimisers else "fixed" for name in x}

    return optax.partition({**optimisers, "fixed": optax.set_to_zero()}, part)
