"""All commands. Each imports what it needs when it runs, so that --help is quick."""

from bilax.cli import look, work
from bilax.cli.shell import app, main

__all__ = ["app", "look", "main", "work"]
