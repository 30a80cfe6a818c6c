"""Tests on data that are not bundled are skipped where the data are not; `.ci/run` names their folder."""

import os

import pytest

needs_data = pytest.mark.skipif(
    not os.environ.get("BILAX_DATA_DIR"), reason="needs data that are not bundled: set BILAX_DATA_DIR"
)
