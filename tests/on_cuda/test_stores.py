"""Stores, caches, staging and learned rows on a GPU, and steps on pairs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.features.stores import STORES
from tests.training import test_link_step as links

pytestmark = pytest.mark.cuda

ROWS = torch.arange(24.0).view(8, 3)
IDS = torch.tensor([7, 0, 3, 3, 5])
PLACEMENT = wb.placement.place_rows(torch.arange(8.0), num_devices=2, rows_per_device=3, peer_cost=0.5)


@pytest.mark.parametrize("name", STORES)
def test_every_store_is_read_for_the_device(name: str, tmp_path: Path) -> None:
    """By ids of either device, directly and staged."""
    store = STORES[name](ROWS, tmp_path)
    for ids in (IDS, IDS.cuda()):
        rows = store.read(ids)
        assert rows.device == store.device and torch.equal(rows.cpu(), ROWS[IDS])
    graph = wb.Graph.from_edges(IDS, IDS.flip(0), num_nodes=8)
    staged = wb.stage(store, [wb.NeighborSampler([2]).sample(graph, IDS[:3])])
    assert torch.equal(staged.read(IDS[:3]).cpu(), ROWS[IDS[:3]])


@pytest.mark.parametrize(
    "make",
    [
        lambda device: wb.MemoryRows(ROWS.to(device)),
        lambda device: wb.CachedRows(ROWS.clone(), 3, device=device),
        lambda device: wb.CachedRows(wb.MemoryRows(ROWS, pin=device == "cuda"), 4, policy="s3-fifo", device=device),
        lambda device: wb.CachedRows(ROWS, 3, policy="static", rows=torch.arange(8), device=device),
        lambda device: wb.placement.PlacedRows(PLACEMENT, 0, host=ROWS, device=device),
    ],
)  # fmt: skip
def test_stores_on_the_device(make: Any) -> None:
    store, same = make("cuda"), make("cpu")
    assert store.device.type == "cuda"
    for ids in (IDS, IDS.cuda(), IDS.flip(0), torch.tensor([], dtype=torch.int64), torch.arange(8)):
        out = torch.empty(len(ids), 3, device="cuda")
        assert torch.equal(store.read(ids, out=out).cpu(), same.read(ids.cpu())) and torch.equal(out, store.read(ids))
        same.read(ids.cpu())
    if isinstance(store, wb.CachedRows):
        assert store.counts == same.counts
        store.write(IDS[:3].cuda(), torch.ones(3, 3, device="cuda"))
        assert torch.equal(store.read(IDS[:3]).cpu(), torch.ones(3, 3))
    with pytest.raises(IndexError):
        store.read(torch.tensor([8]))


def test_learned_rows_on_the_device() -> None:
    def trained(device: str) -> tuple[Tensor, Tensor]:
        values, state = ROWS.double().sin().to(device), torch.full((8, 3), 0.01, dtype=torch.float64, device=device)
        rows = wb.LearnedRows(values, state, lr=0.2)
        for ids in (IDS, torch.arange(8)):
            leaf = rows.read(ids.to(device))
            leaf.exp().sum().backward()
            assert leaf.grad is not None and leaf.device.type == device
            rows.add_gradients(ids.to(device), leaf.grad)
            rows.step()
        return values.cpu(), state.cpu()

    for ours, theirs in zip(trained("cuda"), trained("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


class OnDevice(links.Training):
    """A step on pairs whose models are on a GPU; rows on either device."""

    def __init__(self, *args: Any, rows_on: str) -> None:
        super().__init__(*args)
        for module in (self.encoder, self.decoder):
            if module is not None:
                module.cuda()
        modules = [m for m in (self.encoder, self.decoder) if m is not None]
        self.parameters = [p for module in modules for p in module.parameters()]
        method = torch.optim.Adagrad if self.encoder is None else torch.optim.SGD
        self.optimizer = method(self.parameters, lr=0.1) if self.parameters else None
        self.values, self.state = self.values.to(rows_on), self.state.to(rows_on)
        self.rows = wb.LearnedRows(self.values, self.state, lr=0.2)


@pytest.mark.parametrize("case", links.CASES, ids=lambda case: "-".join(map(str, case[:2])))
def test_steps_on_pairs(case: tuple[Any, ...]) -> None:
    encoder, *_ = case
    same = links.Training(*case)
    for rows_on in ("cpu", "cuda"):
        ours, theirs = OnDevice(*case, rows_on=rows_on), links.Training(*case)
        for (_, *batch), _ in zip(links.batches(links.sampler_of(encoder)), range(2), strict=False):
            pairs, mb = batch[0], batch[1] if len(batch) > 1 else None
            expected, loss = theirs.step(pairs, mb), ours.step(pairs, mb)
            torch.testing.assert_close(loss.cpu(), expected, rtol=1e-9, atol=1e-12)
        for a, b in zip(ours.tensors(), theirs.tensors(), strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-8, atol=1e-11)
    assert same.tensors()


def test_link_evaluation() -> None:
    triples = torch.stack((links.SRC[:40], links.RELATION[:40], links.DST[:40]), 1)
    for kind, make in links.DECODERS.items():
        if kind == "dot":
            continue
        torch.manual_seed(0)
        decoder = make().double()
        expected = wb.training.rank_triples(decoder, links.START, triples)
        for rows in (links.START, links.START.cuda()):
            assert torch.equal(wb.training.rank_triples(decoder.cuda(), rows, triples).cpu(), expected), kind


def test_formats_of_pyg() -> None:
    pytest.importorskip("torch_geometric")
    graph = wb.Graph.from_edges(IDS, IDS.flip(0), num_nodes=8)
    mb = wb.NeighborSampler([2, 2]).sample(graph, IDS[:2]).to("cuda")
    data = mb.to_pyg()
    tensors = [t for t in (data if isinstance(data, list | tuple) else vars(data).values()) if isinstance(t, Tensor)]
    assert all(t.is_cuda for t in tensors)
