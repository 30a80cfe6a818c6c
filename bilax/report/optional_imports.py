"""Libraries that only reports and pictures need."""

import importlib
from typing import Any


def check_installed() -> None:
    """Raise now the error that a report would raise later."""
    for module in ("pandas", "plotly", "matplotlib"):
        required(module)


def required(module: str, what: str = "a report", extra: str = "report") -> Any:
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
        raise ImportError(f"{what} needs {module.split('.')[0]}: pip install 'bilax[{extra}]'") from None
