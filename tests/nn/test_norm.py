"""Symmetric normalization of a whole batch, and batch and layer normalization."""

import pytest
import torch
from torch import nn

from tests.nn.blocks import random_rows
from tests.strategies import random_graph, random_minibatch
from workbench.nn.dropout import build_norm
from workbench.nn.gcn import GCNLayer, symmetric_norm


@pytest.mark.parametrize("weight", [None, torch.float64])
def test_norm_none_on_normalized_blocks_is_norm_both(weight: torch.dtype | None) -> None:
    batch = random_minibatch(random_graph(25, 120, edge_weight=weight), num_seeds=6)
    both, none = GCNLayer(4, 3, norm="both").double(), GCNLayer(4, 3, norm="none").double()
    none.load_state_dict(both.state_dict())
    for block, normalized in zip(batch.blocks, symmetric_norm(batch, torch.float64).blocks, strict=True):
        h = random_rows(block.num_src, 4)
        torch.testing.assert_close(none(normalized, h), both(block, h), rtol=1e-12, atol=1e-12)


def test_dtype_is_that_of_the_old_weights() -> None:
    batch = random_minibatch(random_graph(edge_weight=torch.float64))
    assert {b.edge_weight.dtype for b in symmetric_norm(batch).blocks if b.edge_weight is not None} == {torch.float64}
    plain = symmetric_norm(random_minibatch())
    assert {b.edge_weight.dtype for b in plain.blocks if b.edge_weight is not None} == {torch.float32}


def test_norms_by_name() -> None:
    assert isinstance(build_norm("batch", 4), nn.BatchNorm1d)
    assert isinstance(build_norm("layer", 4), nn.LayerNorm)
    assert isinstance(build_norm(None, 4), nn.Identity)
    with pytest.raises(ValueError, match="batch, layer"):
        build_norm("group", 4)
