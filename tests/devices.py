"""Devices that tests are repeated on."""

import pytest

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)
"""A GPU; a simulated one where there is none."""
