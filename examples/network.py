"""Wrong labels and a network: learn a weight for every digit so that a network with dropout fits 100 trusted ones.

Four in ten labels are wrong. The Hessian of a network's loss is not positive definite: without damping, AID-CG meets
directions of negative curvature, says so, and its hypergradients are of little use. Any method takes any optimiser of
optax for the network and for the weights.

python examples/network.py [--picture FILE]
"""

import argparse
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilax
from bilax.datasets import digits
from bilax.problems.hyper_cleaning import auroc

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--picture", help="draw a picture into this file")
arguments = parser.parse_args()

data = digits(0.4, trusted=100)
rng = np.random.default_rng(0)
NETWORK = {"hidden": rng.normal(size=(65, 64)) / 8, "output": rng.normal(size=(64, 10)) / 8}


def logits(network, features, key=None):
    hidden = jax.nn.relu(features @ network["hidden"])
    if key is not None:  # while learning; where a loss is evaluated on all data, the key is None
        hidden *= jax.random.bernoulli(key, 0.8, hidden.shape) / 0.8
    return hidden @ network["output"]


def losses(network, batch, key=None):
    return optax.softmax_cross_entropy_with_integer_labels(logits(network, batch["features"], key), batch["labels"])


def outer_loss(x, y, batch):
    return jnp.mean(losses(y, batch))


def inner_loss(x, y, batch, key):
    decay = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.mean(jax.nn.sigmoid(x[batch["index"]]) * losses(y, batch, key)) + 1e-3 * decay


def problem(damping):
    return bilax.Problem(
        outer_loss,
        inner_loss,
        outer_data={"features": data.trusted_features, "labels": data.trusted_labels},
        inner_data={"features": data.features, "labels": data.labels, "index": np.arange(len(data.labels))},
        x0=np.zeros(len(data.labels)),
        y0=NETWORK,
        damping=damping,
    )


def trained(features, labels, steps=3_000):
    """Return a network that is trained in the usual way, on labels as they are."""
    optimiser = optax.adam(0.003)

    def step(carry, key):
        network, state = carry
        key_batch, key_loss = jax.random.split(key)
        rows = jax.random.randint(key_batch, (128,), 0, len(labels))
        batch = {"features": jnp.asarray(features)[rows], "labels": jnp.asarray(labels)[rows], "index": rows}
        gradient = jax.grad(lambda y: inner_loss(jnp.full(len(labels), 20.0), y, batch, key_loss))(network)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), None

    network = jax.tree.map(jnp.asarray, NETWORK)
    start = (network, optimiser.init(network))
    return jax.jit(lambda: jax.lax.scan(step, start, jax.random.split(jax.random.key(0), steps))[0][0])()


def accuracy(network):
    return np.mean(np.argmax(logits(network, data.test_features), axis=1) == data.test_labels)


def tell(name, network, x=None):
    found = "" if x is None else f"{auroc(-np.asarray(x), data.corrupted):.3f}"
    accuracies[name] = accuracy(network)
    print(f"{name:<40} {accuracies[name]:>8.3f} {found:>6}", flush=True)


accuracies = {}
fast = dict(gamma=optax.adam(0.03), S=128)
METHODS = {
    "AID-CG without damping": (0.0, 500, bilax.AIDCG(alpha=optax.adam(0.1), beta=optax.adam(0.003), S=128)),
    "AID-CG, damping 1": (1.0, 500, bilax.AIDCG(alpha=optax.adam(0.1), beta=optax.adam(0.003), S=128)),
    "SOBA, damping 1": (1.0, 3_000, bilax.SOBA(rho=optax.adam(0.003), a=0.0, b=0.0, **fast)),
    "MRBO, damping 1": (1.0, 2_000, bilax.MRBO(lam=optax.adam(0.003), **fast)),
    "F2SA, no second derivatives": (0.0, 500, bilax.F2SA(gamma=optax.adam(0.1), beta=optax.adam(0.003), S=128)),
}

print(f"{'learned from or by':<40} {'accuracy':>8} {'AUROC':>6}")
tell("all labels as given", trained(data.features, data.labels))
tell("the trusted digits alone", trained(data.trusted_features, data.trusted_labels))
tell("the true labels, if they were known", trained(data.features, data.true_labels))
for name, (damping, steps, method) in METHODS.items():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = bilax.solve(problem(damping), method, steps=steps)
    tell(name, result.y, result.x)
    for warning in said[:1]:
        print(f"  said: {str(warning.message).split(':')[0]} ...")

if arguments.picture:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
    bars = axes.barh(list(accuracies), list(accuracies.values()), color=["tab:gray"] * 3 + ["tab:blue"] * len(METHODS))
    axes.bar_label(bars, fmt="%.3f", fontsize=7, padding=2)
    axes.invert_yaxis()
    axes.tick_params(labelsize=7)
    axes.set(xlim=(0.6, 1.08), xlabel="accuracy on the test digits")
    figure.savefig(arguments.picture, dpi=100)
