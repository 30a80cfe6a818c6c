"""Real data, ready for the problems."""

from bilax.datasets.availability import Status, status
from bilax.datasets.digits import digit_documents, digits
from bilax.datasets.mnist import mnist
from bilax.datasets.newsgroups import Documents, newsgroups

__all__ = ["Documents", "Status", "digit_documents", "digits", "mnist", "newsgroups", "status"]
