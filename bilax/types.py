"""Names for the things that cross module boundaries."""

from typing import Any, TypeAlias

import jax

PyTree: TypeAlias = Any
Key: TypeAlias = jax.Array
Scalar: TypeAlias = jax.Array | float | int
