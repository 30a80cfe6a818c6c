"""The only door between a problem and an algorithm: draw a batch, differentiate on it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from bilax.functions import Carry, Drawn, Functions, Loss, unconstrained
from bilax.given import is_nothing
from bilax.numerics.constraints import on_the_set
from bilax.numerics.convolutions import with_products
from bilax.numerics.layout import OfTurned, OntoTurned, Way, ways
from bilax.numerics.matmuls import fast_products
from bilax.numerics.second_derivatives import Products
from bilax.problem import Problem
from bilax.sampling.passes import Blocks, exact_mean
from bilax.sampling.samplers import GATHERING, Sampler, full, resolve, sample_numbers
from bilax.sampling.stored import Stored, bytes_per_sample, size_of, take
from bilax.sampling.strata import Placement
from bilax.sparse import is_rows
from bilax.types import PyTree, Scalar

T = TypeVar("T")

LOSS = 0x6B6579  # of the stream of a loss's own random numbers, beside that of its samples
AHEAD_BYTES = 2**23  # of batches, at most, that are gathered before a loop over them begins


def _cholesky(H: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Factorise a positive definite matrix once; return the solver of linear systems with it."""
    factors = jax.scipy.linalg.cho_factor(H)
    return lambda b: jax.scipy.linalg.cho_solve(factors, b)


def everywhere(x: PyTree, y: PyTree, zeta: PyTree, r: PyTree) -> PyTree:
    return r


def _missing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"the method asks for {name}, which this oracle does not have; give bilax.Oracle(..., {name}=...)."
        )

    return refuse


def _random(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError(
            f"the method keeps what it saw of every sample, or goes over all of them, and {name} takes a key: no two "
            "values of it at one sample are alike. Choose a method that draws batches alone, such as soba or mrbo "
            "(`bilax list` tells which), or leave the key out of the loss."
        )

    return refuse


def _unpaired(*_: Any, **__: Any) -> Any:
    raise TypeError(
        "the method draws blocks of each level apart, and the problem is paired; choose one that draws batches, such "
        "as soba, aid-cg or mrbo."
    )


class Oracle(NamedTuple):
    """All that a stochastic bilevel method may ask for; its calls are what the paper's Table 1 counts.

    `make_oracle` makes one from a problem. One of your own needs the first six functions; the others are needed only by
    methods that ask for them. Put large arrays into `jax.tree_util.Partial`, so compiled programs do not hold them.

    Attributes:
      draw_F: ``(key, size) -> batch`` of the outer data, xi.
      draw_G: ``(key, size) -> batch`` of the inner data, zeta.
      grad_F: ``(x, y, xi) -> (grad_x F, grad_y F)``, counted as F.
      grad_G: ``(x, y, zeta) -> grad_y G``, counted as G.
      hvp_G: ``(x, y, zeta, r) -> (grad_y^2 G) r``, counted as HV.
      jvp_G: ``(x, y, zeta, r) -> (grad_x grad_y G) r``, counted as JV.
      project_x: ``x -> x`` in the set that x is kept in.
      project_y: ``y -> y`` in the set that y is kept in.
      tangent: ``(x, y, zeta, r)`` -> the part of r along which y can move in its set.
      factor: a dense Hessian -> the solver of systems with it, counted as HINV.
      grads_G: ``(x, y, zeta) -> (grad_x G, grad_y G)`` in one pass, counted as G.
      linearize_G: ``(x, y, zeta, r) -> (grad_y G, hvp, jvp)``, counted as one of each.
      value_F: ``(x, y, xi) -> F``; not counted, for Table 1 has no column for it.
      value_G: ``(x, y, zeta) -> G``; not counted.
      numbers_F: ``(key, size)`` -> the numbers of the samples of ``draw_F``.
      numbers_G: ``(key, size)`` -> the numbers of the samples of ``draw_G``.
      mean_F: ``(fn)`` -> the exact mean of ``fn(batch)`` over all outer samples.
      mean_G: ``(fn)`` -> the exact mean of ``fn(batch)`` over all inner samples.
      blocks_F: ``(length)`` -> fixed blocks of the outer data.
      blocks_G: ``(length)`` -> fixed blocks of the inner data.
      step_hvp_G: ``hvp_G`` as it is, where that is damped or approximate.
      size_F: the number of outer samples; None: not known.
      size_G: the number of inner samples; None: not known.
      start_y: ``x -> y``, from which y starts anew in every step; None: it goes on from where it is.
      paired: whether all batches of one size in a step are of the same samples.
      carry: ``(carried, x, y, zeta) -> carried``, after every step, of a problem whose losses read what is carried.
    """

    draw_F: Callable[..., PyTree]
    draw_G: Callable[..., PyTree]
    grad_F: Callable[..., tuple[PyTree, PyTree]]
    grad_G: Callable[..., PyTree]
    hvp_G: Callable[..., PyTree]
    jvp_G: Callable[..., PyTree]
    project_x: Callable[..., PyTree] = unconstrained
    project_y: Callable[..., PyTree] = unconstrained
    tangent: Callable[..., PyTree] = everywhere
    factor: Callable[..., Any] = _cholesky
    # What only methods later than the paper's ask for
    grads_G: Callable[..., Any] = _missing("grads_G")
    linearize_G: Callable[..., Any] = _missing("linearize_G")
    value_F: Callable[..., Any] = _missing("value_F")
    value_G: Callable[..., Any] = _missing("value_G")
    numbers_F: Callable[..., Any] = _missing("numbers_F")
    numbers_G: Callable[..., Any] = _missing("numbers_G")
    mean_F: Callable[..., Any] = _missing("mean_F")
    mean_G: Callable[..., Any] = _missing("mean_G")
    blocks_F: Callable[..., Blocks] = _missing("blocks_F")
    blocks_G: Callable[..., Blocks] = _missing("blocks_G")
    step_hvp_G: Callable[..., Any] = _missing("step_hvp_G")
    size_F: int | None = None
    size_G: int | None = None
    start_y: Callable[[PyTree], PyTree] | None = None
    paired: bool = False
    carry: Carry | None = None


def make_oracle(problem: Problem, sampler: str | Sampler = "iid") -> Oracle:
    """Return the oracle of a problem: what a method sees of it.

    Args:
      problem: the problem.
      sampler: how batches are drawn, as in `bilax.solve`.

    Returns:
      An `Oracle`, whose functions may be called anywhere, also inside of jitted functions.

    >>> problem = Problem(
    ...     outer_loss=lambda x, y, batch: jnp.mean((y - batch) ** 2),
    ...     inner_loss=lambda x, y, batch: jnp.mean((y - x - batch) ** 2),
    ...     outer_data=jnp.ones(10),
    ...     inner_data=jnp.zeros(20),
    ... )
    >>> oracle = make_oracle(problem)
    >>> batch = oracle.draw_G(jax.random.key(0), 5)
    >>> float(oracle.grad_G(jnp.array(1.0), jnp.array(3.0), batch))
    4.0
    """
    return traced(problem, sampler).oracle()


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["outer_data", "inner_data", "outer_numbers", "inner_numbers", "carried"],
    meta_fields=["functions", "sampler", "placement"],
)
@dataclass(frozen=True)
class TracedProblem:
    """All that a compiled program needs of a problem: its functions are static, its data are leaves."""

    functions: Functions
    sampler: Sampler
    outer_data: PyTree
    inner_data: PyTree
    outer_numbers: Any = None  # of the samples, where a sampler has laid them out in another order
    inner_numbers: Any = None
    placement: Placement | None = None  # None: one device
    carried: PyTree = None  # what the losses read: at first what the problem says, in a step what it is then

    def carrying(self, carried: PyTree) -> "TracedProblem":
        return replace(self, carried=carried)

    def ways(self, x: PyTree, y: PyTree) -> tuple[Way, ...]:
        """Return how the inner loss wants each leaf of y turned."""
        if self.functions.carry is not None:  # a function of the user's own looks at y at every step
            return ()
        some = jax.eval_shape(lambda data: take(data, jnp.zeros(2, jnp.int32)), self.inner_data)
        leaves, structure = jax.tree.flatten((x, y, some))
        return _ways(self.functions.G, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))

    def turned(self) -> "TracedProblem":
        """Return the problem of variables with turned leaves in y."""
        f = self.functions
        project_y = f.project_y if f.project_y is unconstrained else OntoTurned(f.project_y)
        return replace(self, functions=f._replace(F=OfTurned(f.F), G=OfTurned(f.G), project_y=project_y))

    def placed(self, tree: PyTree) -> PyTree:
        """Tell the compiler how arrays of a run are to be laid out."""
        return tree if self.placement is None else self.placement.constrain(tree)

    def put(self, tree: PyTree) -> PyTree:
        """Lay arrays of a run out as they should be."""
        return tree if self.placement is None else self.placement.put(tree)

    def _sampler(self, data: PyTree) -> Sampler:
        return full if is_nothing(data) else self.sampler

    def oracle(self) -> Oracle:
        functions = self.functions.reading(self.carried)
        named, remember = (("outer_loss", functions.F), ("inner_loss", functions.G)), self.carried is None
        F, G = (_scalar(name, with_products(loss, remember=remember)) for name, loss in named)
        products, tangent = functions.second_derivatives(G), everywhere
        if not isinstance(products, Products):
            raise TypeError(
                "second_derivatives must return bilax.numerics.second_derivatives.Products; it returned "
                f"{type(products).__name__}."
            )
        project_y = like("project_y", self.functions.project_y)
        if project_y is not unconstrained:
            products, tangent = on_the_set(products, jax.grad(G, argnums=1), project_y)
        if (frozen := self.functions.frozen_y) is not None:
            tangent = frozen.off(tangent)
        n_F, n_G = size_of(self.outer_data), size_of(self.inner_data)
        (keyed_F, keyed_G), paired = self.functions.keyed, self.functions.paired
        exact = getattr(functions.second_derivatives, "exact", None)
        return Oracle(
            draw_F=Draw(self._sampler(self.outer_data), self.outer_data, keyed_F),
            draw_G=Draw(self._sampler(self.inner_data), self.inner_data, keyed_G),
            grad_F=fast_products(jax.grad(F, argnums=(0, 1))),
            grad_G=fast_products(jax.grad(G, argnums=1)),
            hvp_G=products.hvp,
            jvp_G=products.jvp,
            project_x=like("project_x", self.functions.project_x),
            project_y=project_y,
            tangent=tangent,
            grads_G=fast_products(jax.grad(G, argnums=(0, 1))),
            linearize_G=products.linearize,
            value_F=F,
            value_G=G,
            numbers_F=partial(sample_numbers, self._sampler(self.outer_data), n_F, self.outer_numbers),
            numbers_G=partial(sample_numbers, self._sampler(self.inner_data), n_G, self.inner_numbers),
            mean_F=_random("outer_loss") if keyed_F else partial(exact_mean, self.outer_data),
            mean_G=_random("inner_loss") if keyed_G else partial(exact_mean, self.inner_data),
            blocks_F=_unpaired if paired else _random("outer_loss") if keyed_F else partial(Blocks, self.outer_data),
            blocks_G=_unpaired if paired else _random("inner_loss") if keyed_G else partial(Blocks, self.inner_data),
            step_hvp_G=products.hvp if exact is None else exact(G).hvp,
            size_F=n_F,
            size_G=n_G,
            start_y=self.functions.start_y,
            paired=paired,
            carry=functions.carry,
        )


@lru_cache(maxsize=64)
def _ways(G: Loss, structure: Any, leaves: tuple) -> tuple[Way, ...]:
    x, y, batch = structure.unflatten([jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    try:
        return tuple(ways(G, x, y, batch))
    except Exception:  # what is wrong with the loss is told where it is used
        return ((),) * len(jax.tree.leaves(y))


@jax.tree_util.register_pytree_node_class
class TracedOracle:
    """Likewise for an oracle of the user's own: arrays in `jax.tree_util.Partial` are leaves, all else is static."""

    def __init__(self, given: Oracle):
        self.given = given

    carried = None

    def placed(self, tree: PyTree) -> PyTree:
        return tree

    put = placed

    def carrying(self, carried: PyTree) -> "TracedOracle":
        return self

    def oracle(self) -> Oracle:
        given = self.given
        if given.step_hvp_G is Oracle._field_defaults["step_hvp_G"]:
            given = given._replace(step_hvp_G=given.hvp_G)
        if given.linearize_G is not Oracle._field_defaults["linearize_G"]:
            return given
        return given._replace(
            linearize_G=lambda x, y, zeta, r: (
                given.grad_G(x, y, zeta),
                given.hvp_G(x, y, zeta, r),
                given.jvp_G(x, y, zeta, r),
            )
        )

    def tree_flatten(self):
        leaves, structure = jax.tree.flatten(self.given)
        static = [callable(leaf) or isinstance(leaf, int) for leaf in leaves]
        arrays = [None if is_static else leaf for leaf, is_static in zip(leaves, static, strict=True)]
        others = tuple(leaf if is_static else None for leaf, is_static in zip(leaves, static, strict=True))
        return arrays, (structure, others)

    @classmethod
    def tree_unflatten(cls, static, arrays):
        structure, others = static
        leaves = [array if other is None else other for array, other in zip(arrays, others, strict=True)]
        return cls(jax.tree.unflatten(structure, leaves))


Traced = TracedProblem | TracedOracle


def traced(problem: Problem | Oracle, sampler: str | Sampler) -> Traced:
    """Return what a compiled program takes of a problem, or of an oracle (which draws its own batches)."""
    if isinstance(problem, Oracle):
        return TracedOracle(problem)
    if not isinstance(problem, Problem):
        raise TypeError(
            f"the first argument must be a bilax.Problem; got {type(problem).__name__}. (A bilax.Oracle of your own "
            "will do, too.)"
        )
    sampler = resolve(sampler)
    arrange = getattr(sampler, "arrange", None)
    if arrange is None:
        return TracedProblem(
            problem.functions, sampler, problem.outer_data, problem.inner_data, carried=problem.carried
        )
    (outer, outer_numbers), (inner, inner_numbers) = (
        (data, None) if is_nothing(data) else arrange(data) for data in (problem.outer_data, problem.inner_data)
    )
    return TracedProblem(
        problem.functions, sampler, outer, inner, outer_numbers, inner_numbers, carried=problem.carried
    )


def with_one_draw(oracle: Oracle, key: Any) -> Oracle:
    """Return an oracle whose batches of one size are all of the same samples, as a paired problem wants it."""

    def same(draw: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, size: draw(key, size)

    drawing = ("draw_F", "draw_G", "numbers_F", "numbers_G")
    return oracle._replace(**{name: same(getattr(oracle, name)) for name in drawing})


def at_two_points(fn: Callable[..., T], new: tuple, old: tuple) -> tuple[T, T]:
    """Return ``(fn(*new), fn(*old))``, evaluated together.

    The points are stacked and ``fn`` is vmapped over the pair. Batches inside ``fn`` depend on neither point,
    so they are drawn and read once, and each product of a batch with a vector becomes one with two.
    """
    # jnp.stack would put the pair before the members of a sweep, and every loop inside would transpose.
    pair = jax.vmap(fn)(*jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[None]]), new, old))
    return jax.tree.map(lambda a: a[0], pair), jax.tree.map(lambda a: a[1], pair)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counts:
    """Oracle calls counted in samples, the columns of the paper's Table 1.

    Attributes:
      F: gradients of the outer loss.
      G: gradients of the inner loss.
      JV: products of the mixed Jacobian with a vector.
      HV: products of the inner Hessian with a vector.
      HINV: factorisations of a dense inner Hessian.

    >>> 2 * Counts(F=10, HV=30) + Counts(G=10)
    Counts(F=20, G=10, JV=0, HV=60, HINV=0)
    """

    F: Any = 0
    G: Any = 0
    JV: Any = 0
    HV: Any = 0
    HINV: Any = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, kind) + getattr(other, kind) for kind in KINDS))

    def __mul__(self, n: Scalar) -> "Counts":
        return Counts(*(n * getattr(self, kind) for kind in KINDS))

    __rmul__ = __mul__


KINDS = tuple(Counts.__dataclass_fields__)  # the columns of Table 1


@dataclass(frozen=True, eq=False)
class Draw:
    """Draws batches of some data: ``draw(key, size)``."""

    sampler: Sampler
    data: PyTree
    keyed: bool = False  # whether the loss takes a key, which comes with the batch

    def __call__(self, key: Any, size: int) -> PyTree:
        """Draw; refuse, while tracing, what is no batch."""
        batch = self.sampler(self.data, key, size)
        if not isinstance(self.data, Stored) and jax.tree.structure(batch) != jax.tree.structure(self.data):
            raise TypeError(
                f"a sampler (data, key, size) must return a batch like the data, {jax.tree.structure(self.data)}; "
                f"{getattr(self.sampler, '__name__', self.sampler)!r} returned {batch!r}."
            )
        if not self.keyed:
            return batch
        return Drawn(batch, jax.random.bits(jax.random.fold_in(key, LOSS), (size_of(batch), 2), jnp.uint32))

    def ahead(self, keys: Any, size: int) -> PyTree | None:
        """Return the batches of all keys, gathered at once: many small gathers take several times as long as one large.
        Return None where there is nothing to gain, or too much memory to pay."""
        # A gather of one row is never shared out among threads, which is what takes long.
        if self.sampler not in GATHERING or size == 1:
            return None
        if any(map(is_rows, jax.tree.leaves(self.data, is_leaf=is_rows))):
            return None
        bytes_ahead = bytes_per_sample(self.data) * size * len(keys)
        return jax.vmap(lambda key: self(key, size))(keys) if bytes_ahead <= AHEAD_BYTES else None


def each_batch(draw: Callable[..., PyTree], keys: Any, size: int) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Return what a loop over ``keys`` goes through, and the function that makes a batch of each.

    >>> from bilax.sampling.samplers import full
    >>> draw = Draw(full, jnp.arange(3))
    >>> through, batch_of = each_batch(draw, jax.random.split(jax.random.key(0), 2), 3)
    >>> int(jax.lax.scan(lambda total, item: (total + batch_of(item).sum(), None), 0, through)[0])
    6
    """
    gathered = draw.ahead(keys, size) if isinstance(draw, Draw) else None
    return (keys, lambda key: draw(key, size)) if gathered is None else (gathered, lambda batch: batch)


def like(name: str, project: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Keep the dtype of what is projected, and refuse a projection that changes its structure or shapes."""
    if project is unconstrained:
        return unconstrained

    def checked(z: PyTree) -> PyTree:
        new = project(z)
        shapes = [jax.tree.map(jnp.shape, tree) for tree in (z, new)]
        if shapes[0] != shapes[1]:
            raise TypeError(
                f"{name} must return a pytree like its argument; of shapes {shapes[0]} it made {shapes[1]}."
            )
        return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), z, new)

    return checked


def _scalar(name: str, loss: Loss) -> Loss:
    """Refuse, while tracing, a loss that does not return one floating-point number."""

    def checked(x: PyTree, y: PyTree, batch: PyTree) -> Any:
        try:
            value = loss(x, y, batch)
        except Exception as error:
            shapes = ", ".join(f"{what} of shapes {jax.tree.map(jnp.shape, z)}" for what, z in (("x", x), ("y", y)))
            error.add_note(f"while evaluating {name} with {shapes}, a batch of shapes {jax.tree.map(jnp.shape, batch)}")
            raise
        if isinstance(value, str):
            raise TypeError(f"{name} must return one scalar, the mean over the batch; it returned {value!r}.")
        leaves = jax.tree.leaves(value)
        if len(leaves) != 1 or jax.tree.structure(value) != jax.tree.structure(0):
            raise TypeError(f"{name} must return one scalar, the mean over the batch; it returned {value!r}.")
        shape, dtype = jnp.shape(value), jnp.result_type(value)
        if shape != ():
            raise TypeError(
                f"{name} must return one scalar, the mean over the batch; it returned an array of shape {shape}. "
                "Wrap the result in jnp.mean."
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{name} must return a floating-point scalar; it returned dtype {dtype}.")
        return value

    return checked
