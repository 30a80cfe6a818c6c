"""Estimators for scikit-learn: a classifier for tables with wrong labels, and one with a penalty for every feature.

>>> from bilax.sklearn import HyperCleaner
>>> HyperCleaner(random_state=0)
HyperCleaner(random_state=0)
"""

from importlib.util import find_spec

for name in ("sklearn", "optax"):
    if find_spec(name) is None:
        raise ImportError(f"bilax.sklearn needs {name}: pip install 'bilax[sklearn]'.")

from bilax.sklearn.cleaner import HyperCleaner  # noqa: E402
from bilax.sklearn.regression import BilevelLogisticRegression  # noqa: E402

__all__ = ["BilevelLogisticRegression", "HyperCleaner"]
