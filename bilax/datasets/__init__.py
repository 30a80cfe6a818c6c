"""Real data, ready for the problems."""

from bilax.datasets.availability import Status, status
from bilax.datasets.cifar10 import cifar10, cifar10_batches
from bilax.datasets.digits import digit_documents, digits
from bilax.datasets.mnist import mnist
from bilax.datasets.newsgroups import Documents, newsgroups
from bilax.datasets.tables import covtype, ijcnn1, mnist_replaced
from bilax.problems.split import Split

__all__ = [
    "Documents",
    "Split",
    "Status",
    "cifar10",
    "cifar10_batches",
    "covtype",
    "digit_documents",
    "digits",
    "ijcnn1",
    "mnist",
    "mnist_replaced",
    "newsgroups",
    "status",
]
