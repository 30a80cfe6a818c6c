"""Compiled programs are kept for functions that come again, and forgotten when too many came that did not.

JAX keeps a program as long as the jitted function lives, and with it the losses that it was compiled for. A loss
that is written anew for every call of `solve` would fill the memory.
"""

from collections.abc import Hashable

from bilax import oracle
from bilax.hypergrad import estimators
from bilax.numerics import convolutions
from bilax.running import eta_warnings, inspection, loop

KEPT = 64  # problems with functions of their own

_seen: set[Hashable] = set()


def make_room(functions: Hashable) -> None:
    """Forget all programs if these functions are new, and there are too many."""
    if functions in _seen:
        return
    if len(_seen) >= KEPT:
        _seen.clear()
        for program in (
            loop.advance,
            loop.advance_while_finite,
            loop._move,
            loop._step,
            loop.state_is_finite,
            inspection._forward,
            inspection._losses,
            inspection._verdict,
            eta_warnings._largest_eigenvalue,
            estimators._estimate,
        ):
            program.clear_cache()  # type: ignore[attr-defined]
        oracle._ways.cache_clear()
        convolutions._has_convolutions.cache_clear()
    _seen.add(functions)
