"""What the problems that are run by name measure, in words."""

from typing import NamedTuple


class Metric(NamedTuple):
    label: str
    short: str  # at the head of a column
    larger_is_better: bool = False
    main: bool = True  # shown in tables


METRICS = {
    "train_loss": Metric("loss on the true training labels", "train"),
    "val_loss": Metric("loss on the trusted samples", "val"),
    "test_loss": Metric("loss on the test samples", "test"),
    "test_accuracy": Metric("accuracy on the test samples", "accuracy", larger_is_better=True),
    "gap": Metric("Phi - Phi* (exact)", "gap"),
    "grad_norm2": Metric("|grad Phi|^2, exact", "|grad|^2"),
    "val_error": Metric("error rate on the validation samples", "val err"),
    "test_error": Metric("error rate on the test samples", "test err"),
    "inner_gap": Metric("distance of y from the inner solution", "|y - y*|", main=False),
    "auroc": Metric("AUROC of finding wrong labels", "AUROC", larger_is_better=True),
    "weight_clean": Metric("mean weight of right labels", "right", larger_is_better=True, main=False),
    "weight_corrupted": Metric("mean weight of wrong labels", "wrong", main=False),
}
SEARCHED_BY = "val_loss"  # the outer objective on all its data, which needs no clean training labels
