"""Budgets of the path to a GPU, in counts: copies, synchronisations, kernels. Only the simulated device counts them."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.simulated_cuda import Counts, SimulatedDevice, counting
from tests.strategies import random_graph
from workbench.nn.model import MODEL_KINDS

pytestmark = pytest.mark.cuda

GRAPH = random_graph(300, 2000, seed=1)
X, Y = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 4
BATCH = wb.NeighborSampler([4, 5]).sample(GRAPH, torch.arange(100))

LAUNCHES = {"sage-mean": 140, "sage-gcn": 140, "sage-pool": 190, "sage-lstm": 950, "gcn": 160, "gin": 150, "gat": 235}
"""Kernels at most of a step of two layers with dropout, the optimizer's included."""


@pytest.fixture(autouse=True)
def simulated(gpu: SimulatedDevice | None) -> None:
    if gpu is None:
        pytest.skip("a real GPU does not count")


def step_counts(kind: str, x: Any, batch: wb.MiniBatch = BATCH, parts: int = 1, **options: Any) -> Counts:
    """What the second step does."""
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": 2}
    model = wb.build_model(kind, **sizes, dropout=0.5, **options).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    micro = batch.split(torch.arange(batch.num_seeds) % parts) if parts > 1 else batch
    for _ in range(2):
        with counting() as counts:
            wb.train_step(model, micro, x, Y, cross_entropy, optimizer, verify=False)
    return counts


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_a_step_does_not_wait(kind: str) -> None:
    """Rows, blocks and labels are copied once each, from pinned memory; LSTM buckets cost two waits per layer."""
    counts = step_counts(kind, X)
    rows, labels = X[BATCH.node_ids].nbytes, Y[BATCH.seeds].nbytes
    assert not counts.pageable and not counts.of("d2h")
    assert sum(copy.nbytes for copy in counts.copies) == rows + labels + BATCH.nbytes
    assert len(counts.copies) == 2 + 1 + 2 * len(BATCH.blocks)
    assert len(counts.syncs) == (2 * len(BATCH.blocks) if kind == "sage-lstm" else 0), counts.lines()
    assert 0.8 * LAUNCHES[kind] <= counts.num_launches <= LAUNCHES[kind]


def test_attention_to_the_node_itself_does_not_wait() -> None:
    """A layer launches eleven kernels more, which add the edges."""
    counts, without = step_counts("gat", X, self_attention=True), step_counts("gat", X)
    assert not counts.pageable and not counts.syncs and len(counts.copies) == len(without.copies)
    assert counts.num_launches <= without.num_launches + 2 * 11


def test_micro_batches_do_not_wait() -> None:
    counts = step_counts("sage-mean", wb.MemoryRows(X, pin=True), parts=4)
    assert not counts.pageable and not counts.syncs


def test_features_on_the_device_are_read_with_one_wait() -> None:
    """For the range of the ids, which are on the host: none."""
    counts = step_counts("sage-mean", X.cuda())
    assert not counts.pageable and not counts.syncs


def test_a_cache_on_the_device_copies_three_times() -> None:
    """Positions, missing rows, and where new rows are kept; never waiting."""
    cache = wb.CachedRows(wb.MemoryRows(X), 40, device="cuda")
    cache.read(BATCH.node_ids)
    with counting() as counts:
        cache.read(BATCH.node_ids.roll(7))
    assert len(counts.of("h2d")) <= 3 and not counts.pageable and not counts.syncs
    hits = torch.arange(40)
    cache.read(hits)
    with counting() as counts:
        cache.read(hits)
    assert len(counts.copies) == 1 and not counts.syncs


@pytest.mark.parametrize(
    ("sampler", "per_layer"),
    [(wb.NeighborSampler([5, 10]), 4), (wb.NeighborSampler([5, 10], replace=True), 4), (wb.FullNeighborSampler(2), 3)],
)
def test_sampling_on_the_device(sampler: wb.Sampler, per_layer: int) -> None:
    """Per layer, waits for the range of the ids, the edges, the rows that are drawn from, and the new nodes."""
    graph = GRAPH.to("cuda")
    with counting() as counts:
        sampler.sample(graph, torch.arange(100))
    assert len(counts.syncs) <= 2 * per_layer + 2, counts.lines()
    assert not counts.pageable, counts.pageable


def test_ranges_of_ids_are_checked_with_one_wait() -> None:
    rows, ids = wb.MemoryRows(X.cuda()), torch.arange(9).cuda()
    with counting() as counts:
        rows.read(ids)
    assert len(counts.syncs) <= 2, counts.lines()
