"""Optional libraries of the partitioners."""

import pytest

_WITHOUT_LIBRARY = ("range", "random", "cluster")


def skip_without_library(method: str) -> None:
    """Skip the test if the library that one of `partition_choices()` needs is not installed."""
    if method not in _WITHOUT_LIBRARY:
        pytest.importorskip("mtkahypar" if method.startswith("hypergraph") else "pymetis")
