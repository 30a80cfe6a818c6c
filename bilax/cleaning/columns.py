"""From the columns of a table to features: what is done with each is decided here, and shown."""

from typing import Any, NamedTuple

import numpy as np

from bilax.cleaning.reading import Table

CATEGORIES = 50  # different values, at most, of a column that is one-hot encoded
WORDS = 20_000  # features of a column of text, at most

WHAT = {
    "number": "missing values imputed by the median, standardised",
    "category": "one-hot",
    "text": f"TF-IDF of its words and pairs of words, the {WORDS:,} most frequent",
    "constant": "left out: one value in all rows",
    "different": "left out: another value in every row, like a name or a number of a document",
    "date": "left out: a date",
}


class Column(NamedTuple):
    name: str
    kind: str  # a key of WHAT


def kinds(table: Table) -> list[Column]:
    """Decide what each column is."""
    return [Column(str(name), _kind(table[name])) for name in table.columns]


def _kind(values: Any) -> str:
    from pandas.api import types

    there = values.dropna()
    different = there.nunique()
    if (different <= 1 and not values.isna().any()) or different == 0:
        return "constant"
    if types.is_datetime64_any_dtype(values):
        return "date"
    if types.is_bool_dtype(values):
        return "category"
    if types.is_numeric_dtype(values):
        return "number"
    text = there.astype(str)
    if text.str.count(" ").median() >= 3:
        return "text"
    if different <= max(CATEGORIES, len(there) // 20):
        return "category"
    return "different" if different > 0.9 * len(there) else "text"


class Encoder:
    """Turns tables of the same columns into features; ``source`` names the column that each feature came from."""

    def __init__(self, columns: list[Column]):
        from sklearn.compose import ColumnTransformer
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        self.columns = columns
        numbers = [column.name for column in columns if column.kind == "number"]
        categories = [column.name for column in columns if column.kind == "category"]
        texts = [column.name for column in columns if column.kind == "text"]
        if not (numbers or categories or texts):
            raise ValueError("no column is left to learn from: " + describe(columns))
        numeric = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
        one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=CATEGORIES)
        words = {"max_features": WORDS, "sublinear_tf": True, "ngram_range": (1, 2), "dtype": np.float32}
        parts: list[Any] = [("number", numeric, numbers)] if numbers else []
        parts += [("category", one_hot, categories)] if categories else []
        parts += [(f"text {name}", TfidfVectorizer(**words), name) for name in texts]
        self.transformer = ColumnTransformer(parts, sparse_threshold=0.3)
        self.source: list[str] = []

    def fit(self, table: Table) -> "Encoder":
        self.transformer.fit(self._prepared(table))
        for name, part, columns in self.transformer.transformers_:
            if name == "number":
                self.source += columns
            elif name == "category":
                counts = [len(names) for names in self._names(part, columns)]
                self.source += [column for column, count in zip(columns, counts, strict=True) for _ in range(count)]
            elif name.startswith("text "):
                self.source += [columns] * len(part.vocabulary_)
        return self

    def transform(self, table: Table) -> Any:
        features: Any = self.transformer.transform(self._prepared(table))
        return features.tocsr() if hasattr(features, "tocsr") else np.asarray(features, np.float32)

    def _prepared(self, table: Table) -> Table:
        table = table.copy()
        for column in self.columns:
            if column.kind == "number":
                try:
                    values = table[column.name].astype(float)
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"the column {column.name!r} holds numbers in one file, but not in another: {error}."
                    ) from None
                table[column.name] = values.where(np.isfinite(values))
            elif column.kind in ("category", "text"):
                missing = "" if column.kind == "text" else "(missing)"
                table[column.name] = (
                    table[column.name].astype(object).where(table[column.name].notna(), missing).map(str)
                )
        return table

    @staticmethod
    def _names(part: Any, columns: list[str]) -> list[list[str]]:
        made = list(part.get_feature_names_out(columns))
        lengths = [len(names) for names in part.categories_]
        infrequent = getattr(part, "infrequent_categories_", [None] * len(columns))
        lengths = [n if rare is None else n - len(rare) + 1 for n, rare in zip(lengths, infrequent, strict=True)]
        ends = np.cumsum(lengths)
        return [made[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def describe(columns: list[Column]) -> str:
    """Say what is done with each column, one line for each way.

    >>> print(describe([Column("age", "number"), Column("id", "different"), Column("pay", "number")]))
    age, pay: missing values imputed by the median, standardised
    id: left out: another value in every row, like a name or a number of a document
    """
    by_kind: dict[str, list[str]] = {}
    for column in columns:
        by_kind.setdefault(column.kind, []).append(column.name)
    return "\n".join(f"{_some(names)}: {WHAT[kind]}" for kind, names in by_kind.items())


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10} more"
