"""BilevelLogisticRegression: a logistic regression with a learned penalty for every feature."""

from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bilax.sklearn.penalties import learn, mean_squares, most_curved


class BilevelLogisticRegression(ClassifierMixin, BaseEstimator):
    """A logistic regression whose penalty is learned, one for every feature or group of features.

    The penalties are chosen so that regressions which have not seen a row are right about it: a bilevel problem, solved
    by any of `bilax.ALGORITHMS`. The last fit is that of scikit-learn's LogisticRegression, to all rows.

    Args:
      groups: for each feature the name or number of its group, which shares one penalty; by default each is its own.
      method: the name of a method, such as "mrbo", or an algorithm with hyper-parameters of your own.
      steps: of the method, altogether.
      batch_size: rows in a batch.
      folds: parts of the rows, each of which one regression does not see.
      prior: how much evidence it takes to give a feature a penalty of its own; 0 for none.
      random_state: decides the folds, the batches and all else that is random.
      progress: show a bar; by default if standard error is a terminal.
      checkpoint_dir: a folder in which the work is saved as it goes; the same fit again goes on from there.

    Attributes:
      penalty_: for each feature its penalty, in the units of scikit-learn's 1/C: dividing the columns of X by its
        square root and fitting with C=1 gives this model.
      shrinkage_: for each feature, from 0 (taken as it is) to 1 (left out): comparable whatever its scale.
      coef_, intercept_, classes_: as in LogisticRegression.
      n_iter_, counts_: steps taken, and calls of oracles.
      diagnostics_: how the fit went.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 20))
    >>> y = X[:, 0] + X[:, 1] + rng.normal(size=300) > 0
    >>> model = BilevelLogisticRegression(random_state=0, steps=300).fit(X, y)
    >>> [int(j) for j in np.sort(np.argsort(model.penalty_)[:2])]
    [0, 1]
    """

    def __init__(
        self,
        *,
        groups=None,
        method="mrbo",
        steps=600,
        batch_size=512,
        folds=5,
        prior=0.25,
        random_state=None,
        progress=None,
        checkpoint_dir=None,
    ):
        self.groups = groups
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.folds = folds
        self.prior = prior
        self.random_state = random_state
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    def fit(self, X, y):
        """Fit to rows X with labels y."""
        self._check_settings()
        X, y = self._validated(X, y, first=True)
        check_classification_targets(y)
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there is one class alone, {self.classes_[0]}; a classifier needs two at least.")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        centre, scale = _scale(X)
        features = _divided(X if centre is None else X - centre, scale)
        group = self._groups(X.shape[1])
        found = learn(
            features, label, len(self.classes_), group, rng, method=self.method, steps=self.steps,
            batch=self.batch_size, folds=min(self.folds, len(label)), prior=self.prior, progress=self.progress,
            checkpoint_dir=self.checkpoint_dir,
        )  # fmt: skip
        strength = np.exp(found.log_penalty if group is None else group @ found.log_penalty)
        curvature = len(label) * most_curved(len(self.classes_)) * mean_squares(features)
        self.shrinkage_ = strength / (strength + curvature)
        self.penalty_ = strength * scale**2
        last = LogisticRegression(C=1.0, max_iter=1000, tol=1e-6).fit(_divided(features, np.sqrt(strength)), label)
        self.coef_ = last.coef_ / (np.sqrt(strength) * scale)
        self.intercept_ = last.intercept_ - (0.0 if centre is None else self.coef_ @ centre)
        self.n_iter_, self.counts_, self.diagnostics_ = found.steps, found.counts, found.diagnostics
        return self

    def decision_function(self, X):
        """Return the scores of the classes; of two, that of the second one."""
        check_is_fitted(self)
        X = self._validated(X)
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X):
        """Return the chances of the classes."""
        scores = self.decision_function(X)
        return softmax(np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores, axis=1)

    def predict(self, X):
        """Return the most likely class of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def _validated(self, X: Any, y: Any = None, *, first: bool = False) -> Any:
        how: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        return validate_data(self, X, y, **how) if first else validate_data(self, X, reset=False, **how)

    def _groups(self, features: int) -> np.ndarray | None:
        if self.groups is None:
            return None
        groups = column_or_1d(np.asarray(self.groups))
        if len(groups) != features:
            raise ValueError(f"groups must name the group of each of the {features} features; got {len(groups)} names.")
        names, number = np.unique(groups, return_inverse=True)
        return np.eye(len(names))[number]

    def _check_settings(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 1), ("folds", 2)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}.")
        if isinstance(self.prior, bool) or not self.prior >= 0:
            raise ValueError(f"prior must be a number, at least 0; got {self.prior!r}.")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _scale(X: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the centre and the scale of each feature. Those of a sparse matrix are alike as they are."""
    if scipy.sparse.issparse(X):
        largest = abs(X).max()
        return None, np.full(X.shape[1], largest if largest > 0 else 1.0)
    spread = X.std(0)
    return X.mean(0), np.where(spread > 0, spread, 1.0)


def _divided(X: Any, by: np.ndarray) -> Any:
    return X.multiply(1 / by).tocsr() if scipy.sparse.issparse(X) else X / by
