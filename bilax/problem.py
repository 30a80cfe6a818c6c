"""A bilevel problem: two losses on batches and the data they are averaged over."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bilax.errors import unknown
from bilax.numerics.second_derivatives import WAYS, Damped, GaussNewton, Products
from bilax.numerics.signatures import check_function, more_arguments
from bilax.numerics.tree import copied
from bilax.sampling.stored import Stored, size_of
from bilax.sampling.streamed import Streamed
from bilax.sources import Source
from bilax.sparse import Rows, is_rows
from bilax.types import PyTree

Loss = Callable[[PyTree, PyTree, PyTree], jax.Array]
Metrics = Callable[[PyTree, PyTree], Mapping[str, Any]]
Projection = Callable[[PyTree], PyTree]
SecondDerivatives = Callable[[Loss], Products]


def unconstrained(z: PyTree) -> PyTree:
    """The projection onto the whole space."""
    return z


@dataclass(frozen=True, eq=False)
class Problem:
    r"""A bilevel problem, given by samples.

    .. math::
        \min_x \; \Phi(x) = \mathbb{E}_\xi F(x, y^*(x); \xi)
        \quad \text{where} \quad y^*(x) = \arg\min_y \mathbb{E}_\zeta G(x, y; \zeta)

    Attributes:
      outer_loss: ``F(x, y, batch) -> scalar``, the mean over the batch, in plain JAX. A loss may have a fourth
        argument named ``key``, for dropout and augmentation: a key of `jax.random`, which is the same at both points of
        a recursion, or None wherever the loss is evaluated on all data. And one named ``carried``: see there.
      inner_loss: ``G(x, y, batch) -> scalar``, the mean over the batch, strongly convex in y.
      outer_data: a pytree of arrays that share their leading axis, one entry per sample; scipy.sparse matrices
        become `bilax.sparse.Rows`, which multiply like matrices and are never made dense. A `bilax.sources.Source`, if
        they are larger than the memory. None, if the loss has no data: its batch is None.
      inner_data: likewise, for the inner loss.
      x0: where x starts, unless `solve` is told otherwise.
      y0: where y starts, likewise. Or a function of x, from which y starts anew in every step: a cold start, for
        methods with an inner loop (aid-cg, aid-fp, bsa, pzobo, reverse, stocbio). Reverse differentiates it as well.
      metrics: ``metrics(x, y) -> {name: number}``, measured between chunks, never timed.
      project_x: projection onto the convex set that x is kept in, such as those of ``optax.projections``; any function
        from a pytree to one like it.
      project_y: projection onto the convex set that y is kept in.
      second_derivatives: how products with the second derivatives of the inner loss are made: "forward" over reverse,
        "reverse" over reverse (for a loss with a backward pass of its own, `jax.custom_vjp`), "differences" of
        gradients (for one without second derivatives), "auto" for the first of these that works, or a function such
        as those in `bilax.numerics.second_derivatives`: `bilax.GaussNewton` for a network, whose Hessian is not
        positive definite.
      damping: a number >= 0 that is added to the diagonal of the inner Hessian wherever a linear system with it is
        solved: where the inner loss is not strongly convex, such as that of a network. It biases the hypergradient.
      frozen_x: which parts of x stay as they are: True and False in a pytree like x, or for whole parts of it. (An
        optimiser that moves without a gradient, as weight decay does, needs a mask of its own.)
      frozen_y: likewise for y: the inner problem is that of the other parts.
      paired: sample i of one level belongs to sample i of the other, as where each is a task: all batches of one size
        in a step are of the same samples.
      carried: numbers that losses read but that are not optimised, such as moving averages and statistics of batches:
        a pytree of arrays, with which a run begins. Losses, and ``metrics(x, y, carried)``, that have an argument of
        this name are given it as it is at this step; it is never differentiated. ``result.carried`` is the last one.
      carry: ``carry(carried, x, y, batch) -> carried``, after every step, with a batch of the inner data.
      carry_batch: the size of that batch.
      prepare: ``prepare(batch) -> batch``, traced in front of both losses, e.g. from the small integers that the data
        are kept as (a quarter of the bytes to keep, and to gather) to the floating numbers that the losses expect.
      check_finite: refuse data that hold NaN or infinity, and say where. Turn it off if your losses leave them out.

    >>> import jax.numpy as jnp
    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> problem.outer_size, problem.inner_size
    (10, 20)
    """

    outer_loss: Loss
    inner_loss: Loss
    outer_data: PyTree
    inner_data: PyTree
    x0: PyTree = None
    y0: PyTree = None
    metrics: Metrics | None = None
    project_x: Projection = unconstrained
    project_y: Projection = unconstrained
    second_derivatives: str | SecondDerivatives = "auto"
    check_finite: bool = True
    prepare: Callable[[PyTree], PyTree] | None = None
    damping: float = 0.0
    frozen_x: PyTree = None
    frozen_y: PyTree = None
    paired: bool = False
    carried: PyTree = None
    carry: Callable[[PyTree, PyTree, PyTree, PyTree], PyTree] | None = None
    carry_batch: int = 64

    def __post_init__(self):
        for name in ("outer_loss", "inner_loss"):
            loss = getattr(self, name)
            words = "a function of (x, y, batch), or of (x, y, batch, key), that returns a scalar"
            check_function(name, loss, 3 + len(more_arguments(loss)), words)
        self._check_carried()
        for name in ("project_x", "project_y"):
            check_function(
                name, getattr(self, name), 1, "a function of one argument, a pytree, that returns one like it"
            )
        if self.metrics is not None:
            check_metrics(self.metrics)
        if self.prepare is not None:
            check_function("prepare", self.prepare, 1, "a function of a batch that returns a batch")
        way = self.second_derivatives
        if not callable(way) and not (isinstance(way, str) and way in WAYS):
            raise unknown("way to take second derivatives", str(way), WAYS)
        if isinstance(self.damping, (bool, str)) or not 0 <= float(self.damping) < float("inf"):
            raise ValueError(f"damping must be a finite number >= 0; got {self.damping!r}.")
        for name in ("check_finite", "paired"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}.")
        for name in ("frozen_x", "frozen_y"):
            if not all(isinstance(leaf, (bool, np.bool_)) for leaf in jax.tree.leaves(getattr(self, name))):
                raise TypeError(f"{name} must hold True and False, one for each part; got {getattr(self, name)!r}.")
        for name in ("outer_data", "inner_data"):
            object.__setattr__(self, name, _as_data(name, getattr(self, name)))
            if self.check_finite and not isinstance(getattr(self, name), Stored):
                _refuse_non_finite(name, getattr(self, name), "set check_finite=False if the losses leave it out")
        if self.paired and self.outer_size != self.inner_size:
            raise ValueError(
                f"paired=True: sample i of one level belongs to sample i of the other, so there must be as many; "
                f"outer_data has {self.outer_size:,} and inner_data {self.inner_size:,}."
            )
        for name in ("x0", "y0"):
            kept = jax.tree.map(lambda z: z.copy() if isinstance(z, np.ndarray) else z, getattr(self, name))
            object.__setattr__(self, name, kept)

    def _check_carried(self) -> None:
        """Refuse losses that ask for what is not there, and what would never change."""
        asks = [name for name in ("outer_loss", "inner_loss") if "carried" in more_arguments(getattr(self, name))]
        if reads_carried(self.metrics):
            asks.append("metrics")
        leaves = jax.tree.leaves(self.carried)
        if asks and not leaves:
            takes = "takes" if len(asks) == 1 else "take"
            raise ValueError(f"{' and '.join(asks)} {takes} carried, and there is nothing: give carried= and carry=.")
        if (self.carry is None) != (not leaves):
            raise ValueError(
                "carried and carry belong together: the numbers that a run begins with, and the function "
                "(carried, x, y, batch) that returns the next ones."
            )
        if self.carry is None:
            return
        check_function("carry", self.carry, 4, "a function of (carried, x, y, batch) that returns the next carried")
        if not isinstance(self.carry_batch, int) or isinstance(self.carry_batch, bool) or self.carry_batch < 1:
            raise ValueError(f"carry_batch must be an integer >= 1; got {self.carry_batch!r}.")
        for path, leaf in jax.tree.leaves_with_path(self.carried):
            _refuse_wrong_kind(f"carried{jax.tree_util.keystr(path)}", leaf)
        # Strong copies: a weakly typed leaf would change its type after the first step.
        copies = jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype), self.carried)
        _refuse_non_finite("carried", copies, "begin with other numbers")
        object.__setattr__(self, "carried", copies)

    @property
    def functions(self) -> "Functions":
        """The parts of the problem that are code."""
        F, G = self.outer_loss, self.inner_loss
        way: Any = self.second_derivatives
        way = way if callable(way) else WAYS[way]
        of_F, of_G = (
            Arguments(self.prepare, more_arguments(loss), is_nothing(data))
            for loss, data in ((F, self.outer_data), (G, self.inner_data))
        )
        if isinstance(way, GaussNewton):
            way = replace(way, arguments=of_G)
        frozen_x, frozen_y = Mask.of("frozen_x", self.frozen_x), Mask.of("frozen_y", self.frozen_y)
        if frozen_x is not None or frozen_y is not None:
            F, G = Held(F, frozen_x, frozen_y), Held(G, frozen_x, frozen_y)
            if isinstance(way, GaussNewton):
                way = replace(
                    way, outputs=Held(way.outputs, frozen_x, frozen_y), loss=Held(way.loss, frozen_x, frozen_y)
                )
        if self.damping:
            way = Damped(way, float(self.damping))
        F, G = (loss if of == Arguments() else OfDraw(loss, of) for loss, of in ((F, of_F), (G, of_G)))
        start_y = self.y0 if is_function(self.y0) else None
        keyed = "key" in of_F.others, "key" in of_G.others
        carry = None if self.carry is None else Carry(self.carry, replace(of_G, others=()), self.carry_batch)
        return Functions(F, G, self.project_x, self.project_y, way, keyed, start_y, self.paired, frozen_y, carry)

    @property
    def outer_size(self) -> int:
        """The number of outer samples."""
        return size_of(self.outer_data)

    @property
    def inner_size(self) -> int:
        """The number of inner samples."""
        return size_of(self.inner_data)


def check_metrics(metrics: Any) -> None:
    words = "a function of (x, y), or of (x, y, carried), that returns a dictionary"
    check_function("metrics", metrics, 3 if reads_carried(metrics) else 2, words)


def reads_carried(metrics: Any) -> bool:
    return metrics is not None and more_arguments(metrics, after=2)[:1] == ("carried",)


def is_function(y0: PyTree) -> bool:
    """Tell a function from a network, which may be called, too, but is made of arrays."""
    return callable(y0) and jax.tree.leaves(y0) == [y0]


@dataclass(frozen=True)
class Mask:
    """Which parts of a variable are held as they are; a pytree of True and False, in a form that can be hashed."""

    name: str
    structure: Any
    held: tuple[bool, ...]

    @classmethod
    def of(cls, name: str, tree: PyTree) -> "Mask | None":
        leaves, structure = jax.tree.flatten(tree)
        return cls(name, structure, tuple(bool(leaf) for leaf in leaves)) if any(leaves) else None

    def __call__(self, z: PyTree, hold: Callable[[jax.Array], jax.Array] = jax.lax.stop_gradient) -> PyTree:
        try:
            held = jax.tree.broadcast(self.structure.unflatten(self.held), z)
        except ValueError as error:
            raise TypeError(f"{self.name} must be a pytree like the variable, or like the top of it: {error}") from None
        return jax.tree.map(lambda held, leaf: hold(leaf) if held else leaf, held, z)

    def off(self, tangent: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """Return the part of a direction along which y can move, without those that are held."""
        return lambda x, y, zeta, r: tangent(x, y, zeta, self(r, jnp.zeros_like))


@dataclass(frozen=True)
class Held:
    """A function of x, y and more, without derivatives along the parts that are held."""

    of: Callable[..., PyTree]
    x: Mask | None
    y: Mask | None

    def __call__(self, x: PyTree, y: PyTree, *others: Any) -> PyTree:
        return self.of(x if self.x is None else self.x(x), y if self.y is None else self.y(y), *others)


class Drawn(NamedTuple):
    """A batch with random bits for each of its samples, of a loss that takes a key."""

    batch: PyTree
    bits: jax.Array


@dataclass(frozen=True)
class Arguments:
    """What a loss is given of what was drawn: the batch, prepared, or None; and the others that it asks for by name."""

    prepare: Callable[[PyTree], PyTree] | None = None
    others: tuple[str, ...] = ()
    empty: bool = False
    carried: PyTree = field(default=None, compare=False)  # as it is at this step

    def __call__(self, draw: PyTree) -> tuple[Any, ...]:
        batch, bits = draw if isinstance(draw, Drawn) else (draw, None)
        if self.empty:
            batch = None
        elif self.prepare is not None:
            batch = self.prepare(batch)
        given = {"carried": self.carried}
        if bits is not None and "key" in self.others:
            given["key"] = jax.random.wrap_key_data(bits[0], impl="threefry2x32")
        return batch, *(given.get(name) for name in self.others)


@dataclass(frozen=True)
class OfDraw:
    """A loss as one of what is drawn; equal to another one of the same functions."""

    loss: Callable[..., jax.Array]
    arguments: Arguments

    def __call__(self, x: PyTree, y: PyTree, draw: PyTree) -> jax.Array:
        return self.loss(x, y, *self.arguments(draw))


@dataclass(frozen=True)
class Carry:
    """How what is carried changes, once in a step."""

    function: Callable[..., PyTree]
    arguments: Arguments
    batch: int  # samples

    def __call__(self, carried: PyTree, x: PyTree, y: PyTree, draw: PyTree) -> PyTree:
        return self.function(carried, x, y, *self.arguments(draw))


NOTHING = np.zeros((1, 0), np.float32)  # the data of a loss without data: one sample of no number


def is_nothing(data: PyTree) -> bool:
    return getattr(data, "shape", None) == NOTHING.shape


class Functions(NamedTuple):
    """The parts of a problem that are code, not data: the static part of a compiled program."""

    F: Loss
    G: Loss
    project_x: Projection
    project_y: Projection
    second_derivatives: SecondDerivatives
    keyed: tuple[bool, bool] = (False, False)  # whether F and G take a key
    start_y: Callable[[PyTree], PyTree] | None = None  # where y starts anew, in every step
    paired: bool = False  # whether all batches of a step are of the same samples
    frozen_y: Mask | None = None
    carry: Carry | None = None

    def reading(self, carried: PyTree) -> "Functions":
        """Return the same functions, whose losses are given these numbers."""
        if self.carry is None:
            return self
        F, G, way = (_reading(part, carried) for part in (self.F, self.G, self.second_derivatives))
        return self._replace(F=F, G=G, second_derivatives=way)


def _reading(part: Any, carried: PyTree) -> Any:
    if isinstance(part, Arguments):
        return replace(part, carried=carried)
    if not isinstance(part, (OfDraw, GaussNewton, Damped)):
        return part
    return replace(part, **{one.name: _reading(getattr(part, one.name), carried) for one in fields(part)})


def _as_data(name: str, data: PyTree) -> PyTree:
    """Move the data to the device once, and refuse data that cannot be cut into batches."""
    if isinstance(data, Stored):
        return data
    if isinstance(data, Source):
        return Streamed(name, data)
    data = NOTHING if data is None else data
    try:
        given = jax.tree.leaves_with_path(data, is_leaf=_is_sparse)
    except ValueError:
        kinds = (
            sorted({f"{key!r} ({type(key).__name__})" for key in data}) if isinstance(data, dict) else ["a dictionary"]
        )
        raise TypeError(f"{name} has keys of different types: {', '.join(kinds)}; use one type.") from None
    for path, leaf in given:
        _refuse_wrong_kind(f"{name}{jax.tree_util.keystr(path)}", leaf)
    data = jax.tree.map(lambda leaf: Rows.from_scipy(leaf) if hasattr(leaf, "tocsr") else leaf, data)
    paths = jax.tree.leaves_with_path(data, is_leaf=is_rows)
    described = {f"{name}{jax.tree_util.keystr(path)}": leaf for path, leaf in paths}
    shapes = {path: leaf.shape if is_rows(leaf) else np.shape(leaf) for path, leaf in described.items()}
    if not described:
        raise ValueError(f"{name} holds no arrays; give a pytree of arrays that share their leading axis.")
    for path, shape in shapes.items():
        if shape == ():
            raise ValueError(
                f"{path} is a scalar; every array in {name} needs a leading axis with one entry per sample. "
                "Constants belong in the loss function. A list is a pytree of its members: wrap it in np.array."
            )
    sizes = {path: shape[0] for path, shape in shapes.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{path} has {n}" for path, n in sizes.items())
        raise ValueError(f"the arrays in {name} must share their leading axis, one entry per sample; {listing}.")
    if 0 in sizes.values():
        raise ValueError(f"{name} has no samples; its arrays have a leading axis of length 0.")
    for path, leaf in described.items():
        if isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.integer):
            limits = np.iinfo(jnp.asarray(leaf[:0]).dtype)
            if leaf.min() < limits.min or leaf.max() > limits.max:
                raise ValueError(
                    f"{path} holds integers beyond {limits.dtype}, which JAX would cut off; number them from 0, or set "
                    "jax_enable_x64."
                )
    with jax.ensure_compile_time_eval():  # a problem made inside a jitted function may outlive it
        return copied(data)


def _is_sparse(leaf: Any) -> bool:
    return _is_jax_sparse(leaf) or isinstance(leaf, Iterator) or is_rows(leaf) or hasattr(leaf, "tocsr")


def _is_jax_sparse(leaf: Any) -> bool:
    loaded = sys.modules.get("jax.experimental.sparse")  # importing it takes a third of a second
    return loaded is not None and isinstance(leaf, loaded.JAXSparse)


def _refuse_wrong_kind(path: str, leaf: Any) -> None:
    """Refuse what JAX cannot compute with, or would take for something else."""
    if _is_jax_sparse(leaf):
        raise TypeError(
            f"{path} is a {type(leaf).__name__} matrix of JAX, whose stored numbers would be taken for samples; give a "
            "scipy.sparse matrix, which becomes bilax.sparse.Rows."
        )
    if hasattr(leaf, "tocsr"):
        if getattr(leaf, "ndim", 2) != 2:
            raise ValueError(
                f"{path} is a sparse array of {leaf.ndim} axis, shape {leaf.shape}; give one of two: (samples, columns)"
            )
        return
    if isinstance(leaf, (jax.Array, Rows)):
        return
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(
            f"{path} is a masked array, and JAX has no masks; give .filled(value), or leave the masked samples out."
        )
    if isinstance(leaf, (Iterator, str, bytes, set, frozenset)) or callable(leaf):
        raise TypeError(
            f"{path} is a {type(leaf).__name__}; data must be arrays of numbers: np.stack(list(...)) makes one, "
            "np.load reads one."
        )
    try:
        dtype = np.asarray(leaf).dtype
    except ValueError:
        raise TypeError(
            f"{path} is a {type(leaf).__name__} that is no array, e.g. of lists of unequal length."
        ) from None
    if dtype.kind not in "biufc" and not jnp.issubdtype(dtype, jnp.number):
        raise TypeError(
            f"{path} has dtype {dtype}, which JAX has not; number classes from 0 (np.unique(labels, "
            "return_inverse=True)[1]), and turn dates and other objects into numbers."
        )


def _refuse_non_finite(name: str, tree: PyTree, or_else: str) -> None:
    """Say where the first number is that is not finite, if there is one."""
    for path, leaf in jax.tree.leaves_with_path(tree, is_leaf=is_rows):
        if is_rows(leaf):
            _refuse_non_finite_rows(f"{name}{jax.tree_util.keystr(path)}", leaf, or_else)
            continue
        if isinstance(leaf, Tracer) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):  # other processes look at their parts
            continue
        if np.isfinite(np.asarray(leaf)).all():
            continue
        wrong = np.argwhere(~np.isfinite(np.asarray(leaf)))
        place = f"{name}{jax.tree_util.keystr(path)}"
        at = ", ".join(str(i) for i in wrong[0])
        value = np.asarray(leaf)[tuple(wrong[0])]
        raise ValueError(
            f"{place} holds {value} at [{at}], the first of {len(wrong):,} of {leaf.size:,} numbers that are not "
            f"finite; correct or remove {'them' if len(wrong) > 1 else 'it'}, or {or_else}."
        )


def _refuse_non_finite_rows(path: str, rows: Rows, or_else: str) -> None:
    values = np.asarray(rows.values)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        row = int(np.searchsorted(np.asarray(rows.start), wrong[0], side="right")) - 1
        at = f"[{row}, {int(rows.indices[wrong[0]])}]"
        raise ValueError(
            f"{path} holds {values[wrong[0]]} at {at}, the first of {wrong.size:,}; correct it, or {or_else}."
        )


def as_variable(name: str, value: PyTree) -> PyTree:
    """Return x0 or y0 as a pytree of floating arrays, or say what is wrong with it."""
    leaves = jax.tree.leaves_with_path(value)
    if not leaves:
        raise ValueError(
            f"{name} is empty; give a pytree with at least one floating-point array (or set it on the problem)."
        )
    for path, leaf in leaves:
        where = f"{name}{jax.tree_util.keystr(path)}"
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            raise TypeError(f"{where} is a {type(leaf).__name__}; {name} must hold floating-point arrays.") from None
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"{where} has dtype {array.dtype}; {name} must hold floating-point arrays, "
                "because it is moved by gradient steps. Convert it, e.g. with .astype(float)."
            )
        if array.size == 0:
            raise ValueError(f"{where} has shape {array.shape}, which holds no numbers.")
    # A strong copy: a weakly typed leaf would change its type after the first step.
    value = jax.block_until_ready(jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype), value))
    _refuse_non_finite(name, value, "start somewhere else")
    return value
