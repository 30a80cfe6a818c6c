"""Labels for the columns of a table: the same in the page and in the pictures."""

from collections.abc import Mapping

AXES = {
    "seconds": "time in seconds",
    "k": "outer iterations",
    "samples": "samples used",
    "F": "gradients of the outer loss",
    "G": "gradients of the inner loss",
    "JV": "Jacobian-vector products",
    "HV": "Hessian-vector products",
    "HINV": "Hessian factorisations",
}
METRICS = {  # of every run; a figure brings the labels of its own metrics
    "norm_v": "norm of the hypergradient estimate",
    "norm_u": "norm of the inner gradient estimate",
    "residual": "residual of the linear system",
}
NOT_MEASURED = ("method", "seed", "status")  # columns that are neither axis nor metric


def label(column: str, own: Mapping[str, str] = {}) -> str:  # the default is never changed
    """Return the name of a column in words.

    >>> label("val_loss", {"val_loss": "loss on the trusted samples"}), label("norm_of_x")
    ('loss on the trusted samples', 'norm of x')
    """
    return own.get(column) or AXES.get(column) or METRICS.get(column) or column.replace("_", " ")
