"""Files that are there whole or not at all: written beside, synced, then renamed."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a file to write; it takes its name only when all of it is on the disk. On an error nothing is left."""
    path = Path(path)
    with said(path):
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(part, 0o666 & ~_umask())
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def remove_parts(folder: Path) -> None:
    """Remove what writes that were killed have left in a folder."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


def append_line(path: Path, line: str) -> None:
    """Append a line in one write; what an earlier crash left of a line is ended first."""
    with said(path), path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            line = "\n" + line
        try:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


@contextmanager
def said(path: Path) -> Iterator[None]:
    """Say which file could not be written, why, and that what was there is intact."""
    try:
        yield
    except OSError as error:
        if str(path) in str(error):
            raise
        raise OSError(
            error.errno,
            f"could not write {path}: {error.strerror or error}. What was saved before is intact; make room or give "
            "another folder, and run the same again",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make a rename last; a file system that cannot is left alone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that it is neither used nor lost; return its new name."""
    free: Callable[[int], Any] = lambda n: path.with_name(f"{path.name}.damaged{n or ''}")  # noqa: E731
    target = next(free(n) for n in range(10_000) if not free(n).exists())
    path.replace(target)
    return target
