"""The command line: a thin shell over the library. Nothing imports it."""

import sys
from importlib.util import find_spec

if any(find_spec(name) is None for name in ("typer", "rich", "platformdirs", "filelock")):
    sys.exit("The command line needs typer, rich, platformdirs and filelock: pip install 'bilax[cli]'")

from bilax.cli.app import main

__all__ = ["main"]
