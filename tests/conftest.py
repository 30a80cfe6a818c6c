"""Tests run in float64, so that agreement can be asked for to many digits."""

import jax

jax.config.update("jax_enable_x64", True)
