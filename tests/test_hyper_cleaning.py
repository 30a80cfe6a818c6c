"""Hyper-cleaning: the data are corrupted once and as stated, and every weight meets its own sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_data import needs_data
from sklearn.metrics import roc_auc_score

from bilax.datasets import digits, mnist
from bilax.problems import corrupt_labels, hyper_cleaning
from bilax.problems.hyper_cleaning import auroc


@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 99))
def test_noise_moves_the_stated_number_of_labels_to_different_classes(classes, rate, seed):
    labels = np.random.default_rng(seed).integers(classes, size=200)
    kept = labels.copy()
    noisy = corrupt_labels(labels, rate, classes, seed)
    assert (noisy != labels).sum() == round(rate * 200)
    assert 0 <= noisy.min() <= noisy.max() < classes
    np.testing.assert_array_equal(labels, kept)  # not in place
    np.testing.assert_array_equal(noisy, corrupt_labels(labels, rate, classes, seed))


def test_digits():
    task = digits(0.3, train=1000, trusted=297, seed=3)
    assert task.features.shape == (1000, 65)
    assert task.trusted_features.shape == (297, 65)
    assert len(task.test_labels) == 500
    assert task.corrupted.sum() == 300
    assert (task.features[:, -1] == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        task.labels[0] = 1
    again = digits(0.3, train=1000, trusted=297, seed=3)
    np.testing.assert_array_equal(task.labels, again.labels)
    with pytest.raises(ValueError, match="there are 1797 digits; train = 1700 and trusted = 297"):
        digits(train=1700)


def test_each_weight_meets_its_own_sample():
    """The gradient with respect to a weight is that of its own sample's loss, in any order of the batch."""
    task = digits(0.3, train=60, trusted=40)
    problem = hyper_cleaning(task)
    y = jnp.asarray(np.random.default_rng(0).normal(size=problem.y0.shape))
    index = np.array([7, 3, 3, 50])
    batch = jax.tree.map(lambda a: a[index], problem.inner_data)
    slope = jax.grad(problem.inner_loss)(jnp.zeros(60), y, batch)
    logits = task.features @ np.asarray(y).T
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(60), task.labels]
    expected = np.zeros(60)
    np.add.at(expected, index, 0.25 * losses[index] / 4)
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-7)


def test_metrics_use_the_true_labels():
    task = digits(0.3, train=60, trusted=40)
    problem = hyper_cleaning(task)
    perfect = jnp.where(task.corrupted, -3.0, 3.0)
    measured = problem.metrics(perfect, problem.y0)
    assert measured["auroc"] == 1
    np.testing.assert_allclose(measured["weight_clean"], 1 / (1 + np.exp(-3)), rtol=1e-6)
    np.testing.assert_allclose(measured["train_loss"], np.log(10), rtol=1e-6)
    assert problem.metrics(-perfect, problem.y0)["auroc"] == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=50))
def test_auroc_is_scikit_learns(pairs):
    score, positive = (np.array(column) for column in zip(*pairs, strict=True))
    if positive.all() or not positive.any():
        assert np.isnan(auroc(score, positive))
    else:
        np.testing.assert_allclose(auroc(score, positive), roc_auc_score(positive, score))


def test_mnist_without_data(monkeypatch, tmp_path):
    monkeypatch.setenv("BILAX_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte\.gz is missing"):
        mnist()


@needs_data
def test_mnist_is_the_papers_task():
    task = mnist(0.1)
    assert task.features.shape == (20_000, 785)
    assert task.trusted_features.shape == (5_000, 785)
    assert task.test_features.shape == (10_000, 785)
    assert task.corrupted.sum() == 2_000
    assert task.true_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert abs(task.features[:, :-1].mean()) < 0.01
    assert abs(task.features[:, :-1].std() - 1) < 0.01
