"""What is said to a person: that a name does not exist, and that a result should not be trusted."""

import difflib
import sys
import warnings
from collections.abc import Iterable


def unknown(what: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is not among the known ones.

    >>> raise unknown("method", "mrob", ["mrbo", "vrbo"])
    Traceback (most recent call last):
    ValueError: no method is called 'mrob'. Did you mean mrbo? There are mrbo, vrbo.
    """
    known = list(known)
    lower = {one.lower(): one for one in reversed(known)}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean {lower[close[0]]}?" if close else ""
    return ValueError(f"no {what} is called {name!r}.{hint} There are {', '.join(known)}.")


class Doubtful(UserWarning):
    """The warning that a result should not be trusted as it is; the text has the numbers, and what to do.

    >>> warnings.filterwarnings("error", category=Doubtful)  # makes it an error, in a program that must not go on
    >>> warnings.warn("the outer loss is ten times as large as at the start", Doubtful)
    Traceback (most recent call last):
    bilax.errors.Doubtful: the outer loss is ten times as large as at the start
    """


class UnsafeEta(Doubtful):
    """The warning that the step eta of a series is above 1/L, L being the largest eigenvalue of the inner Hessian.

    >>> issubclass(UnsafeEta, Doubtful)
    True
    """


class Doubts:
    """The warnings of one run: given as they arise, and kept for the result."""

    def __init__(self, quiet: bool = False):
        self.texts: list[str] = []
        self.quiet = quiet

    def add(self, text: str, category: type[Doubtful] = Doubtful) -> None:
        self.texts.append(text)
        if not self.quiet:
            warnings.warn(text, category, stacklevel=_outside())


def _outside() -> int:
    """Return how many calls above `warnings.warn` the code of the user is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("bilax."):
        frame, level = frame.f_back, level + 1
    return level
