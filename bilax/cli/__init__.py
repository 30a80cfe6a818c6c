"""The command line: a thin shell over the library. Nothing imports it."""

from bilax.cli.app import main

__all__ = ["main"]
