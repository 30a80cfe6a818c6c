"""Estimators for scikit-learn: a classifier for tables with wrong labels, and one with a penalty for every feature.

>>> from bilax.sklearn import HyperCleaner
>>> HyperCleaner(random_state=0)
HyperCleaner(random_state=0)
"""

try:
    import optax as _optax
    import sklearn as _sklearn
except ImportError as error:
    raise ImportError(f"bilax.sklearn needs scikit-learn and optax: pip install 'bilax[sklearn]' ({error}).") from None

from bilax.sklearn.cleaner import HyperCleaner

__all__ = ["HyperCleaner"]
