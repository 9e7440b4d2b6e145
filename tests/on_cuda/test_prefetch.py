"""Batches and rows that a background thread copies to a GPU on a stream of its own, ahead of the step."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import workbench as wb
from tests.simulated_cuda import SimulatedDevice, counting
from tests.strategies import random_graph
from workbench.meter.allocation_tracker import allocated_bytes
from workbench.training import fetch_rows

pytestmark = pytest.mark.cuda

GRAPH = random_graph(200, 1500, seed=1)
X, Y = torch.linspace(-9, 9, 1200).sin().view(200, 6), torch.arange(200) % 4
SAMPLER = wb.NeighborSampler([4, 5])


def loader() -> Any:
    return wb.batches(GRAPH, torch.arange(120), sampler=SAMPLER, batch_size=40, epoch=0)


def new_model() -> nn.Module:
    return wb.build_model("sage-mean", in_dim=6, hidden_dim=8, out_dim=4, num_layers=2)


def losses(device: str, batches: Any, x: Any, y: Any, loss_fn: Any = cross_entropy) -> list[float]:
    """Losses of an epoch; `batches` yields (step, fetched batch), or (step, batch) for the rows of `x` and `y`."""
    model = new_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for _, item in batches:
        rows = (item.batch, item.x, item.y) if hasattr(item, "batch") else (item, x, y)
        found.append(wb.train_step(model, *rows, loss_fn, optimizer))
    return [float(loss) for loss in found]


def test_a_step_copies_nothing_and_does_not_wait(gpu: SimulatedDevice | None) -> None:
    """Blocks, features and labels are copied once each, on the thread's stream, from pinned memory."""
    if gpu is None:
        pytest.skip("a real GPU does not count")
    model = new_model().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    prefetched = wb.prefetch(fetch_rows(loader(), X, Y), device="cuda")
    plain = [(b, X[b.node_ids].nbytes, Y[b.seeds].nbytes) for _, b in loader()]
    with counting() as counts:
        for _, item in prefetched:
            wb.train_step(model, item.batch, item.x, item.y, cross_entropy, optimizer)
    expected = [
        nbytes for b, x, y in plain for nbytes in (allocated_bytes(b._tensors().values()), x, y)
    ]  # fmt: skip
    streams = {copy.stream for copy in counts.copies}
    assert sorted(copy.nbytes for copy in counts.copies) == sorted(expected)
    assert not counts.pageable and not counts.syncs, counts.lines()
    assert len(streams) == 1 and streams != {0}
    again = iter(wb.prefetch(fetch_rows(loader(), X, Y), device="cuda"))
    with counting() as counts:
        list(again)
    assert {copy.stream for copy in counts.copies} == streams  # the allocator keeps memory per stream


@pytest.mark.parametrize(
    "x",
    [
        lambda: X,
        lambda: X.numpy(),
        lambda: X.cuda(),
        lambda: wb.MemoryRows(X, pin=True),
        lambda: wb.CachedRows(X, 50, device="cuda"),
        lambda: wb.CachedRows(X, 50),
    ],
)
def test_losses_are_those_of_the_cpu(x: Any) -> None:
    expected = losses("cpu", loader(), X, Y)
    for _ in range(2):
        ahead = wb.prefetch(fetch_rows(loader(), x(), Y), device="cuda", depth=1)
        assert losses("cuda", ahead, None, None) == pytest.approx(expected, rel=1e-5)


def test_labels_of_all_kinds() -> None:
    """Unlabelled seeds, narrow classes, and several labels per node."""
    several = (torch.arange(800).view(200, 4) % 3 == 0).float()
    cases = [(torch.where(torch.arange(200) % 3 == 0, -1, Y), cross_entropy), (Y.int(), cross_entropy),
             (several, binary_cross_entropy_with_logits)]  # fmt: skip
    for y, loss_fn in cases:
        ahead = wb.prefetch(fetch_rows(loader(), X, y), device="cuda")
        assert losses("cuda", ahead, X, y, loss_fn) == pytest.approx(losses("cpu", loader(), X, y, loss_fn), rel=1e-5)


def test_the_host_fetches_rows_too() -> None:
    """In the thread, without a device; other ids and parts of a batch are read from the store."""
    assert losses("cpu", wb.prefetch(fetch_rows(loader(), X, Y, pin=False)), X, Y) == losses("cpu", loader(), X, Y)
    for step, item in wb.prefetch(fetch_rows(loader(), X, Y), device="cuda"):
        assert isinstance(step, int) and item.batch.device.type == "cuda"
        assert torch.equal(item.x.read(item.batch.node_ids[:3]).cpu(), X[item.batch.node_ids[:3].cpu()])
        assert torch.equal(item.x.read(torch.tensor([5, 3])), X[[5, 3]])
        assert torch.equal(item.y.read(item.batch.seeds), Y[item.batch.seeds.cpu()])
    (batch,) = fetch_rows([next(iter(loader()))[1]], X, Y)
    assert torch.equal(batch.x.read(batch.batch.node_ids), X[batch.batch.node_ids])


def test_aggregates_are_fetched() -> None:
    x = wb.training.AggregatedRows(X, X.cos())
    batches = [(0, wb.NeighborSampler([5]).sample(GRAPH, torch.arange(30)))]
    ahead = wb.prefetch(fetch_rows(batches, x, Y), device="cuda")
    assert losses("cuda", ahead, None, None) == pytest.approx(losses("cpu", batches, x, Y), rel=1e-5)


def test_items_of_any_form_are_copied() -> None:
    batch = SAMPLER.sample(GRAPH, torch.arange(9))
    items = [{"pair": (1, [torch.arange(3)]), "batch": batch, "name": "a"}, batch, X[:2], batch.to("cuda")]
    for device in ("cuda", "cpu"):
        first, second, third, fourth = wb.prefetch(items, device=device)
        assert first["pair"][0] == 1 and first["name"] == "a" and first["pair"][1][0].device.type == device
        assert second.device.type == third.device.type == fourth.device.type == first["batch"].device.type == device
        assert torch.equal(fourth.blocks[0].indices.cpu(), batch.blocks[0].indices)


def test_a_loop_that_ends_early_leaves_nothing_queued() -> None:
    cache = wb.CachedRows(X, 50, device="cuda")
    ids = torch.arange(70)
    for _ in wb.prefetch(fetch_rows(loader(), cache, Y), device="cuda"):
        break
    assert torch.equal(cache.read(ids).cpu(), X[:70])
    with pytest.raises(ZeroDivisionError):
        for _ in wb.prefetch((1 // (2 - i) for i in range(5)), device="cuda"):
            pass


def test_the_loop_may_read_the_cache_meanwhile() -> None:
    """On its own stream."""
    cache = wb.CachedRows(X, 50, device="cuda")
    for _, item in wb.prefetch(fetch_rows(loader(), cache, Y), device="cuda", depth=1):
        assert torch.equal(cache.read(torch.arange(40, 90)).cpu(), X[40:90])
        assert torch.equal(item.x.read(item.batch.node_ids).cpu(), X[item.batch.node_ids.cpu()])


def test_sampling_on_the_device_in_the_thread() -> None:
    graph = GRAPH.to("cuda")
    on_device = wb.batches(graph, torch.arange(120), sampler=SAMPLER, batch_size=40, epoch=0)
    ahead = wb.prefetch(fetch_rows(on_device, X, Y), device="cuda")
    assert losses("cuda", ahead, X, Y) == pytest.approx(losses("cpu", loader(), X, Y), rel=1e-5)


def test_items_ahead_are_as_many_as_stated() -> None:
    """Of an item that was used, nothing is left when the next one is awaited."""
    size, live = 1 << 20, []

    def items() -> Iterator[Tensor]:
        for _ in range(6):
            gc.collect()
            live.append(torch.cuda.memory_allocated() // size)
            yield torch.zeros(size, dtype=torch.uint8)

    before = torch.cuda.memory_allocated() // size
    for item in wb.prefetch(items(), device="cuda", depth=1):
        del item
    assert max(live) - before <= 3


def test_refusals() -> None:
    with pytest.raises(TypeError, match="AggregateOnRead"):
        fetch_rows([], wb.training.AggregateOnRead(X), Y)
    with pytest.raises(TypeError, match="a batch is a Tensor"):
        next(fetch_rows([(1, X)], X, Y))
    with pytest.raises(IndexError, match="x has 3 rows"):
        next(fetch_rows(loader(), X[:3], Y))
