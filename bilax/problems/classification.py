"""What the classification problems share: the loss of a linear model's logits, and what a run of it is judged by."""

from typing import Any

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array, axis: int = 1) -> jax.Array:
    """Return the loss of every sample; the classes are along ``axis``."""
    # A masked sum, not a gather: its derivatives are elementwise.
    classes = jnp.expand_dims(jnp.arange(logits.shape[axis]), 1 - axis)
    mine = jnp.sum(jnp.where(jnp.expand_dims(labels, axis) == classes, logits, 0), axis=axis)
    return jax.nn.logsumexp(logits, axis=axis) - mine


@jax.jit
def losses_and_accuracy(W: jax.Array, parts: dict[str, tuple[Any, jax.Array]]) -> dict[str, jax.Array]:
    """Return the mean loss on every part of the data, and the accuracy on the part named "test"."""
    logits = {name: features @ W for name, (features, _) in parts.items()}
    loss = {f"{name}_loss": cross_entropy(logits[name], labels).mean() for name, (_, labels) in parts.items()}
    return loss | {"test_accuracy": jnp.mean(jnp.argmax(logits["test"], axis=1) == parts["test"][1])}
