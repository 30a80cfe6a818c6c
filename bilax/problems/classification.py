"""What the classification problems share: the loss of a linear model's logits, and what a run of it is judged by."""

from typing import Any

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the loss of every sample."""
    # A masked sum, not a gather: its derivatives are elementwise.
    mine = jnp.sum(jnp.where(labels[:, None] == jnp.arange(logits.shape[1]), logits, 0), axis=1)
    return jax.nn.logsumexp(logits, axis=1) - mine


@jax.jit
def losses_and_accuracy(W: jax.Array, parts: dict[str, tuple[Any, jax.Array]]) -> dict[str, jax.Array]:
    """Return the mean loss on every part of the data, and the accuracy on the part named "test"."""
    logits = {name: features @ W for name, (features, _) in parts.items()}
    loss = {f"{name}_loss": cross_entropy(logits[name], labels).mean() for name, (_, labels) in parts.items()}
    return loss | {"test_accuracy": jnp.mean(jnp.argmax(logits["test"], axis=1) == parts["test"][1])}
