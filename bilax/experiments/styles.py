"""Which style a method's curves have: its own in every figure, by its place in the list of algorithms."""

import re
from zlib import crc32

from bilax.algorithms import ALGORITHMS
from bilax.report.styles import Style, style_of

NUMBERS = {name: number for number, name in enumerate(ALGORITHMS)}
STYLES = {name: style_of(number) for name, number in NUMBERS.items()}


class Styles:
    """The styles of one page. Other curves of a method than its own have its colour, with other dashes and marks."""

    def __init__(self) -> None:
        self._variants: dict[str, list[str]] = {}

    def of(self, algorithm: str, label: str) -> Style:
        if _bare(label) == _bare(algorithm):
            return style_of(_number(algorithm))
        known = self._variants.setdefault(algorithm, [])
        if label not in known:
            known.append(label)
        return style_of(_number(algorithm), 1 + known.index(label))


def _number(algorithm: str) -> int:
    """A method that is not in the list, such as one of an older version, has a number that its name decides."""
    return NUMBERS.get(algorithm, len(NUMBERS) + crc32(algorithm.encode()) % 1000)


def _bare(name: str) -> str:
    """Return a name as it is spelled everywhere.

    >>> _bare("MRBO(D)"), _bare("mrbo-d")
    ('mrbod', 'mrbod')
    """
    return re.sub("[^a-z0-9]", "", name.lower())
