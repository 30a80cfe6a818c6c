"""Tests run in float64, so that agreement can be asked for to many digits."""

import os

import jax

jax.config.update("jax_enable_x64", True)
# Most of the time of a test would go into optimising a program that runs for milliseconds.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["BILAX_COMPILE_CACHE"] = "off"  # programs that tests start leave nothing in the user's cache
