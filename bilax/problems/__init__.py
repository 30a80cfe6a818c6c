"""Ready-made problems."""

from bilax.problems.hyper_cleaning import HyperCleaning, corrupt_labels, hyper_cleaning
from bilax.problems.quadratic import Constants, Quadratic, quadratic

__all__ = ["Constants", "HyperCleaning", "Quadratic", "corrupt_labels", "hyper_cleaning", "quadratic"]
