"""Experiments: what was run, with which settings, and what came out."""
