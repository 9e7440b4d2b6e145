"""The order of aggregation and multiplication: the same result either way, and the one that needs less memory."""

import pytest
import torch
from torch import Tensor, nn

from tests.nn.blocks import random_block, random_rows
from workbench.core.block import Block
from workbench.meter.peak import measure_peak
from workbench.nn import gcn, sage
from workbench.nn.gcn import GCNLayer
from workbench.nn.linear_with_self import multiplies_first
from workbench.nn.sage import SAGELayer

LAYERS = [lambda i, o: SAGELayer(i, o), lambda i, o: SAGELayer(i, o, aggregator="gcn"), lambda i, o: GCNLayer(i, o)]


def gradients(layer: nn.Module, block: Block, h: Tensor) -> list[Tensor]:
    out = layer(block, h)
    return [out, *torch.autograd.grad(out.square().sum(), [h, *layer.parameters()])]


@pytest.mark.parametrize("make", LAYERS)
def test_both_orders_give_the_same_result(make, monkeypatch: pytest.MonkeyPatch) -> None:
    block, layer = random_block(), make(6, 4).double()
    h, found = random_rows(block.num_src, 6).double().detach().requires_grad_(), []
    for first in (True, False):
        for module in (sage, gcn):
            monkeypatch.setattr(module, "multiplies_first", lambda *_, compiled, first=first: first)
        found.append(gradients(layer, block, h))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("num_src", [500, 4000])
def test_the_order_needs_less_memory(make, num_src: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a gradient of the weights alone, as in the input layer, and 64 → 32 channels."""
    num_dst, in_dim, out_dim = 400, 64, 32
    indptr = torch.arange(num_dst + 1) * 4
    block = Block(indptr, (torch.arange(4 * num_dst) * 7 % num_src).int(), num_src, num_dst)
    layer, h = make(in_dim, out_dim), torch.randn(num_src, in_dim)

    def peak() -> int:
        fresh = block.to("cpu")
        return measure_peak(lambda: layer(fresh, h).sum().backward())

    peak()
    chosen, other = peak(), not multiplies_first(num_src, num_dst, in_dim, out_dim, compiled=True)
    for module in (sage, gcn):
        monkeypatch.setattr(module, "multiplies_first", lambda *_, compiled: other)
    assert chosen < peak()


def test_the_order() -> None:
    sizes = {"num_src": 300, "num_dst": 100, "in_dim": 64}
    assert multiplies_first(**sizes, out_dim=16, compiled=True)  # 300 × 16 against 100 × 64
    assert not multiplies_first(**sizes, out_dim=32, compiled=True)
    assert multiplies_first(**sizes, out_dim=32, compiled=False)
    assert not multiplies_first(**sizes, out_dim=64, compiled=False)
