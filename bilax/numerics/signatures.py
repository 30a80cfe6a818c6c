"""What arguments a user's function takes."""

import inspect
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


def takes_key(function: Any) -> bool:
    """Tell whether a function of (x, y, batch) has a fourth argument that is named key."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 3 and positional[3].name == "key"
