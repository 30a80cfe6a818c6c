"""Tests run in float64, so that agreement can be asked for to many digits."""

import os

import jax
import pytest

jax.config.update("jax_enable_x64", True)
# Most of the time of a test would go into optimising a program that runs for milliseconds.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["BILAX_COMPILE_CACHE"] = "off"  # programs that tests start leave nothing in the user's cache


@pytest.fixture
def compiled():
    """The names of what has been compiled since the test began."""
    names: list[str] = []

    def listen(event, seconds, **facts):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(facts["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
