"""Which data are there. Nothing is downloaded or loaded to find out."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, NamedTuple

from bilax.datasets.cifar10 import BATCHES, PART, SIZE, SOURCE, TEST
from bilax.datasets.mnist import FILES, MIRRORS
from bilax.datasets.newsgroups import COUNTS, TEXTS
from bilax.datasets.store import INSTALL, folder, own_folder
from bilax.datasets.tables import COVTYPE, COVTYPE_MIRRORS, IJCNN1, IJCNN1_MIRRORS


class Status(NamedTuple):
    """Whether a data set is there.

    Attributes:
      name: of the data set.
      state: "present" or "missing".
      where: where it is, or would be.
      remedy: what to do if it is missing.
    """

    name: str
    state: Literal["present", "missing"]
    where: str
    remedy: str


def status() -> list[Status]:
    """Say of every data set whether it is there, where it is or would be, and how to get it.

    >>> [entry.name for entry in status()]
    ['digits', 'mnist', 'newsgroups', 'ijcnn1', 'covtype', 'cifar10']
    """
    sklearn = find_spec("sklearn") is not None
    digits = Status("digits", "present", "in scikit-learn", "")
    mnist = _files("mnist", "mnist", {file.name: file.size for file in FILES}, f"download them from {MIRRORS[0]}")
    newsgroups = _files(
        "newsgroups",
        "sklearn",
        {TEXTS: None, COUNTS: None},
        "run sklearn.datasets.fetch_20newsgroups_vectorized(data_home=...) where there is a network",
    )
    ijcnn1 = _files(
        "ijcnn1", "ijcnn1", {file.name: file.size for file in IJCNN1}, f"download them from {IJCNN1_MIRRORS[0]}"
    )
    covtype = _files("covtype", "covtype", {COVTYPE.name: COVTYPE.size}, f"download it from {COVTYPE_MIRRORS[0]}")
    cifar10 = _files("cifar10", PART, {BATCHES[0]: SIZE, TEST: SIZE}, f"download them from {SOURCE}")
    if cifar10.state == "missing" and cifar10.remedy != INSTALL:  # it is never fetched
        cifar10 = cifar10._replace(remedy=f"put {BATCHES[0]} and {TEST} into {cifar10.where}, from {SOURCE}")
    if not sklearn:
        needing = (digits, newsgroups, ijcnn1)
        digits, newsgroups, ijcnn1 = (entry._replace(state="missing", remedy=INSTALL) for entry in needing)
    return [digits, mnist, newsgroups, ijcnn1, covtype, cifar10]


def _files(name: str, part: str, sizes: Mapping[str, int | None], source: str) -> Status:
    try:
        place = folder(part)
    except ImportError:
        return Status(name, "missing", "in the user's cache, which needs pooch", INSTALL)
    wanted = [file for file, size in sizes.items() if not _there(place / file, size)]
    if not wanted:
        return Status(name, "present", str(place), "")
    if own_folder() is None:
        return Status(name, "missing", str(place), f'python -c "import bilax; bilax.datasets.{name}()"')
    return Status(name, "missing", str(place), f"put {', '.join(wanted)} into {place}: {source}")


def _there(path, size: int | None) -> bool:
    return path.is_file() and (size is None or path.stat().st_size == size)
