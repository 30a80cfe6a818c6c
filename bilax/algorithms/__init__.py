"""Every algorithm, by the name it has on the command line. One file each, one line here."""

from bilax.algorithms.aid import AIDCG, AIDFP
from bilax.algorithms.bsa import BSA
from bilax.algorithms.mrbo import MRBO
from bilax.algorithms.mrbo_d import MRBOD
from bilax.algorithms.mstsa import MSTSA
from bilax.algorithms.protocol import Algorithm, Info
from bilax.algorithms.reverse import Reverse
from bilax.algorithms.rsvrb import RSVRB
from bilax.algorithms.sema import SEMA
from bilax.algorithms.stable import STABLE
from bilax.algorithms.stocbio import StocBiO
from bilax.algorithms.sustain import SUSTAIN
from bilax.algorithms.ttsa import TTSA
from bilax.algorithms.vrbo import VRBO

ALGORITHMS: dict[str, type] = {
    "mrbo": MRBO,
    "mrbo-d": MRBOD,
    "vrbo": VRBO,
    "stocbio": StocBiO,
    "bsa": BSA,
    "ttsa": TTSA,
    "mstsa": MSTSA,
    "sustain": SUSTAIN,
    "sema": SEMA,
    "stable": STABLE,
    "rsvrb": RSVRB,
    "aid-fp": AIDFP,
    "aid-cg": AIDCG,
    "reverse": Reverse,
}

__all__ = ["ALGORITHMS", "Algorithm", "Info", *(cls.__name__ for cls in ALGORITHMS.values())]
