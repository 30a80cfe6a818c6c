"""A method and its hyper-parameters as text: ``mrbo[gamma=0.1,S=1000]``, or a TOML file.

method = "mrbo"

[parameters]
gamma = 0.1
S = 1000
"""

import dataclasses
import math
import re
import tomllib
from pathlib import Path
from typing import Any

from bilax.algorithms import ALGORITHMS
from bilax.algorithms.protocol import Algorithm
from bilax.errors import unknown
from bilax.hyperparameters import Auto
from bilax.optimisers import Optimiser

_WRITTEN = re.compile(r"([^\[\]=]*)(?:\[(.*)\])?", re.DOTALL)


def parse(text: str) -> Algorithm:
    """Return the algorithm that a text or the name of a TOML file stands for.

    Args:
      text: a name, ``name[key=value,...]``, or the name of a file that ends in ``.toml``.

    Returns:
      The algorithm, checked.

    >>> parse("mrbo[gamma=0.5, S=10]").S
    10
    >>> parse("mrbo[gama=0.5]")
    Traceback (most recent call last):
    ValueError: mrbo[gama=0.5]: no hyper-parameter of mrbo is called 'gama'. Did you mean gamma? There are gamma, lam,
    c1, c2, d, m, Q, eta, S.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"a setting must be text like mrbo[gamma=0.1,S=1000], or the name of a .toml file; got {text!r}."
        )
    if text.strip().endswith(".toml"):
        return _from_toml(Path(text.strip()))
    match = _WRITTEN.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a setting; write it like mrbo[gamma=0.1,S=1000], or name a .toml file.")
    name, inside = match[1].strip(), match[2]
    parameters = {}
    for item in (inside or "").split(",") if (inside or "").strip() else ():
        key, sign, value = (part.strip() for part in item.partition("="))
        if not (key and sign and value):
            raise ValueError(f"{text}: {item.strip()!r} is not of the form name=value.")
        if key in parameters:
            raise ValueError(f"{text}: {key} is given twice.")
        parameters[key] = _value(value)
    return make(name, parameters, text)


def make(name: str, parameters: dict[str, Any], where: str) -> Algorithm:
    """Return the algorithm of that name; ``where`` begins the message about what is wrong.

    >>> make("mrbo", {"S": 10}, "here").S
    10
    """
    if name.lower() not in ALGORITHMS:
        raise ValueError(f"{where}: {unknown('method', name, ALGORITHMS)}")
    algorithm = ALGORITHMS[name.lower()]
    fields = [field.name for field in dataclasses.fields(algorithm)]
    for key in parameters:
        if key not in fields:
            raise ValueError(f"{where}: {unknown(f'hyper-parameter of {name.lower()}', key, fields)}")
    return algorithm(**parameters)


def write(algorithm: Any) -> str:
    """Return the text of an algorithm, with every hyper-parameter.

    >>> write(parse("aid-cg[N=3]"))
    'aid-cg[alpha=0.1,beta=0.1,T=10,N=3,S=64]'
    """
    values = parameters(algorithm).items()
    return f"{name_of(algorithm)}[{','.join(f'{key}={_written(value)}' for key, value in values)}]"


def parameters(algorithm: Any) -> dict[str, Any]:
    """Return every hyper-parameter as a plain value: a number, a truth value or "auto".

    >>> parameters(parse("aid-cg[N=3]"))
    {'alpha': 0.1, 'beta': 0.1, 'T': 10, 'N': 3, 'S': 64}
    """
    return {field.name: _plain(getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm)}


def name_of(algorithm: Any) -> str:
    """Return the name of a registered algorithm.

    >>> name_of(parse("aid-cg"))
    'aid-cg'
    """
    names = [name for name, kind in ALGORITHMS.items() if kind is type(algorithm)]
    if not names:
        raise ValueError(
            f"{type(algorithm).__name__} has no name that could be written: it is not among bilax.ALGORITHMS. `solve`, "
            "`iterate` and `sweep` take it as it is."
        )
    return names[0]


def _from_toml(path: Path) -> Algorithm:
    try:
        there = path.is_file()
    except OSError:  # such as a name that is too long
        there = False
    if not there:
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    for key in content:
        if key not in ("method", "parameters"):
            raise ValueError(f"{path}: {unknown('entry', key, ('method', 'parameters'))}")
    name, parameters = content.get("method"), content.get("parameters", {})
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise ValueError(f'{path} needs method = "NAME" and a table [parameters].')
    return make(name, parameters, str(path))


def _value(text: str) -> Any:
    """Return the number, the truth value or the word that a text stands for; the algorithm checks it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text.strip("\"'"))


def _plain(value: Any) -> Any:
    if isinstance(value, Auto):
        return "auto"
    if isinstance(value, Optimiser):
        raise ValueError(f"{value!r} cannot be written down; give a step size that is a number.")
    return value


def _written(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        short = f"{value:.10g}"
        return short if float(short) == value else repr(value)
    return str(value)
