"""Answer a name that does not exist with the one that was probably meant."""

import difflib
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
