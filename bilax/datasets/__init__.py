"""Real data, ready for the problems."""

from bilax.datasets.digits import digits
from bilax.datasets.mnist import mnist

__all__ = ["digits", "mnist"]
