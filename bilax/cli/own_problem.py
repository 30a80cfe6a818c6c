"""A problem of the user's own, from a file of Python."""

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from bilax.problem import Problem


def is_own(text: str) -> bool:
    return text.partition(":")[0].endswith(".py")


def load(text: str) -> Problem:
    """Return the problem of ``FILE.py:NAME``, which is a `Problem` or a function that makes one."""
    file, _, name = text.partition(":")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {file}; give FILE.py:NAME, NAME being a bilax.Problem in it.")
    module = _run(path, lambda: _imported(path))
    if not name:
        named = [key for key, value in vars(module).items() if isinstance(value, Problem)]
        raise ValueError(f"which of its names? Give {file}:NAME; its problems: {', '.join(named) or 'none yet made'}.")
    if not hasattr(module, name):
        raise ValueError(f"{file} has nothing that is called {name!r}.")
    found = getattr(module, name)
    found = found if isinstance(found, Problem) or not callable(found) else _run(path, found)
    if not isinstance(found, Problem):
        raise TypeError(f"{text} must be a bilax.Problem, or return one; it is {type(found).__name__}.")
    if found.x0 is None or found.y0 is None:
        raise ValueError(f"{text} does not say where to start; give it x0 and y0.")
    return found


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as `python FILE.py` does
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _run(path: Path, fn: Any) -> Any:
    try:
        return fn()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1].lineno if own else None
        at = "" if line is None else f", line {line}"
        raise ValueError(f"{path}{at}: {type(error).__name__}: {error}") from error
