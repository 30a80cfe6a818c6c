"""Where data live: in the folder BILAX_DATA_DIR, which is only read, or else in a cache, which downloads fill."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

INSTALL = "pip install 'bilax[data]'"


class RemoteFile(NamedTuple):
    """A file that never changes, so that its size and checksum are known."""

    name: str
    size: int
    sha256: str


def own_folder() -> Path | None:
    """Return the folder that BILAX_DATA_DIR names, or None if it is not set."""
    name = os.environ.get("BILAX_DATA_DIR")
    return Path(name).expanduser() if name else None


def cache_folder() -> Path:
    """Return the user's cache for bilax (which may not exist yet)."""
    return Path(_pooch().os_cache("bilax"))


def folder(part: str) -> Path:
    """Return where the files of one data set are looked for."""
    return (own_folder() or cache_folder()) / part


def fetch(file: RemoteFile, part: str, mirrors: Sequence[str]) -> Path:
    """Return the path of a file with the right checksum: the user's own, else the cached one, else a download."""
    path = folder(part) / file.name
    if own_folder() is None:
        if not path.is_file() or _contents(path) != _expected(file):
            _download(file, path, mirrors)
        return path
    urls = " or ".join(mirror + file.name for mirror in mirrors)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. Put it there, from {urls} (expected: {_expected(file)}), "
            "or unset BILAX_DATA_DIR to have it downloaded into the user's cache."
        )
    if (found := _contents(path)) != _expected(file):
        raise ValueError(
            f"{path} is damaged or another file: found {found}, expected {_expected(file)}. "
            f"Replace it by the one from {urls}."
        )
    return path


def _download(file: RemoteFile, path: Path, mirrors: Sequence[str]) -> None:
    """Try the mirrors in turn. pooch writes to a temporary file, which it moves into place if the checksum is right."""
    pooch = _pooch()
    from requests import RequestException

    failures, cause, wrong = [], None, False
    for mirror in mirrors:
        url = mirror + file.name
        try:
            pooch.retrieve(
                url, f"sha256:{file.sha256}", fname=file.name, path=path.parent, downloader=_downloader(pooch, file)
            )
            return
        except RequestException as error:  # before OSError, because it is one, too
            reason = type(error).__name__
            if (answer := error.response) is not None:
                reason = f"HTTP {answer.status_code} {answer.reason}"
                answer.close()  # pooch leaves it open
            failures.append(f"{url} failed ({reason})")
            cause = error
        except ValueError as error:
            failures.append(f"{url} sent {error}")
            cause, wrong = error, True
        except OSError as error:
            raise OSError(
                f"cannot write {path}: {error}. Make room or give permission there, "
                f"or set BILAX_DATA_DIR to a folder that holds {path.parent.name}/{file.name}."
            ) from error
    kind = ValueError if wrong else FileNotFoundError
    raise kind(
        f"{file.name} could not be downloaded: {'; '.join(failures)}. Expected: {_expected(file)}. Try again when the "
        f"network is there, or put the file at {path} by hand, "
        f"or set BILAX_DATA_DIR to a folder that holds {path.parent.name}/{file.name}."
    ) from cause


def _downloader(pooch: Any, file: RemoteFile) -> Callable[[str, str, Any], None]:
    """Return pooch's own downloader, followed by a check that says what came instead of the file."""
    http = pooch.HTTPDownloader(timeout=(10, 30))  # seconds: to connect, between bytes

    def download(url: str, output: str, caller: Any) -> None:
        http(url, output, caller)
        if (found := _contents(Path(output))) != _expected(file):
            raise ValueError(found)

    return download


def _contents(path: Path) -> str:
    with path.open("rb") as stream:
        return f"{path.stat().st_size:,} bytes with SHA-256 {hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _expected(file: RemoteFile) -> str:
    return f"{file.size:,} bytes with SHA-256 {file.sha256}"


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            f"downloads and their cache need pooch: {INSTALL}, or set BILAX_DATA_DIR to a folder that holds the data."
        ) from None
    return pooch
