"""HyperCleaner as a user of scikit-learn meets it, and the parts it is made of."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bilax import ALGORITHMS, MRBO
from bilax.sklearn import BilevelLogisticRegression, HyperCleaner, design, learning, sizes
from bilax.sklearn.crossfit import Noisy, Regressions, folds_of, polished
from bilax.sklearn.label_noise import how_many, posterior


def blobs(n=400, classes=3, seed=0, wrong=0.3):
    """Three clouds; labels are moved to the next class."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=n)
    X = rng.normal(size=(n, 4)) + 3 * np.eye(classes, 4)[true]
    given = np.where(rng.random(n) < wrong, (true + 1) % classes, true)
    return X, given, true


def quick(**settings):
    return HyperCleaner(**{"steps": 100, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def cleaned():
    X, given, true = blobs()
    X_trusted, _, y_trusted = blobs(60, seed=1)
    names = np.array(["ash", "birch", "cedar"])
    frame = pandas.DataFrame(X, columns=list("abcd"), index=[f"tree {i}" for i in range(len(X))])
    more = pandas.DataFrame(X_trusted, columns=list("abcd"))
    cleaner = quick().fit(frame, names[given], X_trusted=more, y_trusted=names[y_trusted])
    return cleaner, frame, names[given], names[true]


def test_wrong_labels_are_found_named_and_counted(cleaned):
    cleaner, frame, given, true = cleaned
    wrong = given != true
    assert roc_auc_score(wrong, -cleaner.label_quality_) > 0.97
    assert (cleaner.suggested_labels_.to_numpy() == true).mean() > 0.93
    estimate, low, high = cleaner.estimated_noise_
    assert low <= wrong.sum() <= high
    assert low <= estimate <= high
    assert cleaner.score(frame, true) > 0.93
    worst = cleaner.suspicious_
    assert wrong[worst].mean() > 0.9
    assert (np.diff(cleaner.label_quality_.to_numpy()[worst]) >= 0).all()
    assert (cleaner.label_quality_.to_numpy()[worst] < 0.5).all()


def test_what_there_is_for_each_row_has_the_index_of_the_table(cleaned):
    cleaner, frame, _, _ = cleaned
    for column in (cleaner.label_quality_, cleaner.sample_weight_, cleaner.suggested_labels_):
        assert (column.index == frame.index).all()
    assert cleaner.label_quality_.between(0, 1).all()
    assert cleaner.sample_weight_.between(0, 1).all()
    assert list(cleaner.feature_names_in_) == list("abcd")


def test_the_confusion_is_that_of_the_labels(cleaned):
    cleaner, _, given, true = cleaned
    for number, name in enumerate(cleaner.classes_):
        share = np.mean(given[true == name] == cleaner.classes_[(number + 1) % 3])
        assert cleaner.confusion_[number, (number + 1) % 3] == pytest.approx(share, abs=0.12)
    np.testing.assert_allclose(cleaner.confusion_.sum(1), 1)


def test_how_the_fit_went_is_told(cleaned):
    cleaner, *_ = cleaned
    assert 0 < cleaner.n_iter_ <= 100
    assert cleaner.counts_.G > 0
    told = cleaner.diagnostics_
    assert told["status"] in ("done", "stopped")
    assert told["held-out loss"][-1] < told["held-out loss"][0]


def test_it_survives_pickle(cleaned):
    cleaner, frame, _, _ = cleaned
    again = pickle.loads(pickle.dumps(cleaner))
    np.testing.assert_array_equal(again.predict_proba(frame), cleaner.predict_proba(frame))


def test_a_mask_trusts_rows_of_the_table():
    X, given, true = blobs()
    trusted = np.arange(len(X)) < 60
    cleaner = quick().fit(X, np.where(trusted, true, given), trusted=trusted)
    assert (cleaner.label_quality_[trusted] == 1).all()
    assert roc_auc_score((given != true)[~trusted], -cleaner.label_quality_[~trusted]) > 0.97


def test_without_trusted_rows_some_are_taken_and_it_is_said():
    X, given, _ = blobs(wrong=0.1)
    with pytest.warns(UserWarning, match="no row is trusted, so 20% of them"):
        cleaner = quick(steps=20).fit(X, given)
    assert len(cleaner.label_quality_) == len(X)


X, Y, _ = blobs(40)
MISTAKES = {
    "a mask of another length": (
        dict(),
        dict(trusted=[True]),
        "trusted must be a mask of True and False for the 40 rows",
    ),
    "a mask of numbers": (dict(), dict(trusted=np.ones(40)), "trusted must be a mask"),
    "a mask of nothing": (dict(), dict(trusted=np.zeros(40, bool)), "trusted marks no row"),
    "labels without rows": (dict(), dict(y_trusted=Y), "give both X_trusted and y_trusted"),
    "fewer labels": (dict(), dict(X_trusted=X, y_trusted=Y[:3]), "X_trusted has 40 rows and y_trusted 3 labels"),
    "labels of another type": (dict(), dict(X_trusted=X, y_trusted=Y.astype(str)), "use one type"),
    "other features": (
        dict(),
        dict(X_trusted=X[:, :2], y_trusted=Y),
        "X has 2 features, but HyperCleaner is expecting 4",
    ),
    "no steps": (dict(steps=0), dict(), "steps must be a whole number, at least 1; got 0"),
    "one fold": (dict(folds=1), dict(), "folds must be a whole number, at least 2"),
    "all held out": (dict(held_out=1.0), dict(), "held_out must be a number from 0 to below 1; got 1.0"),
    "an unknown part": (dict(learn=("wieghts",)), dict(), "learn must name some of confusion, penalty, weights"),
    "an unknown method": (dict(method="mrob"), dict(trusted=np.arange(40) < 20), "Did you mean mrbo"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told(name):
    settings, arguments, words = MISTAKES[name]
    with pytest.raises(ValueError, match=words):
        HyperCleaner(**settings).fit(X, Y, **arguments)


def test_a_class_that_is_missing_among_the_trusted_is_said():
    X, given, _ = blobs()
    with pytest.warns(UserWarning, match="no trusted row is of the class 2"):
        quick(steps=20).fit(X, given, trusted=(given != 2) & (np.arange(len(X)) < 90))


@pytest.mark.parametrize("features", [3, 40])
def test_no_direction_is_more_curved_than_one(features):
    """The steps rest on it: the Hessian of the inner loss, at any point, has no eigenvalue above 1."""
    rng = np.random.default_rng(features)
    X = rng.normal(size=(300, features)) @ rng.normal(size=(features, features)) * 10.0 ** rng.integers(-4, 4, features)
    plan, shape = design.fitted(X, rng), Regressions(3, 2, of_all=True)
    label = rng.integers(3, size=300)
    data = {
        "columns": jnp.asarray(plan(X), float),
        "label": jnp.asarray(label),
        "fold": jnp.asarray(folds_of(rng, label, 2)),
        "trusted": jnp.arange(300) < 100,
        "share": jnp.ones(300),
        "row": jnp.arange(300),
    }
    x = {
        "confusion": jnp.asarray(rng.normal(size=(3, 3))),
        "penalty": jnp.log(plan.largest),
        "weights": jnp.full(300, 20.0),
        "metric": jnp.asarray(plan.metric),
    }
    V = jnp.asarray(0.1 * rng.normal(size=(features + 1, 9)))
    H = jax.jit(jax.hessian(lambda V: Noisy(shape)(x, V, data)))(V).reshape(V.size, V.size)
    assert np.linalg.eigvalsh(H).max() <= 1 + 1e-5


def test_many_features_are_fitted_in_all_directions(monkeypatch):
    """What is learned on the main directions alone is used in all of them."""
    X, given, true = blobs(400)
    X = np.concatenate([X, 0.1 * np.random.default_rng(1).normal(size=(400, 8))], axis=1)
    trusted = (np.arange(400) < 60) & (given == true)
    at_once = quick().fit(X, given, trusted=trusted)
    monkeypatch.setattr(learning, "MAIN", 4)
    found = quick().fit(X, given, trusted=trusted)
    assert np.mean(found.predict(X) == true) > 0.9
    assert np.mean(found.predict(X) == at_once.predict(X)) > 0.97
    scores = [one.decision_function(X) - one.decision_function(X).mean(0) for one in (found, at_once)]
    assert np.corrcoef(*(np.ravel(one) for one in scores))[0, 1] > 0.97
    assert not np.array_equal(found.coef_, at_once.coef_)


def test_columns_and_coefficients_say_the_same():
    rng = np.random.default_rng(0)
    for X in (rng.normal(size=(50, 6)) + 5, scipy.sparse.random_array((50, 6), density=0.4, rng=rng, format="csr")):
        plan = design.fitted(X, rng)
        V = rng.normal(size=(7, 3))
        W = plan.coefficients(V)
        np.testing.assert_allclose(X @ (W[:-1] / plan.scale[:, None]) + W[-1], plan(X) @ V, rtol=1e-4, atol=1e-4)


def test_the_polished_fit_is_that_of_scikit_learn():
    """Without confusion, weights or folds that matter, the last regression is a penalised logistic regression."""
    X, _, true = blobs(200)
    rng = np.random.default_rng(0)
    plan, shape = design.fitted(X, rng), Regressions(3, 2, of_all=True)
    data = {
        "columns": jnp.asarray(plan(X), float),
        "label": jnp.asarray(true),
        "fold": jnp.zeros(200, int),
        "trusted": jnp.ones(200, bool),
        "share": jnp.ones(200),
        "row": jnp.zeros(200, int),
    }
    x = {
        "confusion": jnp.zeros((3, 3)),
        "penalty": jnp.log(1 / 200),
        "weights": jnp.zeros(1),
        "metric": jnp.asarray(plan.metric),
    }
    V = polished(Noisy(shape), x, jnp.zeros((5, 9)), data, 2000)
    W = plan.coefficients(np.asarray(V).reshape(5, 3, 3)[:, 2])
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X / plan.scale, true)
    np.testing.assert_allclose(W[:-1].T, model.coef_, atol=1e-4)


def test_what_a_table_is_filled_up_with_counts_for_nothing():
    rng = np.random.default_rng(0)
    n, d, shape = 118, 5, Regressions(3, 2, of_all=True)
    room, wide = sizes.rows_for(n), sizes.columns_for(d, n)
    assert room > n
    assert wide > d
    table = {
        "label": rng.integers(3, size=n),
        "fold": rng.integers(2, size=n),
        "trusted": rng.random(n) < 0.2,
        "row": np.arange(n),
        "columns": rng.normal(size=(n, d)),
    }
    full = {name: sizes.filled(values, room) for name, values in table.items()}
    full |= {"columns": sizes.filled(table["columns"], room, wide), "share": sizes.shares(n)}
    table["share"] = np.ones(n)
    x = {"confusion": rng.normal(size=(3, 3)), "penalty": jnp.asarray(-2.0), "weights": rng.normal(size=room)}
    x |= {"metric": np.ones(d)}
    V = rng.normal(size=(d, 9))
    one = jax.jit(jax.value_and_grad(Noisy(shape), 1))(x, V, table)
    value, slope = jax.jit(jax.value_and_grad(Noisy(shape), 1))(
        {**x, "metric": np.ones(wide)}, sizes.filled(V, wide), full
    )
    np.testing.assert_allclose(value, one[0], rtol=1e-7)
    np.testing.assert_allclose(slope[:d], one[1], atol=1e-7)
    assert not np.asarray(slope[d:]).any()


@pytest.mark.parametrize("estimator", [quick(folds=2), BilevelLogisticRegression(steps=24, random_state=0)])
def test_tables_of_almost_one_size_share_a_program(estimator, compiled):
    X, given, _ = blobs(119)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no row is trusted
        estimator.fit(X[1:], given[1:])
        assert "jit(advance)" in compiled
        compiled.clear()
        estimator.fit(X, given)
    assert not [name for name in compiled if name in ("jit(advance)", "jit(_losses)", "jit(polished)")]


def test_each_fold_has_its_share_of_each_class():
    label = np.repeat([0, 1, 2], [50, 20, 7])
    fold = folds_of(np.random.default_rng(0), label, 5)
    for one in range(3):
        counts = np.bincount(fold[label == one], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_the_number_of_wrong_labels_is_right_when_the_chances_are():
    """Chances drawn with the rows themselves: how_many must find what was done to the labels."""
    rng = np.random.default_rng(0)
    n, T = 5000, np.array([[0.7, 0.3, 0], [0, 0.9, 0.1], [0.2, 0, 0.8]])
    chances = rng.dirichlet(np.full(3, 0.3), n + 300)
    true = np.array([rng.choice(3, p=p) for p in chances])
    given = np.array([rng.choice(3, p=T[k]) for k in true])
    quality = posterior(chances[:n], T, given[:n])[np.arange(n), given[:n]]
    found = how_many(chances[:n], given[:n], quality, chances[n:], true[n:], rng)
    wrong = (given != true)[:n].sum()
    assert found.low <= wrong <= found.high
    assert found.wrong == pytest.approx(wrong, rel=0.1)
    assert roc_auc_score(given[:n] != true[:n], -quality) > 0.9


@pytest.mark.slow
@parametrize_with_checks([HyperCleaner(steps=100)])
def test_scikit_learn_is_content(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in ALGORITHMS if name not in {"stable", "rsvrb", "vrbo"}])
def test_other_methods_clean(method):
    X, given, true = blobs(wrong=0.25)
    trusted = np.arange(len(X)) < 80
    cleaner = quick(method=method, steps=150).fit(X, np.where(trusted, true, given), trusted=trusted)
    # The steps of some shrink fast: in 150 of them they come less far. (The three that are left out take a minute or two.)
    assert roc_auc_score((given != true)[~trusted], -cleaner.label_quality_[~trusted]) > 0.8


@pytest.mark.slow
def test_an_algorithm_of_the_users_own_is_taken_as_it_is():
    X, given, true = blobs()
    trusted = np.arange(len(X)) < 80
    cleaner = quick(method=MRBO(gamma=1.0, lam=0.5, S=64), steps=20)
    assert cleaner.fit(X, np.where(trusted, true, given), trusted=trusted).n_iter_ <= 20


@pytest.mark.slow
def test_pipelines_searches_and_clones():
    X, _, true = blobs(wrong=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pipeline = make_pipeline(StandardScaler(), quick(steps=30))
        assert cross_val_score(clone(pipeline), X, true, cv=3).mean() > 0.9
        search = GridSearchCV(pipeline, {"hypercleaner__folds": [2, 3]}, cv=2).fit(X, true)
    assert search.best_score_ > 0.9


@pytest.mark.slow
def test_many_sparse_features():
    """More features than are turned: the last fits are to all of them."""
    rng = np.random.default_rng(0)
    n, words = 900, 1500
    true = rng.integers(3, size=n)
    topic = rng.dirichlet(np.full(words, 0.05), 3)
    X = scipy.sparse.csr_array(np.stack([rng.multinomial(60, topic[k]) for k in true]).astype(float) / 10)
    given = np.where(rng.random(n) < 0.3, (true + 1) % 3, true)
    trusted = np.arange(n) < 100
    cleaner = quick(steps=200).fit(X, np.where(trusted, true, given), trusted=trusted)
    assert roc_auc_score((given != true)[~trusted], -cleaner.label_quality_[~trusted]) > 0.95
    assert cleaner.score(X, true) > 0.95
    assert cleaner.coef_.shape == (3, words)


@pytest.mark.slow
def test_what_was_interrupted_goes_on_to_the_same(tmp_path, monkeypatch):
    from bilax.sklearn import learning

    X, given, true = blobs()
    trusted = np.arange(len(X)) < 60
    y = np.where(trusted, true, given)
    whole = quick().fit(X, y, trusted=trusted)
    kept = quick(checkpoint_dir=tmp_path)
    real, looks = learning._Best.look, []

    def interrupted(self, x, V):
        looks.append(1)
        if len(looks) == 9:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
        return real(self, x, V)

    monkeypatch.setattr(learning._Best, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.fit(X, y, trusted=trusted)
    kept.fit(X, y, trusted=trusted)
    np.testing.assert_array_equal(kept.label_quality_, whole.label_quality_)


@pytest.mark.slow
def test_on_digits_it_is_ahead_of_what_people_use():
    """A third of the labels moved to the next digit, 100 trusted: plain and trusted-only training are both behind."""
    pixels, label = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(label))
    pixels, label = pixels[order] / 16, label[order]
    wrong = np.random.default_rng(1).random(1100) < 0.3
    given = np.where(wrong, (label[:1100] + 1) % 10, label[:1100])
    trusted, test = slice(1100, 1200), slice(1200, None)
    cleaner = HyperCleaner(random_state=0).fit(
        pixels[:1100], given, X_trusted=pixels[trusted], y_trusted=label[trusted]
    )
    both = np.concatenate([pixels[:1100], pixels[trusted]]), np.concatenate([given, label[trusted]])
    plain = LogisticRegression(max_iter=1000).fit(*both)
    few = LogisticRegression(max_iter=1000).fit(pixels[trusted], label[trusted])
    score = cleaner.score(pixels[test], label[test])
    assert score > plain.score(pixels[test], label[test]) + 0.03
    assert score > few.score(pixels[test], label[test]) + 0.03
    rows = np.arange(1100)
    assert roc_auc_score(wrong, -cleaner.label_quality_) > roc_auc_score(
        wrong, -few.predict_proba(pixels[:1100])[rows, given]
    )


def test_timid_chances_are_told_at_the_right_temperature():
    from scipy.special import softmax

    from bilax.sklearn.wide import _tempered

    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2000, 4)) * 3
    label = np.array([rng.choice(4, p=chances) for chances in softmax(scores, axis=1)])
    factor, loss = _tempered(scores / 7, label)
    assert factor == pytest.approx(7, rel=0.1)
    assert loss == pytest.approx(_tempered(scores, label)[1], abs=1e-4)
    few, _ = _tempered(np.eye(3), np.arange(3))  # all three are right, which says little
    assert few < 10
