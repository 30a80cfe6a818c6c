"""The constants of the paper's Assumptions 1 to 3."""

from typing import NamedTuple


class Constants(NamedTuple):
    """Constants of a problem; those that a problem has on no unbounded set hold where |(x, y)| <= radius."""

    L: float  # Lipschitz constant of grad F(.; xi) and grad G(.; zeta), for every sample
    mu: float  # strong convexity of G(x, .; zeta), for every sample
    M: float  # bound of |grad F(.; xi)|, for every sample
    tau: float  # Lipschitz constant of grad_x grad_y G
    rho: float  # Lipschitz constant of grad_y^2 G
    sigma: float  # standard deviation of grad G(.; zeta)
    radius: float
