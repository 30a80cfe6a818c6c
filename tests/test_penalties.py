"""BilevelLogisticRegression: a penalty for every feature, learned."""

import io
import pickle

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bilax.sklearn import BilevelLogisticRegression
from bilax.sklearn.penalties import REACH, Curvature, Fitted, Folds, mean_squares, most_curved

USEFUL = 5


def rows(n=400, features=60, classes=2, seed=0):
    """Features of quite different scales, of which the first few matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    W = np.random.default_rng(99).normal(size=(USEFUL, classes)) * 1.5
    y = (X[:, :USEFUL] @ W + rng.gumbel(size=(n, classes))).argmax(1)
    return X * np.geomspace(0.1, 10, features), y


def quick(**settings):
    return BilevelLogisticRegression(**{"steps": 240, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    frame = pandas.DataFrame(X, columns=[f"feature {j}" for j in range(X.shape[1])])
    return quick().fit(frame, np.array(["no", "yes"])[y]), frame, y


@pytest.mark.slow
def test_useless_features_are_found_and_cost_nothing(fitted):
    model, frame, y = fitted
    useless = np.arange(frame.shape[1]) >= USEFUL
    assert roc_auc_score(useless, model.shrinkage_) > 0.95
    X_test, y_test = rows(5_000, seed=1)
    test = pandas.DataFrame(X_test, columns=frame.columns)
    how = {"Cs": 10, "cv": 5, "scoring": "neg_log_loss", "max_iter": 2_000}
    one = LogisticRegressionCV(l1_ratios=(0.0,), use_legacy_attributes=False, **how)
    scaler = StandardScaler()
    one.fit(scaler.fit_transform(frame), y)
    ours = log_loss(y_test, model.predict_proba(test))
    assert ours < log_loss(y_test, one.predict_proba(scaler.transform(test))) - 0.02
    assert set(model.predict(test)) == {"no", "yes"}


def test_the_penalty_is_in_the_units_of_scikit_learn(fitted):
    model, frame, y = fitted
    root = np.sqrt(model.penalty_)
    same = LogisticRegression(C=1.0, max_iter=5_000, tol=1e-9).fit(frame.to_numpy() / root, y)
    np.testing.assert_allclose(model.coef_, same.coef_ / root, rtol=1e-2, atol=1e-3 * np.abs(model.coef_).max())


def test_it_survives_pickle_and_joblib(fitted):
    model, frame, _ = fitted
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for copy in (pickle.loads(pickle.dumps(model)), joblib.load(file)):
        np.testing.assert_array_equal(copy.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.slow
def test_a_group_shares_one_penalty():
    X, y = rows(300, 20, classes=3)
    X /= X.std(0)
    names = np.where(np.arange(20) < USEFUL, "useful", "useless")
    model = quick(groups=names).fit(X, y)
    assert len(np.unique(np.round(model.penalty_ / X.var(0), 6))) == 2
    assert model.penalty_[:USEFUL].max() < model.penalty_[USEFUL:].min()
    assert model.coef_.shape == (3, 20)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kind", ["dense", "wide", "sparse"])
def test_no_direction_is_more_curved_than_one(classes, kind):
    """In its basis, for all penalties within reach, so that steps need not be tuned."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12)) @ rng.normal(size=(12, 12))
    X = scipy.sparse.csr_array(X * (rng.random(X.shape) < 0.3)) if kind == "sparse" else X
    curved = Curvature(X, most_curved(classes), rng)
    if kind == "wide":
        curved.whole, curved.moment = False, most_curved(classes) * np.append(1.0, mean_squares(X))
    penalty = np.exp(rng.normal(size=12))
    basis, coordinates, _ = curved.basis(penalty * np.exp(REACH))
    shape = Folds(classes, 2)
    dense = X.toarray() if kind == "sparse" else X
    batch = {"features": jnp.asarray(dense), "label": jnp.zeros(80, int), "fold": jnp.arange(80) % 2}
    batch["share"] = jnp.ones(80)
    V = jnp.zeros((13, 2 * shape.columns))
    hessian = jax.jit(jax.hessian(lambda v, x: Fitted(shape)(x, v.reshape(V.shape), batch)))
    for move in (-REACH, 0.0, REACH):
        x = {"common": jnp.asarray(move), "own": jnp.log(penalty), "basis": jnp.asarray(basis)}
        assert np.linalg.eigvalsh(hessian(V.ravel(), x)).max() <= 1 + 1e-6
    W = rng.normal(size=V.shape)
    there = coordinates(W)
    np.testing.assert_allclose(basis @ there if basis.ndim == 2 else basis[:, None] * there, W, rtol=1e-8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, "steps must be a whole number, at least 1; got 0"),
        ({"folds": 1}, "folds must be a whole number, at least 2"),
        ({"prior": -1.0}, "prior must be a number, at least 0; got -1.0"),
        ({"groups": [1, 2]}, "groups must name the group of each of the 60 features; got 2 names"),
        ({"method": "mrob"}, "Did you mean mrbo"),
    ],
)
def test_a_mistake_is_told(settings, words):
    with pytest.raises(ValueError, match=words):
        quick(**settings).fit(*rows())


def test_one_class_alone_is_told():
    with pytest.raises(ValueError, match="there is one class alone, 1"):
        quick().fit(np.ones((20, 2)), np.ones(20, int))


@pytest.mark.slow
@parametrize_with_checks([quick(steps=24)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["stocbio", "soba", "srba", "f2sa", "aid-cg", "amigo"])
def test_other_methods_learn_penalties(method):
    X, y = rows(300, 20)
    model = quick(method=method).fit(X, y)
    assert np.median(model.shrinkage_[:USEFUL]) < np.median(model.shrinkage_[USEFUL:])


@pytest.mark.slow
def test_pipelines_searches_and_clones():
    X, y = rows(200, 10)
    pipeline = make_pipeline(StandardScaler(), clone(quick()))
    assert cross_val_score(pipeline, X, y, cv=2).mean() > 0.7
    search = GridSearchCV(quick(), {"prior": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["prior"] in (0.1, 1.0)


@pytest.mark.slow
def test_many_sparse_features():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((500, 200), density=0.1, rng=rng, format="csr")
    y = np.asarray(X[:, :5].sum(1) > X[:, 5:10].sum(1)).ravel().astype(int)
    model = quick().fit(X, y)
    assert roc_auc_score(np.arange(200) >= 10, model.shrinkage_) > 0.7
