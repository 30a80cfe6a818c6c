"""What arguments a user's function takes."""

import inspect
from itertools import takewhile
from typing import Any


def check_function(name: str, value: Any, arguments: int, what: str) -> None:
    """Refuse what is no function, or one that cannot take so many arguments."""
    if not callable(value):
        raise TypeError(f"{name} must be {what}; got {type(value).__name__}.")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some have none
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        raise TypeError(f"{name} must be {what}; it takes {signature}.") from None


KNOWN = ("key", "carried")  # what a loss may ask for by name


def more_arguments(function: Any, after: int = 3) -> tuple[str, ...]:
    """Return which of the known arguments a function of (x, y, batch) takes besides, in its order.

    >>> more_arguments(lambda x, y, batch, carried, key: 0), more_arguments(lambda x, y, batch, scale=1: 0)
    (('carried', 'key'), ())
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return tuple(takewhile(KNOWN.__contains__, positional[after:]))
