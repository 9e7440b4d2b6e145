"""Memory allocated before a training step, counted by hand."""

import torch
from torch import nn

from workbench.meter.allocation_tracker import allocated_bytes, parameter_tensors, state_tensors


def test_each_storage_counts_once_with_its_full_size() -> None:
    whole = torch.zeros(1000)
    assert allocated_bytes([whole[:1], None, whole.view(10, 100)]) == 4096
    assert allocated_bytes([torch.zeros(1), torch.zeros(1), torch.empty(0)]) == 2 * 512
    assert allocated_bytes([torch.zeros(1000, device="meta")]) == 4096


def test_all_components_of_a_sparse_tensor_count() -> None:
    index, values = torch.zeros(2, 300, dtype=torch.int64), torch.zeros(300)
    sparse = torch.sparse_coo_tensor(index, values, (4, 4), check_invariants=False)
    assert allocated_bytes([sparse]) == 5120 + 1536


def test_adams_step_counts_are_on_the_host() -> None:
    model, other = nn.BatchNorm1d(200), nn.Parameter(torch.ones(300))
    optimizer = torch.optim.Adam([*model.parameters(), other])
    model(torch.randn(4, 200)).sum().backward()
    other.sum().backward()
    optimizer.step()
    assert sorted(t.numel() for t in state_tensors(optimizer)) == [200] * 4 + [300] * 2
    assert allocated_bytes(parameter_tensors(model, optimizer)) == 4 * 1024 + 512 + 1536
