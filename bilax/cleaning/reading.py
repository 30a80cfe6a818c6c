"""Tables from files, with a clear word for everything that can be wrong with them."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bilax.errors import unknown

Table: TypeAlias = Any  # a pandas.DataFrame; its own types are too loose to be of use

FORMATS = (".csv", ".csv.gz", ".tsv", ".parquet")


def read(path: Path) -> Table:
    """Read a CSV or Parquet file with a header."""
    import pandas

    name = path.name.lower()
    if not name.endswith(FORMATS):
        raise ValueError(f"{path}: a table must be one of {', '.join(FORMATS)}.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        if name.endswith(".parquet"):
            table = pandas.read_parquet(path)
        else:
            table = pandas.read_csv(path, sep="\t" if name.endswith(".tsv") else ",", low_memory=False)
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'bilax[clean]', or give a CSV file.") from None
    except pandas.errors.EmptyDataError:
        raise ValueError(f"{path} is empty; a table needs a first line with the names of its columns.") from None
    except (pandas.errors.ParserError, UnicodeDecodeError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a table: {_first_line(error)}") from None
    if table.empty:
        raise ValueError(f"{path} has {len(table.columns)} columns and no rows.")
    table.columns = [str(column) for column in table.columns]
    return table.reset_index(drop=True)


def column(table: Table, name: str, path: Path, what: str) -> Any:
    """Return a column by its name."""
    if name not in table.columns:
        raise unknown(f"column ({what}) of {path.name}", name, table.columns)
    return table[name]


def labels(table: Table, name: str, path: Path, *, several: bool = True) -> np.ndarray:
    """Return the labels as text; none may be missing, and there must be two at least if ``several``."""
    given = column(table, name, path, "the label")
    if given.isna().any():
        first = int(np.flatnonzero(given.isna())[0])
        raise ValueError(
            f"{path}: {int(given.isna().sum()):,} of {len(given):,} labels in the column {name!r} are missing, the "
            f"first in row {first + 1}; fill them in, or leave these rows out."
        )
    classes = given.nunique()
    if given.dtype.kind == "f":
        if not (given == given.round()).all():
            raise ValueError(
                f"{path}: the column {name!r} holds numbers like {given.iloc[0]!r}, not classes; cut them into classes "
                "first."
            )
        given = given.astype(int)
    if several and classes < 2:
        raise ValueError(f"{path}: the column {name!r} holds one class alone ({given.iloc[0]!r}); there must be two.")
    if several and classes > max(100, len(given) // 4):
        raise ValueError(
            f"{path}: the column {name!r} holds {classes:,} different values in {len(given):,} rows; is it the label?"
        )
    return np.array([str(one) for one in given])


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
