"""LaborSampler refuses impossible options and damaged graphs."""

from typing import Any

import numpy as np
import pytest
import torch

from workbench.core.graph import Graph
from workbench.sampling.labor import LaborSampler
from workbench.sampling.sampler import require_row_independence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"importance": -1}, r'importance is -1; pass 0, a number of rounds \(at least 1\), or "\*"'),
        ({"importance": True}, "importance is True"),
        ({"importance": "all"}, "importance is 'all'"),
        ({"importance": 1.5}, "importance is 1.5"),
        ({"importance": 1, "fanouts": [{0: 2}]}, "drawn with importance=0 alone"),
        ({"fanouts": [0]}, r"fanouts are \[0\]"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_invalid_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LaborSampler(**{"fanouts": [3], **options})


@pytest.mark.parametrize("importance", [0, 1])
@pytest.mark.parametrize("bad", [9, -1])
def test_invalid_sources(importance: int, bad: int) -> None:
    """A damaged graph is an error, however the sources are numbered; nothing is written beside an array."""
    for num_nodes in (9, 1000):
        indptr = torch.full((num_nodes + 1,), 8)
        indptr[0] = 0
        bad = bad if bad < 0 else num_nodes
        graph = Graph(indptr, torch.tensor([1, 2, bad, 3, 4, 5, 6, 7], dtype=torch.int32))
        with pytest.raises(IndexError, match=rf"contain {bad}; sources must be in \[0, {num_nodes}\)"):
            LaborSampler([8], importance=importance).sample(graph, torch.tensor([0]))


def test_refusals() -> None:
    with pytest.raises(TypeError, match="Smoothed"):
        LaborSampler([3], dependence=4)  # pyright: ignore[reportArgumentType]
    assert LaborSampler([3]).rows_are_independent
    with pytest.raises(ValueError, match="use NeighborSampler, or LaborSampler with importance=0"):
        require_row_independence(LaborSampler([3], importance=1), "cooperative sampling")


def test_a_number_of_rounds_of_numpy_is_one() -> None:
    rounds: Any = np.int64(2)
    assert LaborSampler([3], importance=rounds) == LaborSampler([3], importance=2)
