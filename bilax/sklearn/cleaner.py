"""HyperCleaner: a linear classifier for tables in which some labels are wrong."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bilax.sklearn import design, wide
from bilax.sklearn.crossfit import NOWHERE
from bilax.sklearn.label_noise import how_many, posterior
from bilax.sklearn.learning import LEARNABLE, Learned, Rows, learn

SPLIT = 0.2  # of the rows, taken for trusted where none are


class HyperCleaner(ClassifierMixin, BaseEstimator):
    """A linear classifier that learns from many labels, some of them wrong, with the help of a few trusted ones.

    Beside the classifier it learns how often each class is given another's label (the confusion), and the penalty of
    the classifier, so that classifiers which have not seen the trusted rows are right about them: a bilevel problem,
    solved by any of `bilax.ALGORITHMS`. Then each row's label is judged by a classifier that has not seen it.

    Args:
      method: the name of a method, such as "mrbo", or an algorithm with hyper-parameters of your own.
      steps: of the method, at most; it ends earlier once trusted rows that were held out gain nothing more.
      batch_size: rows in a batch.
      folds: classifiers, each of which does not see one part of the rows.
      held_out: share of the trusted rows that decide when to end. The last classifier is fitted to them, too.
      learn: what is learned besides the classifier, of "confusion", "penalty" and "weights" (one for each row).
      random_state: decides the folds, the batches and all else that is random.
      progress: show a bar; by default if standard error is a terminal.
      checkpoint_dir: a folder in which the work is saved as it goes; the same fit again goes on from there.

    Attributes:
      label_quality_: for each row, the chance that its label is right, from 0 to 1.
      suspicious_: positions of the rows whose label is rather wrong than right, the worst first.
      suggested_labels_: for each row, the most likely label.
      estimated_noise_: how many labels are wrong: the estimate, and the ends of an interval.
      sample_weight_: for each row, what its label counted for in the fit, from 0 to 1.
      confusion_: the chance that a row of one class (rows) is given the label of another (columns).
      classes_, coef_, intercept_: as in scikit-learn's linear classifiers, with a row for each class.
      n_iter_, counts_: steps taken, and calls of oracles.
      diagnostics_: how the fit went, in numbers and words.

    If X was a DataFrame, what there is for each row is a Series with its index.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(200, 2)) + 3 * k for k in (0, 1)])
    >>> true = np.repeat(["low", "high"], 200)
    >>> given = np.where(np.arange(400) % 5 == 0, "low", true)
    >>> trusted = np.arange(400) % 20 == 1
    >>> cleaner = HyperCleaner(random_state=0, steps=200).fit(X, given, trusted=trusted)
    >>> bool(np.mean(given[cleaner.suspicious_] != true[cleaner.suspicious_]) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        method="mrbo",
        steps=500,
        batch_size=512,
        folds=5,
        held_out=0.2,
        learn=("confusion", "penalty"),
        random_state=None,
        progress=None,
        checkpoint_dir=None,
    ):
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.folds = folds
        self.held_out = held_out
        self.learn = learn
        self.random_state = random_state
        self.progress = progress
        self.checkpoint_dir = checkpoint_dir

    def fit(self, X, y, *, X_trusted=None, y_trusted=None, trusted=None):
        """Fit to rows X with labels y, some of them wrong.

        Args:
          X_trusted, y_trusted: further rows, whose labels are right.
          trusted: or a mask of the rows of X whose labels are right.
        """
        _check_settings(self)
        index = getattr(X, "index", None)
        X, y = _validated(self, X, y, first=True)
        check_classification_targets(y)
        X, y, mask, more = _with_trusted(self, X, y, X_trusted, y_trusted, trusted)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there is one class alone, {self.classes_[0]}; a classifier needs two at least.")
        split = not mask.any()
        if split:
            mask = _split(label, rng)
        _warn_of_missing(self.classes_, label[mask])
        plan = design.fitted(X, rng)
        rows = Rows(plan(X), label.astype(np.int32), mask)
        found = learn(
            rows, plan, len(self.classes_), rng, method=self.method, steps=self.steps, batch=self.batch_size,
            folds=self.folds, held_out=self.held_out, parts=tuple(self.learn), progress=self.progress,
            checkpoint_dir=self.checkpoint_dir,
        )  # fmt: skip
        found = self._set_classifier(X, rows, plan, found, sure=not split)
        self._judge(rows, found, split, more, index, rng)
        return self

    def _set_classifier(self, X: Any, rows: Rows, plan: design.Design, found: Learned, sure: bool) -> Learned:
        """Set the coefficients; return what was learned, with the chances by all features if there are many."""
        fits = [plan.coefficients(V) for V in found.classifiers]
        last = fits[-1]
        if plan.directions is not None:
            itself = np.where(np.eye(len(self.classes_)), 0.0, NOWHERE)[rows.label]
            through = np.where(rows.trusted[:, None], itself, np.log(found.confusion).T[rows.label])
            all_features = wide.fit(
                plan.scaled(X), rows.label, through, rows.trusted & sure, found.held, found.fold, fits
            )
            last, found = all_features.W, found._replace(unseen=all_features.unseen, seen=all_features.seen)
        self.coef_, self.intercept_ = last[:-1].T / plan.scale, last[-1]
        return found

    def _judge(self, rows: Rows, found: Learned, split: bool, more: int, index: Any, rng: Any) -> None:
        n = len(rows.label) - more
        every = np.arange(len(rows.label))
        known = rows.trusted & (not split)
        true = posterior(found.unseen, found.confusion, rows.label)
        quality = np.where(known, 1.0, true[every, rows.label])
        suggested = np.where(known, rows.label, true.argmax(1))
        seen = posterior(found.seen, found.confusion, rows.label)[every, rows.label]
        used = np.where(rows.trusted, 1.0, found.weights * seen)
        noise = how_many(
            found.unseen[~known], rows.label[~known], quality[~known], found.unseen[rows.trusted],
            rows.label[rows.trusted], rng,
        )  # fmt: skip
        wrong = np.flatnonzero(quality[:n] < 0.5)
        self.suspicious_ = wrong[np.argsort(quality[wrong], kind="stable")]
        self.estimated_noise_ = noise
        self.confusion_ = found.confusion
        self.n_iter_, self.counts_, self.diagnostics_ = found.steps, found.counts, found.diagnostics
        self.label_quality_, self.sample_weight_ = _like(index, quality[:n]), _like(index, used[:n])
        self.suggested_labels_ = _like(index, self.classes_[suggested[:n]])

    def decision_function(self, X):
        """Return the scores of the classes; of two, what the second one is ahead."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X):
        """Return the chances of the classes."""
        return softmax(self._scores(X), axis=1)

    def predict(self, X):
        """Return the most likely class of each row."""
        best = self._scores(X).argmax(1)
        return self.classes_[best]

    def _scores(self, X):
        check_is_fitted(self)
        X = _validated(self, X)
        return np.asarray(X @ self.coef_.T) + self.intercept_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _validated(cleaner: HyperCleaner, X: Any, y: Any = None, *, first: bool = False) -> Any:
    """Return X as numbers; the first time with y, and later it must be like then."""
    how: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    return validate_data(cleaner, X, y, **how) if first else validate_data(cleaner, X, reset=False, **how)


def _check_settings(cleaner: HyperCleaner) -> None:
    for name, least in (("steps", 1), ("batch_size", 1), ("folds", 2)):
        value = getattr(cleaner, name)
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}.")
    if isinstance(cleaner.held_out, bool) or not 0 <= cleaner.held_out < 1:
        raise ValueError(f"held_out must be a number from 0 to below 1; got {cleaner.held_out!r}.")
    wrong = [part for part in cleaner.learn if part not in LEARNABLE]
    if isinstance(cleaner.learn, str) or wrong:
        raise ValueError(f"learn must name some of {', '.join(LEARNABLE)}; got {cleaner.learn!r}.")


def _with_trusted(
    cleaner: HyperCleaner, X: Any, y: Any, X_trusted: Any, y_trusted: Any, trusted: Any
) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """Return all rows and labels, which of them are trusted, and how many come after the user's own X."""
    n = X.shape[0]
    mask = np.zeros(n, bool)
    if trusted is not None:
        given = column_or_1d(trusted)
        if given.dtype != bool or len(given) != n:
            raise ValueError(f"trusted must be a mask of True and False for the {n} rows of X; got {trusted!r}.")
        mask = given.copy()
        if not mask.any() and X_trusted is None:
            raise ValueError("trusted marks no row; mark those whose label is right, or leave it out.")
    if (X_trusted is None) != (y_trusted is None):
        raise ValueError("give both X_trusted and y_trusted, or neither.")
    if X_trusted is None:
        return X, y, mask, 0
    X_more = _validated(cleaner, X_trusted)
    y_more = column_or_1d(np.asarray(y_trusted), warn=True)
    if len(y_more) != X_more.shape[0]:
        raise ValueError(f"X_trusted has {X_more.shape[0]} rows and y_trusted {len(y_more)} labels.")
    if (np.asarray(y).dtype.kind in "OU") != (y_more.dtype.kind in "OU"):
        raise ValueError(f"y holds labels like {y[0]!r} and y_trusted like {y_more[0]!r}; use one type.")
    sparse = scipy.sparse.issparse(X) or scipy.sparse.issparse(X_more)
    both = scipy.sparse.vstack([X, X_more], format="csr") if sparse else np.concatenate([X, X_more])
    more = X_more.shape[0]
    return both, np.concatenate([y, y_more]), np.append(mask, np.ones(more, bool)), more


def _split(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    warnings.warn(
        f"no row is trusted, so {SPLIT:.0%} of them, drawn at random, are taken for it. Their labels may be wrong like "
        "the others: labels that are wrong at random are found, but a class that is often given the label of another "
        "one is taken for that. Give a few labels that were looked at again: X_trusted and y_trusted, or trusted.",
        UserWarning,
        stacklevel=3,
    )
    mask = np.zeros(len(label), bool)
    for one in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == one))
        mask[rows[: max(1, round(SPLIT * len(rows)))]] = True
    return mask


def _warn_of_missing(classes: np.ndarray, trusted: np.ndarray) -> None:
    missing = np.setdiff1d(np.arange(len(classes)), trusted)
    if len(missing):
        names = ", ".join(str(name) for name in classes[missing][:5]) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"no trusted row is of the class {names}: how often it is confused with others can hardly be told. Look at "
            "a few rows of it again.",
            UserWarning,
            stacklevel=3,
        )


def _like(index: Any, values: np.ndarray) -> Any:
    if index is None or callable(index):  # a list has a method of that name
        return values
    import pandas

    return pandas.Series(values, index=index)
