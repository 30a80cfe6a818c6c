"""A table or a folder of images, from files to a judgement of every label."""

import hashlib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilax.cleaning import columns, images, reading
from bilax.cleaning.page import Found, Suspect
from bilax.cleaning.reading import Table
from bilax.errors import unknown

SHOWN = 200  # rows on the page
TELLING = 5  # columns of a row


class Request(NamedTuple):
    """What is to be cleaned, and how."""

    train: Path
    label: str
    trusted: Path | None = None
    decisions: Path | None = None
    id: str | None = None
    images: Path | None = None  # a folder; then train holds a column "file"
    file: str = "file"
    features_only: bool = False
    method: str = "mrbo"
    steps: int = 500
    seed: int = 0
    checkpoint_dir: Path | None = None

    def fingerprint(self) -> str:
        """Return a short text that is another one for other settings, and for files that have changed."""
        files = [path for path in (self.train, self.trusted, self.decisions) if path is not None and path.is_file()]
        stamps = [(path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        return hashlib.sha256(repr((tuple(self), stamps)).encode()).hexdigest()[:12]


class Cleaned(NamedTuple):
    table: Table  # a row for each of train: id, given, suggested, quality, rank, suspicious, weight
    found: Found
    warnings: list[str]


class _Data(NamedTuple):
    table: Table
    ids: np.ndarray
    given: np.ndarray
    label: np.ndarray  # given, or as the trusted file or a decision has it
    known: np.ndarray  # rows of which that is so
    more: Table
    more_labels: np.ndarray
    notes: list[str]


def clean(request: Request, command: str, announce: Any = lambda text: None) -> Cleaned:
    """Judge every label of a table."""
    from bilax.sklearn import HyperCleaner

    data = _read(request)
    told = list(data.notes)
    X, X_more, encoder, described = _features(request, data)
    trusted_rows = int(data.known.sum()) + len(data.more_labels)
    announce("\n".join(described))
    announce(f"{len(data.given):,} rows, {trusted_rows:,} trusted, {X.shape[1]:,} features")
    cleaner = HyperCleaner(
        method=request.method, steps=request.steps, random_state=request.seed, checkpoint_dir=request.checkpoint_dir
    )
    trusted = {"trusted": data.known} if data.known.any() else {}
    if len(data.more_labels):
        trusted |= {"X_trusted": X_more, "y_trusted": data.more_labels}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        cleaner.fit(X, data.label, **trusted)
    told += [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    table = _judged(data, cleaner)
    return Cleaned(table, _found(request, data, table, cleaner, X, encoder, described, command, told), told)


def _read(request: Request) -> _Data:
    table = reading.read(request.train)
    given = reading.labels(table, request.label, request.train)
    ids = np.arange(1, len(table) + 1).astype(str)
    if request.id is not None:
        ids = reading.column(table, request.id, request.train, "the id").astype(str).to_numpy()
    label, known, notes = given.copy(), np.zeros(len(table), bool), []
    more, more_labels = None, np.array([], str)
    if request.trusted is not None:
        more = reading.read(request.trusted)
        more_labels = reading.labels(more, request.label, request.trusted, several=False)
        _check_columns(request, table, more)
        same = _same_rows(request, table, more)
        rows = np.flatnonzero(same >= 0)
        label[rows], known[rows] = more_labels[same[rows]], True
        if len(rows):
            notes.append(
                f"{_rows(len(rows))} of {request.train.name} are also in {request.trusted.name}; what is there "
                "counts as trusted."
            )
    if request.decisions is not None:
        rows, decided = _decisions(request, given)
        label[rows], known[rows] = decided, True
    strange = sorted(set(more_labels) - set(given))
    if strange:
        notes.append(f"labels that are in {request.trusted} alone: {', '.join(strange[:10])}.")
    return _Data(table, ids, given, label, known, more, more_labels, notes)


def _check_columns(request: Request, table: Table, more: Table) -> None:
    needed = [request.file] if request.images else [name for name in table.columns if name != request.id]
    missing = [name for name in needed if name not in more.columns]
    if missing:
        raise ValueError(
            f"{request.trusted} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing[:10]))} "
            f"of {request.train}."
        )


def _same_rows(request: Request, table: Table, more: Table) -> np.ndarray:
    """Return, for each row, the row of the trusted file with the same features, or -1."""
    from pandas import util

    names = [name for name in table.columns if name not in (request.label, request.id) and name in more.columns]
    hashed: Any = util.hash_pandas_object
    key = [hashed(_plain(part[names]), index=False).to_numpy() for part in (table, more)]
    place = {value: number for number, value in enumerate(key[1])}
    return np.array([place.get(value, -1) for value in key[0]])


def _plain(table: Table) -> Table:
    """Return a table as text in which equal values are equal: a gap in a column makes its whole numbers floating."""
    from pandas.api import types

    numbers = {name: float for name in table.columns if types.is_numeric_dtype(table[name])}
    return table.astype(numbers).astype(str)


def _decisions(request: Request, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert request.decisions is not None
    table = reading.read(request.decisions)
    rows = reading.column(table, "row", request.decisions, "the number of the row")
    decided = reading.labels(table, "label", request.decisions, several=False)
    wrong = [row for row in rows if not (float(row).is_integer() and 1 <= row <= len(given))]
    if wrong:
        raise ValueError(
            f"{request.decisions} names row {wrong[0]}; {request.train.name} has the rows 1 to {len(given)}."
        )
    rows = rows.to_numpy().astype(int) - 1
    if "given" in table.columns:
        there = reading.labels(table, "given", request.decisions, several=False)
        if (there != given[rows]).any():
            raise ValueError(
                f"{request.decisions} was made for another table: it says that row {rows[there != given[rows]][0] + 1} "
                f"is labelled {there[there != given[rows]][0]!r}."
            )
    return rows, decided


def _features(request: Request, data: _Data) -> tuple[Any, Any, "columns.Encoder | None", list[str]]:
    if request.images is not None:
        names = [
            [str(name) for name in reading.column(part, request.file, request.train, "the image's file")]
            for part in (data.table, data.more)
            if part is not None
        ]
        X = [images.pixels(request.images, some) for some in names]
        if len({part.shape[1] for part in X}) > 1:
            raise ValueError("the trusted images are grey and the others are not, or the other way round.")
        text = f"images brought to {images.SIDE} x {images.SIDE} pixels, from 0 to 1"
        return X[0], X[-1] if data.more is not None else None, None, [text]
    left = [name for name in data.table.columns if name not in (request.label, request.id)]
    if not left:
        raise ValueError(f"{request.train} has no column besides the label.")
    table, more = data.table[left], None if data.more is None else data.more[left]
    if request.features_only:
        try:
            X = [part.to_numpy(np.float32) for part in (table, more) if part is not None]
        except (TypeError, ValueError):
            raise ValueError("--features-only: all columns but the label must be numbers.") from None
        if not all(np.isfinite(part).all() for part in X):
            raise ValueError("--features-only: a number is missing or not finite; fill it in, or leave the option out.")
        return X[0], X[-1] if more is not None else None, None, [f"{len(left)} columns taken as they are"]
    encoder = columns.Encoder(columns.kinds(table)).fit(table)
    X_more = None if more is None else encoder.transform(more)
    return encoder.transform(table), X_more, encoder, columns.describe(encoder.columns).splitlines()


def _judged(data: _Data, cleaner: Any) -> Table:
    import pandas

    right = data.label == data.given
    quality = np.where(data.known, right.astype(float), np.asarray(cleaner.label_quality_))
    suggested = np.where(data.known, data.label, np.asarray(cleaner.suggested_labels_))
    order = np.argsort(quality, kind="stable")
    rank = np.empty(len(order), int)
    rank[order] = np.arange(1, len(order) + 1)
    return pandas.DataFrame(
        {
            "id": data.ids,
            "given": data.given,
            "suggested": suggested,
            "quality": quality,
            "rank": rank,
            "suspicious": quality < 0.5,
            "weight": np.asarray(cleaner.sample_weight_),
            "trusted": data.known,
        }
    )


def _found(
    request: Request, data: _Data, table: Table, cleaner: Any, X: Any, encoder: Any, described: list[str],
    command: str, notes: list[str],
) -> Found:  # fmt: skip
    corrected = int((data.known & (data.label != data.given)).sum())
    wrong, low, high = (number + corrected for number in cleaner.estimated_noise_)
    n = len(table)
    worst = table[table["suspicious"] & ~table["trusted"]].sort_values("rank").index[:SHOWN]
    pairs = table[table["suspicious"]].groupby(["given", "suggested"]).size().sort_values(ascending=False)
    told = cleaner.diagnostics_
    trusted = int(data.known.sum()) + len(data.more_labels)
    sure = (
        "The interval comes from trusted and labelled rows drawn anew; it supposes that wrong labels depend on the "
        f"class. {int(table['suspicious'].sum()):,} labels are rather wrong than right, each by itself.",
        f"Classifiers that had not seen them were right about {told['trusted accuracy']:.1%} of {trusted:,} trusted "
        "rows. A label is judged by one that has not seen it.",
        *notes,
    )
    return Found(
        title=f"Labels of {request.train.name}, column {request.label}",
        answer=f"About {wrong:,.0f} of {n:,} labels look wrong ({low:,.0f} to {high:,.0f})",
        sure=sure,
        suspects=tuple(_suspect(request, data, table, cleaner, X, encoder, int(row)) for row in worst),
        classes=tuple(str(one) for one in cleaner.classes_),
        confusions=tuple((str(pair[0]), str(pair[1]), int(count)) for pair, count in list(pairs.items())[:20]),
        columns=tuple(described),
        facts=(
            ("command", command),
            ("rows", f"{n:,}, {trusted:,} trusted"),
            ("method", f"{request.method}, {told['steps']} steps, seed {request.seed}: {told['message']}"),
        ),
        export=f"{request.train.name.split('.')[0]}-decisions.csv",
    )


def _suspect(request: Request, data: _Data, table: Table, cleaner: Any, X: Any, encoder: Any, row: int) -> Suspect:
    one = table.loc[row]
    shown: dict[str, Any] = {}
    if request.images is not None:
        shown["image"] = images.thumbnail(request.images / str(data.table[request.file].iloc[row]))
    elif encoder is not None:
        kinds = {column.name: column.kind for column in encoder.columns}
        texts = [name for name, kind in kinds.items() if kind == "text"]
        shown["text"] = "\n".join(str(data.table[name].iloc[row])[:2000] for name in texts)
        shown["values"] = _telling(data, cleaner, X, encoder, row, str(one["given"]), str(one["suggested"]), texts)
    return Suspect(row + 1, str(one["id"]), str(one["given"]), str(one["suggested"]), float(one["quality"]), **shown)


def _telling(
    data: _Data, cleaner: Any, X: Any, encoder: Any, row: int, given: str, suggested: str, texts: list[str]
) -> tuple[tuple[str, str], ...]:
    """Return the columns that speak most for the suggested label and against the given one."""
    place = {str(label): number for number, label in enumerate(cleaner.classes_)}
    features = X[[row]]
    features = features.toarray().ravel() if hasattr(features, "toarray") else np.asarray(features).ravel()
    speaks = (cleaner.coef_[place[suggested]] - cleaner.coef_[place[given]]) * features
    by_column: dict[str, float] = {}
    for name, value in zip(encoder.source, speaks, strict=True):
        by_column[name] = by_column.get(name, 0.0) + float(value)
    most = sorted((name for name in by_column if name not in texts), key=lambda name: -by_column[name])[:TELLING]
    return tuple((name, str(data.table[name].iloc[row])) for name in most)


def check_method(name: str) -> None:
    """Refuse a method that does not exist before any file is read."""
    from bilax.algorithms import ALGORITHMS

    if name not in ALGORITHMS:
        raise unknown("method", name, ALGORITHMS)


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"
