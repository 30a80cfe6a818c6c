"""Every algorithm. A new one is one file, and one line here, the last: the rest of the library reads this list.

The place in the list is also the style of a method's curves, so that a line never moves.
"""

from bilax.algorithms.protocol import Algorithm, Draws, Info

# isort: off
from bilax.algorithms.mrbo import MRBO as MRBO
from bilax.algorithms.mrbo_d import MRBOD as MRBOD
from bilax.algorithms.vrbo import VRBO as VRBO
from bilax.algorithms.stocbio import StocBiO as StocBiO
from bilax.algorithms.bsa import BSA as BSA
from bilax.algorithms.ttsa import TTSA as TTSA
from bilax.algorithms.mstsa import MSTSA as MSTSA
from bilax.algorithms.sustain import SUSTAIN as SUSTAIN
from bilax.algorithms.sema import SEMA as SEMA
from bilax.algorithms.stable import STABLE as STABLE
from bilax.algorithms.rsvrb import RSVRB as RSVRB
from bilax.algorithms.aid import AIDFP as AIDFP, AIDCG as AIDCG
from bilax.algorithms.reverse import Reverse as Reverse
from bilax.algorithms.soba import SOBA as SOBA
from bilax.algorithms.ma_soba import MASOBA as MASOBA
from bilax.algorithms.saba import SABA as SABA
from bilax.algorithms.srba import SRBA as SRBA
from bilax.algorithms.spaba import SPABA as SPABA
from bilax.algorithms.fsla import FSLA as FSLA
from bilax.algorithms.amigo import AmIGO as AmIGO
from bilax.algorithms.f2sa import F2SA as F2SA
from bilax.algorithms.bome import BOME as BOME
from bilax.algorithms.pzobo import PZOBO as PZOBO
# isort: on

# By the name on the command line, in the order of the list above.
ALGORITHMS: dict[str, type] = {
    cls.about.name: cls for cls in list(globals().values()) if isinstance(cls, type) and hasattr(cls, "about")
}

__all__ = ["ALGORITHMS", "Algorithm", "Draws", "Info", *(cls.__name__ for cls in ALGORITHMS.values())]  # pyright: ignore
