"""What runs in the benchmark: every method for an outer and an inner step, the grids, the published best steps.

All take batches of 64 samples in blocks that lie next to each other, ten inner steps where there is an inner loop,
and ten products where there is a series, as the field's benchmark does; those that are deterministic take all samples.
A step that decreases has its stated size at k = 0. A momentum begins with the weight 1/2.
"""

from collections.abc import Callable
from typing import Any

import bilax.algorithms as A
from bilax.experiments.tasks import Task

Recipe = Callable[[float, float], Any]  # outer step, inner step -> setting

DECAY: dict[str, Any] = dict(d=2.0, m=8.0)  # eta_k = (8 / (8 + k))^(1/3)

METHODS: dict[str, Recipe] = {
    "MRBO": lambda x, y: A.MRBO(gamma=x, lam=y, c1=0.5, c2=0.5, Q=10, **DECAY),
    "MRBO(D)": lambda x, y: A.MRBOD(gamma=x, lam=y, c1=0.5, c2=0.5, N=10, Q=10, **DECAY),
    "VRBO": lambda x, y: A.VRBO(alpha=x, beta=y, m=10, q=10, Q=10, S1=1024, S2=64),
    "stocBiO": lambda x, y: A.StocBiO(beta=x, alpha=y, D=10, Q=10),
    "BSA": lambda x, y: A.BSA(alpha=x, beta=y, a=0.5, b=0.0, T=10, Q=10, S=64),
    "TTSA": lambda x, y: A.TTSA(alpha=x, beta=y, Q=10, S=64),
    "MSTSA": lambda x, y: A.MSTSA(alpha=x, beta=y, c=0.5 / x, Q=10, S=64),
    "SUSTAIN": lambda x, y: A.SUSTAIN(c=2 * x, c_b=y / x, c_f=0.5 / x**2, c_g=0.5 / x**2, w=8.0, Q=10, S=64),
    "SEMA": lambda x, y: A.SEMA(gamma=x, tau=y, alpha=0.5, beta=0.5, Q=10, S=64),
    "STABLE": lambda x, y: A.STABLE(alpha=x, beta=y, tau=0.1, S=64),
    "RSVRB": lambda x, y: A.RSVRB(gamma=x, tau=y / x, beta=0.1, S=64),
    "AID-FP": lambda x, y: A.AIDFP(alpha=x, beta=y),
    "AID-CG": lambda x, y: A.AIDCG(alpha=x, beta=y),
    "reverse": lambda x, y: A.Reverse(alpha=x, beta=y),
    "SOBA": lambda x, y: A.SOBA(gamma=x, rho=y),
    "MA-SOBA": lambda x, y: A.MASOBA(alpha=x, beta=y),
    "SABA": lambda x, y: A.SABA(gamma=x, rho=y),
    "SRBA": lambda x, y: A.SRBA(gamma=x, rho=y, q=1000),
    "SPABA": lambda x, y: A.SPABA(gamma=x, rho=y, q=1000),
    "FSLA": lambda x, y: A.FSLA(gamma=x, rho=y),
    "AmIGO": lambda x, y: A.AmIGO(gamma=x, rho=y),
    "F2SA": lambda x, y: A.F2SA(gamma=x, beta=y),
    "BOME": lambda x, y: A.BOME(gamma=x, rho=0.5, alpha=y),
    "PZOBO": lambda x, y: A.PZOBO(gamma=x, beta=y),
}
ALL_SAMPLES = ("AID-FP", "AID-CG", "reverse")
DENSE = ("STABLE", "RSVRB")  # they keep matrices of y by y, and of y by x

SIMULATED, IJCNN1, COVTYPE = Task("simulated"), Task("ijcnn1"), Task("covtype")
TASKS = (SIMULATED, IJCNN1, COVTYPE, *(Task("mnist-replaced", ratio) for ratio in (0.5, 0.7, 0.9)))

Grid = tuple[tuple[float, ...], tuple[float, ...]]  # inner steps, and inner / outer

GRIDS: dict[str, Grid] = {
    "simulated": ((0.01, 0.03, 0.1, 0.3, 1.0), (0.1, 0.3, 1, 10, 100)),
    "ijcnn1": ((0.0625, 0.125, 0.25, 0.5, 1.0), (0.01, 0.03, 0.1, 0.3, 1)),
    "covtype": ((0.031, 0.0625, 0.125, 0.25, 1.0), (0.01, 0.03, 0.1, 1, 10)),
    "mnist-replaced": ((0.001, 0.01, 0.03, 0.1, 1.0), (1e-6, 1e-5, 1e-4, 1e-3, 1e-1)),
}

# Inner and outer step, as the field's benchmark published them (its run of 2024 where there is one).
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "simulated": {
        "SABA": (0.1, 0.1), "SRBA": (0.1, 0.1), "AmIGO": (0.01, 0.1), "F2SA": (0.1, 0.1),
        "MRBO": (0.1, 1), "VRBO": (0.1, 0.1), "stocBiO": (0.1, 0.1),
    },
    "ijcnn1": {
        "SOBA": (0.031, 3.1), "SABA": (0.25, 0.25), "SRBA": (0.5, 0.5), "AmIGO": (0.125, 1.25), "FSLA": (0.031, 3.1),
        "MRBO": (0.5, 16), "VRBO": (0.0625, 2), "stocBiO": (0.25, 0.25),
    },
    "covtype": {
        "SOBA": (1, 100), "SRBA": (0.031, 3.1), "AmIGO": (0.031, 0.31), "FSLA": (1, 100),
        "MRBO": (1, 100), "VRBO": (0.25, 25), "stocBiO": (0.0625, 6),
    },
    "mnist-replaced-p0.5": {
        "SOBA": (1, 1e4), "SABA": (0.1, 100), "SRBA": (0.001, 100), "AmIGO": (0.001, 1e3), "FSLA": (1, 1e4),
        "F2SA": (0.1, 1e3), "MRBO": (1, 1e6), "VRBO": (0.1, 1e4), "stocBiO": (0.01, 1e3),
    },
    "mnist-replaced-p0.7": {
        "SOBA": (1, 1e4), "SABA": (0.01, 100), "SRBA": (0.001, 100), "AmIGO": (0.001, 100), "FSLA": (1, 1e5),
        "MRBO": (0.1, 1e3), "VRBO": (0.1, 1e3), "stocBiO": (0.01, 1e3),
    },
    "mnist-replaced-p0.9": {
        "SOBA": (1, 1e3), "SABA": (0.1, 100), "SRBA": (0.001, 100), "AmIGO": (0.001, 100), "FSLA": (1, 1e3),
        "MRBO": (1, 100), "VRBO": (0.1, 100), "stocBiO": (0.01, 1e3),
    },
}  # fmt: skip


def methods_for(task: Task) -> list[str]:
    """Return the methods that can run on a problem: two need matrices that only small ones have room for."""
    small = task in (SIMULATED, IJCNN1)
    return [name for name in METHODS if small or name not in DENSE]


def sampler_of(method: str) -> str:
    return "full" if method in ALL_SAMPLES else "blocks"
