"""Sparse rows as data: drawn like arrays, multiplied without ever being made dense.

`Rows` is a matrix in compressed-row form whose rows are samples. A batch of it holds where its rows begin and how long
they are; the numbers themselves are not copied. ``batch @ W`` is one loop over the batch's own entries, whatever the
length of the longest row, and so is its transpose: both are primitives, so that gradients, Hessian-vector products and
`jax.vmap` over W (which shares one pass over the entries) work as with a dense matrix.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

BLOCK = 1024  # entries per pass of the loop


@jax.tree_util.register_pytree_node_class
class Rows:
    """Rows of a sparse matrix, as data of a problem; they multiply like a matrix, and are indexed by samples.

    >>> import scipy.sparse
    >>> rows = Rows.from_scipy(scipy.sparse.csr_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])))
    >>> rows.shape
    (2, 3)
    >>> (rows[jnp.array([1, 1, 0])] @ jnp.eye(3)).tolist()
    [[1.0, 0.0, 3.0], [1.0, 0.0, 3.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, start: Any, length: Any, indices: Any, values: Any, columns: int):
        self.start, self.length, self.indices, self.values, self.columns = start, length, indices, values, columns

    @classmethod
    def from_scipy(cls, matrix: Any) -> "Rows":
        """Take over a scipy.sparse matrix of any format."""
        matrix = matrix.tocsr()
        if matrix.nnz >= 2**31:
            raise ValueError(f"the matrix has {matrix.nnz} entries; at most 2**31 - 1 can be numbered.")
        start, length = matrix.indptr[:-1], np.diff(matrix.indptr)
        # A matrix without entries gets one that belongs to no row: nothing can be gathered from an empty array.
        indices, values = (matrix.indices, matrix.data) if matrix.nnz else (np.zeros(1), np.zeros(1, matrix.dtype))
        start, length, indices = (jnp.array(part, jnp.int32) for part in (start, length, indices))
        return jax.block_until_ready(cls(start, length, indices, jnp.array(values), matrix.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.start.shape[0], self.columns

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __getitem__(self, index: jax.Array) -> "Rows":
        start, length = (part.at[index].get(mode="promise_in_bounds") for part in (self.start, self.length))
        return Rows(start, length, self.indices, self.values, self.columns)

    def __matmul__(self, W: jax.Array) -> jax.Array:
        """Return the product with a vector, or with a matrix of shape (columns, anything)."""
        if W.ndim == 1:
            return (self @ W[:, None])[:, 0]
        if W.ndim != 2 or W.shape[0] != self.columns:
            raise ValueError(f"rows of {self.columns} columns need a matrix of that many rows; got shape {W.shape}.")
        return _product.bind(self.start, self.length, self.indices, self.values, W[None], columns=self.columns)[0]

    def tree_flatten(self) -> tuple[tuple, int]:
        return (self.start, self.length, self.indices, self.values), self.columns

    @classmethod
    def tree_unflatten(cls, columns: int, parts: Any) -> "Rows":
        start, length, indices, values = parts
        return cls(start, length, indices, values, columns)

    def __repr__(self) -> str:
        return f"Rows(shape={self.shape}, dtype={self.dtype})"


def is_rows(leaf: Any) -> bool:
    """Tell whether a leaf of some data is sparse.

    >>> is_rows(jnp.ones(3))
    False
    """
    return isinstance(leaf, Rows)


def _over_entries(start: jax.Array, length: jax.Array, out: Any, add: Any) -> Any:
    """Pass over the rows' entries in blocks: ``add(out, row, entry, there)``, where ``there`` is false past the end."""
    begin = jnp.cumsum(length) - length
    total = jnp.sum(length)

    def block(carry):
        first, out = carry
        position = first + jnp.arange(BLOCK, dtype=first.dtype)
        row = jnp.searchsorted(begin, position, side="right").astype(first.dtype) - 1
        there = position < total
        entry = jnp.where(there, start[row] + position - begin[row], 0)
        return first + BLOCK, add(out, row, entry, there)

    return jax.lax.while_loop(lambda carry: carry[0] < total, block, (jnp.zeros_like(total), out))[1]


# M is a stack of matrices that share one pass over the entries. It is treated as one tall matrix, because gathering and
# scattering whole rows of it is twice as fast as slices across the stack, and nothing is put together at the end.


def _multiply(start, length, indices, values, M, *, columns):
    stack, _, width = M.shape
    tall = M.reshape(-1, width)

    def add(out, row, entry, there):
        value = jnp.where(there, values[entry], 0).astype(M.dtype)
        terms = jnp.tile(value, stack)[:, None] * tall[_in_each(indices[entry], stack, columns)]
        at = _in_each(row, stack, start.shape[0])
        return out.at[at].add(terms, mode="promise_in_bounds", indices_are_sorted=True)

    out = _over_entries(start, length, jnp.zeros((stack * start.shape[0], width), M.dtype), add)
    return out.reshape(stack, -1, width)


def _multiply_transposed(start, length, indices, values, M, *, columns):
    stack, rows, width = M.shape
    tall = M.reshape(-1, width)

    def add(out, row, entry, there):
        value = jnp.where(there, values[entry], 0).astype(M.dtype)
        terms = jnp.tile(value, stack)[:, None] * tall[_in_each(row, stack, rows)]
        return out.at[_in_each(indices[entry], stack, columns)].add(terms, mode="promise_in_bounds")

    out = _over_entries(start, length, jnp.zeros((stack * columns, width), M.dtype), add)
    return out.reshape(stack, columns, width)


def _in_each(index: jax.Array, stack: int, height: int) -> jax.Array:
    """Return where the same rows are in each matrix of a stack that is one tall matrix."""
    if stack * height >= 2**31:
        raise ValueError(f"{stack} matrices of {height} rows side by side have more rows than 32 bits can number.")
    return (index + height * jnp.arange(stack, dtype=index.dtype)[:, None]).ravel()


def _primitive(name: str, compute: Any, rows_of_result: Any) -> Primitive:
    primitive = Primitive(name)
    primitive.def_impl(jax.jit(compute, static_argnames="columns"))
    primitive.def_abstract_eval(
        lambda start, length, indices, values, M, *, columns: M.update(
            shape=(M.shape[0], rows_of_result(start, columns), M.shape[2]), weak_type=False
        )
    )
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    return primitive


_product = _primitive("sparse_product", _multiply, lambda start, columns: start.shape[0])
_transposed = _primitive("sparse_product_transposed", _multiply_transposed, lambda start, columns: columns)


def _make_linear(primitive: Primitive, transpose: Primitive) -> None:
    """Say how the primitive is differentiated, transposed and vmapped; only its last argument is a variable."""

    def jvp(primals, tangents, *, columns):
        *rows, _ = primals
        if any(type(t) is not ad.Zero and t.dtype != jax.dtypes.float0 for t in tangents[:-1]):
            raise NotImplementedError("the entries of sparse rows are data; they cannot be differentiated.")
        value, tangent = primitive.bind(*primals, columns=columns), tangents[-1]
        if type(tangent) is ad.Zero:
            return value, jnp.zeros_like(value)
        return value, primitive.bind(*rows, tangent, columns=columns)

    def transposition(cotangent, start, length, indices, values, M, *, columns):
        if type(cotangent) is ad.Zero:
            return None, None, None, None, ad.Zero(M.aval)
        back = transpose.bind(start, length, indices, values, cotangent, columns=columns)
        return None, None, None, None, back

    def batched(arguments, axes, *, columns):
        *rows, M = arguments
        if all(axis is None for axis in axes[:-1]):
            # More matrices in one stack: the entries are read once.
            M = jnp.moveaxis(M, axes[-1], 0)
            out = primitive.bind(*rows, M.reshape(-1, *M.shape[2:]), columns=columns)
            return out.reshape(*M.shape[:2], *out.shape[1:]), 0
        mapped = tuple(jnp.moveaxis(a, axis, 0) for a, axis in zip(arguments, axes, strict=True) if axis is not None)

        def one(some):
            some = iter(some)
            full = [a if axis is None else next(some) for a, axis in zip(arguments, axes, strict=True)]
            return primitive.bind(*full, columns=columns)

        # Batches of different rows have different numbers of entries: taken in turn, each reads only its own.
        return jax.lax.map(one, mapped), 0

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transposition
    batching.primitive_batchers[primitive] = batched


_make_linear(_product, _transposed)
_make_linear(_transposed, _product)
