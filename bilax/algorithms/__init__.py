"""Every algorithm. A new one is one file, and one line here: the rest of the library reads this list."""

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
# isort: on

# By the name on the command line, in the order of the list above.
ALGORITHMS: dict[str, type] = {
    cls.about.name: cls for cls in list(globals().values()) if isinstance(cls, type) and hasattr(cls, "about")
}

__all__ = ["ALGORITHMS", "Algorithm", "Draws", "Info", *(cls.__name__ for cls in ALGORITHMS.values())]  # pyright: ignore
