"""Budgets of the path to a GPU, in counts: copies, synchronisations, kernels. Only the simulated device counts them."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.on_cuda.test_stores import OnDevice
from tests.simulated_cuda import Counts, SimulatedDevice, counting
from tests.strategies import random_graph
from tests.training import test_link_step as links
from workbench.meter.allocated import allocated_bytes
from workbench.meter.stopwatch import ThreadStopwatch
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS

pytestmark = pytest.mark.cuda

GRAPH = random_graph(300, 2000, seed=1)
X, Y = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 4
BATCH = wb.NeighborSampler([4, 5]).sample(GRAPH, torch.arange(100))
TYPED = wb.NeighborSampler([4, 5]).sample(random_graph(300, 2000, seed=1, num_edge_types=3), torch.arange(100))

LAUNCHES = {"sage-mean": 140, "sage-gcn": 140, "sage-pool": 190, "sage-lstm": 950, "gcn": 160, "gin": 150, "gat": 235,
            "rgcn": 175}  # fmt: skip
"""Kernels at most of a step of two layers with dropout, the optimizer's included."""


@pytest.fixture(autouse=True)
def simulated(gpu: SimulatedDevice | None) -> None:
    if gpu is None:
        pytest.skip("a real GPU does not count")


def step_counts(kind: str, x: Any, batch: wb.MiniBatch = BATCH, parts: int = 1, y: Tensor = Y) -> Counts:
    """What the second step does."""
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": 2}
    sizes |= {"num_relations": 3, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    model = wb.build_model(kind, **sizes, dropout=0.5).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    micro = batch.split(torch.arange(batch.num_seeds) % parts) if parts > 1 else batch
    for _ in range(2):
        with counting() as counts:
            wb.train_step(model, micro, x, y, cross_entropy, optimizer, verify=False)
    return counts


@pytest.mark.parametrize("kind", [*MODEL_KINDS, *TYPED_MODEL_KINDS])
def test_a_step_does_not_wait(kind: str) -> None:
    """Rows, blocks and labels are copied once each, from pinned memory; LSTM buckets cost two waits per layer."""
    batch = TYPED if kind in TYPED_MODEL_KINDS else BATCH
    counts = step_counts(kind, X, batch)
    assert not counts.pageable and not counts.of("d2h")
    expected = [allocated_bytes(batch._tensors().values()), X[batch.node_ids].nbytes, Y[batch.seeds].nbytes]
    assert [copy.nbytes for copy in counts.copies] == expected
    assert len(counts.syncs) == (2 * len(BATCH.blocks) if kind == "sage-lstm" else 0), counts.lines()
    assert 0.8 * LAUNCHES[kind] <= counts.num_launches <= LAUNCHES[kind]


def test_a_stopwatch_does_not_wait() -> None:
    """But once, when its first phase begins, and for its seconds."""
    model = wb.build_model("sage-mean", in_dim=6, hidden_dim=8, out_dim=4, num_layers=2).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for watch in (wb.Stopwatch("cuda"), ThreadStopwatch("cuda")):
        with counting() as counts:
            for _ in range(2):
                wb.train_step(model, BATCH, X, Y, cross_entropy, optimizer, phase=watch.phase)
        assert len(counts.syncs) == 1, counts.lines()
        assert set(watch.seconds) == {"step", "fetch", "transfer", "forward", "backward"}
        assert min(watch.seconds.values()) > 0


def test_micro_batches_do_not_wait() -> None:
    counts = step_counts("sage-mean", wb.MemoryRows(X, pin=True), parts=4)
    assert not counts.pageable and not counts.syncs


def test_unlabelled_seeds_cost_one_copy_more() -> None:
    """Of the positions of the labelled ones; not a wait."""
    counts = step_counts("sage-mean", X, y=torch.where(torch.arange(300) % 3 == 0, -1, Y))
    assert len(counts.copies) == 4 and not counts.pageable and not counts.syncs


@pytest.mark.parametrize("case", links.CASES, ids=lambda case: "-".join(map(str, case[:2])))
def test_a_step_on_pairs_waits_once(case: tuple[Any, ...]) -> None:
    """For the gradients of rows on the host, or to know whether a row occurs twice."""
    for rows_on in ("cpu", "cuda"):
        training = OnDevice(*case, rows_on=rows_on)
        for (_, *batch), _ in zip(links.batches(links.sampler_of(case[0])), range(2), strict=False):
            with counting() as counts:
                training.step(batch[0], batch[1] if len(batch) > 1 else None)
            moves = case[0] != "none" or case[1] != "dot" or rows_on == "cuda"
            assert len(counts.syncs) == moves, counts.lines()


def test_positions_beyond_the_seeds_are_refused_before_the_copy() -> None:
    """On the device, they would end all work of the process."""
    pairs = wb.links.EdgeBatch(torch.arange(3), torch.tensor([0, 3]), torch.tensor([1, 2]))
    with pytest.raises(IndexError, match="src contains 3"):
        pairs.to("cuda")
    decoder, rows = wb.nn.DistMult(4, num_relations=2).cuda(), torch.randn(3, 4).cuda()
    wrong = replace(pairs, src=torch.tensor([0, 1]), relation=torch.tensor([0, 7]))
    optimizer, seeds = torch.optim.SGD(decoder.parameters()), wb.MiniBatch(torch.arange(3), ())
    with pytest.raises(IndexError, match="relation contains 7"):
        wb.link_step(None, decoder, wrong, seeds, rows, wb.nn.logistic_pair_loss, optimizer)


def test_features_on_the_device_are_read_with_one_wait() -> None:
    """For the range of the ids, which are on the host: none."""
    counts = step_counts("sage-mean", X.cuda())
    assert not counts.pageable and not counts.syncs


def test_a_cache_on_the_device_copies_once() -> None:
    """Positions, missing rows, and where new rows are kept; never waiting."""
    cache = wb.CachedRows(wb.MemoryRows(X), 40, device="cuda")
    cache.read(BATCH.node_ids)
    with counting() as counts:
        cache.read(BATCH.node_ids.roll(7))
    assert len(counts.copies) == 1 and not counts.pageable and not counts.syncs
    with counting() as counts:
        cache.write(BATCH.node_ids, X[BATCH.node_ids])
    assert len(counts.copies) == 1 and not counts.pageable and not counts.syncs
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


def test_outputs_of_layers_are_downloaded_while_the_next_chunk_is_computed() -> None:
    """Chunk by chunk: one copy of edges, one of rows, one download, for which the host waits a chunk later."""
    model = wb.build_model("sage-mean", in_dim=6, hidden_dim=8, out_dim=4, num_layers=2).cuda()
    chunks, ends = 6, []

    def layer(position: int, block: wb.Block, h: Tensor) -> Tensor:
        ends.append(len(counts.syncs))
        return model.layers[position](block, h)

    with counting() as counts:
        wb.training.layerwise(GRAPH, X, [partial(layer, 0), partial(layer, 1)], chunk_edges=450, device="cuda")
    assert len(ends) == 2 * chunks and ends == [0, 0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10]
    assert len(counts.syncs) == 2 * chunks and not counts.pageable, counts.lines()
    assert len(counts.of("d2h")) == 2 * chunks and len(counts.of("h2d")) == 4 * chunks
    assert len({copy.stream for copy in counts.of("d2h")} | {0}) == 2
    batches = wb.batches(GRAPH, torch.arange(40), sampler=wb.NeighborSampler([4, 4]), batch_size=8, epoch=0)
    with counting() as counts:
        wb.sampled_logits(model, batches, X)
    assert len(counts.syncs) == len(batches) and len(counts.copies) == 3 * len(batches) and not counts.pageable
