"""What the registry says about every algorithm, as plain data."""

import dataclasses
import inspect
from typing import Any

from bilax.algorithms import ALGORITHMS


def catalogue() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "class": algorithm.__name__,
            "summary": (inspect.getdoc(algorithm) or "").splitlines()[0],
            "reference": (inspect.getmodule(algorithm).__doc__ or "").strip(),
            "parameters": [
                {
                    "name": field.name,
                    "default": field.default,
                    "meaning": field.metadata["doc"],
                    "allowed": field.metadata["allowed"],
                }
                for field in dataclasses.fields(algorithm)
            ],
        }
        for name, algorithm in ALGORITHMS.items()
    ]
