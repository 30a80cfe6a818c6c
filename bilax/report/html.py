"""Markup that cannot be broken by what is put into it: text is escaped unless it was made here."""

import json
import math
import re
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

_VOID = {"input", "img", "br", "wbr"}


class Html(str):
    """Text that is markup already."""


def escape(text: str) -> Html:
    return text if isinstance(text, Html) else Html(_escape(text))


def join(parts: Iterable[str], between: str = "\n") -> Html:
    return Html(between.join(escape(part) for part in parts if part))


def tag(name: str, /, *inside: str, **attributes: Any) -> Html:
    """Return an element.

    >>> tag("p", "1 < 2 ", tag("b", "so"), class_="x", hidden=True, data_k=1, id=None)
    '<p class="x" hidden data-k="1">1 &lt; 2 <b>so</b></p>'
    """
    written = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {key}"
        elif value is not None and value is not False:
            written += f' {key}="{_escape(str(value))}"'
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(inside, '')}</{name}>")


def paragraphs(text: str, **attributes: Any) -> Html:
    """Return the paragraphs of a text, which are parted by blank lines."""
    return join(tag("p", part.strip(), **attributes) for part in re.split(r"\n\s*\n", text) if part.strip())


def data(value: Any, **attributes: Any) -> Html:
    """Return a value as JSON in a script element that no browser runs."""
    # json writes everything beyond ASCII as \uXXXX, so that U+2028 and U+2029 need no care of their own.
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Html(text), type="application/json", **attributes)


def _finite(value: Any) -> Any:
    """Return the value with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
