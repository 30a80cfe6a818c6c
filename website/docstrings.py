"""Docstrings as the pages want them: mathematics, examples and references in Markdown."""

import functools
import inspect
import re
import textwrap
from importlib import import_module
from typing import Any

import griffe

MATH_BLOCK = re.compile(r"^( *)\.\. math::\n((?:\1 +.*\n?|\n)+)", re.MULTILINE)
EXAMPLE = re.compile(r"^( *)(>>> .*(?:\n\1.*\S.*)*)", re.MULTILINE)
NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")


class Markdown(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if any(str(decorator.value).endswith("hyperparameters") for decorator in getattr(obj, "decorators", ())):
            # The meaning of every hyper-parameter is added when the class is made.
            made = getattr(import_module(obj.module.path), obj.name)
            obj.docstring.value = inspect.getdoc(made) or ""
        obj.docstring.value = markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """The methods are names of bilax too, which only the running program knows."""
        if pkg.name == "bilax":
            for cls in import_module("bilax").ALGORITHMS.values():
                pkg.set_member(cls.__name__, griffe.Alias(cls.__name__, f"{cls.__module__}.{cls.__name__}"))


def markdown(text: str) -> str:
    """Return a docstring in Markdown.

    >>> markdown("The norm of :math:`y_1` at y*(x).")
    'The norm of $y_1$ at y\\\\*(x).'
    """
    parts = re.split(
        r"(``.+?``|`.+?`|^ *\.\. math::\n(?:(?: +.*)?\n)*|^ *>>> .*(?:\n *\S.*)*)", text, flags=re.MULTILINE
    )
    text = "".join(part if number % 2 else part.replace("*(", r"\*(") for number, part in enumerate(parts))
    text = re.sub(r":math:`([^`]*)`", lambda found: f"${' '.join(found[1].split())}$", text)
    text = NAME.sub(_reference, MATH_BLOCK.sub(_formula, text))
    return EXAMPLE.sub(lambda found: _fenced(found[1], found[2]), text)


def _reference(found: re.Match) -> str:
    """Let the public names of bilax lead to where they are explained."""
    name = found[1].removeprefix("bilax.")
    return f"[{found[0]}][bilax.{name}]" if name in _public() else found[0]


@functools.cache
def _public() -> set[str]:
    bilax = import_module("bilax")
    return {name for name in bilax.__all__ if callable(getattr(bilax, name))}


def _formula(found: re.Match) -> str:
    indent, body = found[1], textwrap.dedent(found[2]).strip()
    return textwrap.indent(f"$$\n{body}\n$$\n\n", indent, lambda line: bool(line.strip()))


def _fenced(indent: str, example: str) -> str:
    return f"{indent}```pycon\n{indent}{example}\n{indent}```"
