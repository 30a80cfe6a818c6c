"""A bilevel problem: two losses on batches and the data they are averaged over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bilax.errors import unknown
from bilax.functions import (
    Arguments,
    Carry,
    Functions,
    Held,
    Loss,
    Mask,
    OfDraw,
    Projection,
    SecondDerivatives,
    unconstrained,
)
from bilax.given import as_data, is_nothing, refuse_non_finite, refuse_wrong_kind
from bilax.numerics.second_derivatives import WAYS, Damped, GaussNewton
from bilax.numerics.signatures import check_function, more_arguments
from bilax.sampling.stored import Stored, size_of
from bilax.types import PyTree

Metrics = Callable[[PyTree, PyTree], Mapping[str, Any]]


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
            object.__setattr__(self, name, as_data(name, getattr(self, name)))
            if self.check_finite and not isinstance(getattr(self, name), Stored):
                refuse_non_finite(name, getattr(self, name), "set check_finite=False if the losses leave it out")
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
            refuse_wrong_kind(f"carried{jax.tree_util.keystr(path)}", leaf)
        # Strong copies: a weakly typed leaf would change its type after the first step.
        copies = jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype), self.carried)
        refuse_non_finite("carried", copies, "begin with other numbers")
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
