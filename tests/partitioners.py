"""What partitioners need beyond the workbench."""

import pytest

_WITHOUT = ("range", "random", "cluster")


def skip_without_library(method: str) -> None:
    """Skip the test where what a method of `PARTITION_CHOICES` needs is not installed."""
    if method not in _WITHOUT:
        pytest.importorskip("mtkahypar" if method.startswith("hypergraph") else "pymetis")
