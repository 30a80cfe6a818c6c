"""Libraries that only a report needs."""

import importlib
from typing import Any


def check_installed() -> None:
    """Raise now the error that a report would raise later."""
    for module in ("pandas", "plotly", "matplotlib"):
        required(module)


def required(module: str) -> Any:
    """Import a module late, or say how to get it.

    >>> required("json").dumps([1])
    '[1]'
    >>> required("no_such_module")
    Traceback (most recent call last):
    ImportError: a report needs no_such_module: pip install 'bilax[report]'
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f"a report needs {module.split('.')[0]}: pip install 'bilax[report]'") from None
