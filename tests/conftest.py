"""Tests run in float64, so that agreement can be asked for to many digits."""

import jax

jax.config.update("jax_enable_x64", True)
# Most of the time of a test would go into optimising a program that runs for milliseconds.
jax.config.update("jax_disable_most_optimizations", True)
