"""Placed rows in one process: where rows come from, what is counted, and clear errors."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.devices import CUDA

P = torch.tensor([0.0, 5, 4, 3, 2, 1])  # hottest first: 1, 2, 3, 4, 5, 0
X = torch.arange(12.0).view(6, 2)
PLACED = wb.placement.place_rows(P, num_devices=2, rows_per_device=2, peer_cost=0.3)  # [[1, 3], [4, 2]]
IDS = torch.tensor([3, 3, 2, 0, 5])


def test_rows_come_from_the_own_buffer_then_a_peer_then_the_host() -> None:
    links = [wb.Traffic(), wb.Traffic()]
    first, second = wb.placement.PlacedRows.of_all(PLACED, host=X, traffics=links)
    assert torch.equal(first.read(IDS), X[IDS]) and torch.equal(second.read(IDS), X[IDS])
    assert first.counts.tolist() == [2, 1, 2] and second.counts.tolist() == [2, 1, 2]
    assert links[0].row() == {
        "host_rows": 2, "host_rows_bytes": 16, "device_rows": 2, "device_rows_bytes": 16, "peer_rows": 1,
        "peer_rows_bytes": 8,
    }  # fmt: skip
    assert float(PLACED.problem.costs[0] @ first.counts.double()) == pytest.approx(2.3)
    assert PLACED.count_reads(0, IDS).tolist() == first.counts.tolist()
    assert repr(first).startswith("PlacedRows(2 of 6 rows, 16 B on cpu, device 0 of 2, host=MemoryRows(")


def test_a_window_reads_each_row_once() -> None:
    store = wb.placement.PlacedRows.of_all(PLACED, host=X)[0]
    staged = wb.placement.PlacedRows.stage(store, IDS)
    assert torch.equal(staged.read(IDS), X[IDS]) and store.counts.tolist() == [1, 1, 2]


def test_without_the_peers_the_host_is_read() -> None:
    recorded = wb.features.RecordedRows(X)
    store = wb.placement.PlacedRows(PLACED, 1, host=recorded)
    assert torch.equal(store.read(IDS), X[IDS]) and store.counts.tolist() == [0, 1, 4]
    assert torch.equal(store.stage(IDS).read(IDS), X[IDS]) and store.counts.tolist() == [0, 2, 7]
    assert [ids.tolist() for ids in recorded.trace] == [[2, 4], [3, 3, 0, 5], [0, 3, 5]]


def test_the_buffer_is_read_not_the_host() -> None:
    peers = [torch.full((2, 2), -1.0), torch.full((2, 2), -2.0)]
    store = wb.placement.PlacedRows(PLACED, 0, host=X, peers=peers)
    assert store.read(IDS)[:, 0].tolist() == [-1, -1, -2, 0, 10]


def test_peers_as_dear_as_the_host_are_not_read() -> None:
    placed = wb.placement.place_rows(
        P, num_devices=2, rows_per_device=2, peer_cost=0.3, groups=[[0], [1]], method="naive"
    )
    store = wb.placement.PlacedRows.of_all(placed, host=X)[0]
    assert torch.equal(store.read(IDS), X[IDS]) and store.counts.tolist() == [1, 0, 4]


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_buffer_on_a_device_and_a_pinned_host(device: str) -> None:
    links = wb.Traffic()
    host = wb.MemoryRows(X, pin=device == "cuda", traffic=links)
    store = wb.placement.PlacedRows(PLACED, 0, host=host, device=device, traffic=links)
    filled, out = links.snapshot(), torch.empty(5, 2, device=device)
    assert store.read(IDS.to(device), out=out) is out and torch.equal(out.cpu(), X[IDS])
    assert store.device.type == device
    counts = links.snapshot() - filled
    assert (counts.count("device"), counts.count("peer"), counts.count("host")) == (2, 0, 3)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"rank": 2}, ValueError, r"rank is 2; it must be a whole number from 0 to 1"),
        ({"placement": P}, TypeError, r"placement is a Tensor; pass what place_rows returns"),
        ({"host": X[:5]}, ValueError, r"host has 5 rows, but 6 are placed; pass all of them"),
        ({"host": [1.0]}, TypeError, r"host is a list; pass a tensor"),
        ({"host": X.clone().requires_grad_()}, ValueError, r"rows that require a gradient can't be staged"),
        ({"peers": [X[:2].clone().requires_grad_(), None]}, ValueError, r"require a gradient can't be placed"),
        ({"peers": [None]}, ValueError, r"peers has 1 entries; pass one for each of 2 devices"),
        ({"peers": [None, X[:3]]}, ValueError, r"peers\[1\] has shape \(3, 2\); 2 ids give \(2, 2\)"),
        ({"peers": [X[:2].double(), None]}, TypeError, r"peers\[0\] is torch.float64, but the rows are torch.float32"),
        ({"device": "nowhere"}, ValueError, r"device is 'nowhere', which can't be used here"),
    ],
)
def test_bad_arguments(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"placement": PLACED, "rank": 0, "host": X} | changed
    with pytest.raises(error, match=message):
        wb.placement.PlacedRows(given.pop("placement"), given.pop("rank"), **given)


def test_bad_counters() -> None:
    with pytest.raises(ValueError, match="traffics has 1 entries; pass one for each of 2 devices"):
        wb.placement.PlacedRows.of_all(PLACED, host=X, traffics=[None])
    with pytest.raises(ValueError, match="rows that require a gradient can't be staged"):
        wb.placement.PlacedRows.of_all(PLACED, host=X.clone().requires_grad_())
