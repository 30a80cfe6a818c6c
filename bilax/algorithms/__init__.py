"""Every algorithm, by the name it has on the command line. One file each, one line here."""

from bilax.algorithms.mrbo import MRBO
from bilax.algorithms.protocol import Algorithm, Info
from bilax.algorithms.vrbo import VRBO

ALGORITHMS: dict[str, type] = {
    "mrbo": MRBO,
    "vrbo": VRBO,
}

__all__ = ["ALGORITHMS", "Algorithm", "Info", *(cls.__name__ for cls in ALGORITHMS.values())]
