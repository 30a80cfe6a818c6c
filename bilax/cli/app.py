"""All commands. Each imports what it needs when it runs, so that --help is quick."""

from bilax.cli import clean_command, info_commands, run_commands
from bilax.cli.shell import app, main

__all__ = ["app", "clean_command", "info_commands", "main", "run_commands"]
