"""Degrees per relation, and sums over typed edges beyond what the contract of layers in tests/nn covers."""

import pytest
import torch
from hypothesis import given, strategies as st

from tests.nn.blocks import random_block, random_rows
from workbench.kernels import typed_sum as basis_sum
from workbench.kernels.typed_sum import (
    BASIS,
    inverse_relation_degrees,
    inverse_relation_degrees_torch,
    typed_sum_with_self,
)


@given(st.integers(0, 60), st.integers(0, 50))
def test_degrees_per_relation(num_edges: int, seed: int) -> None:
    block = random_block(14, 9, num_edges, seed)
    assert block.edge_type is not None
    keys = list(zip(block.destinations.tolist(), block.edge_type.tolist(), strict=True))
    found = inverse_relation_degrees(block, block.edge_type, 3, torch.float32)
    assert found.tolist() == torch.tensor([1 / keys.count(key) for key in keys]).tolist()
    assert torch.equal(found, inverse_relation_degrees_torch(block, block.edge_type, 3, torch.float32))


def test_narrow_types_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    block, coefficients = random_block(), torch.rand(3, 2, dtype=torch.float64)
    assert block.edge_type is not None
    x, narrow = random_rows(14, 6), block.edge_type.to(torch.uint8)
    for compiled in (True, False):
        monkeypatch.setattr(basis_sum, "use_compiled", lambda _, compiled=compiled: compiled)
        out, _ = typed_sum_with_self(BASIS, block, block.edge_type, x, coefficients)
        assert torch.equal(out, typed_sum_with_self(BASIS, block, narrow, x, coefficients)[0])


def test_only_the_destinations_rows_are_used() -> None:
    block = random_block()
    assert block.edge_type is not None
    x, coefficients = random_rows(14, 6), torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    _, rows = typed_sum_with_self(BASIS, block, block.edge_type, x, coefficients)
    grads = torch.autograd.grad(rows.sum(), [x, coefficients], allow_unused=True)
    assert grads[1] is None and grads[0].sum() == 9 * 6 and torch.equal(grads[0][9:], torch.zeros(5, 6))
