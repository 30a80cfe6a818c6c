"""Ready-made problems."""

from bilax.problems.hyper_cleaning import HyperCleaning, corrupt_labels, hyper_cleaning
from bilax.problems.logistic import logistic
from bilax.problems.quadratic import Quadratic, quadratic

__all__ = ["HyperCleaning", "Quadratic", "corrupt_labels", "hyper_cleaning", "logistic", "quadratic"]
