"""Budgets of the path to a GPU, in counts: copies, synchronisations, kernels. Only the simulated device counts them."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.on_cuda.test_stores import OnDevice
from tests.simulated_cuda import Counts, SimulatedDevice, counting
from tests.strategies import random_graph
from tests.training import test_link_step as links
from workbench.meter.allocation_tracker import allocated_bytes
from workbench.meter.stopwatch import ThreadStopwatch
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS

pytestmark = pytest.mark.cuda

GRAPH = random_graph(300, 2000, seed=1)
X, Y = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 4
PLAIN = random_graph(300, 2000, seed=1, edge_ids=False)
TYPED = random_graph(300, 2000, seed=1, edge_ids=False, edge_weight=torch.float32, num_edge_types=3)
BATCH = wb.NeighborSampler([4, 5]).sample(GRAPH, torch.arange(100))
TYPED_BATCH = wb.NeighborSampler([4, 5]).sample(TYPED, torch.arange(100))

LAUNCHES = {
    "sage-mean": (137, 99),
    "sage-gcn": (137, 99),
    "sage-pool": (181, 118),
    "sage-lstm": (460, 250),
    "gcn": (130, 94),
    "gin": (137, 98),
    "gat": (226, 139),
    "rgcn": (168, 115),
}
"""Kernels at most of a step of two layers with dropout, the optimizer's included, and of each further layer.

The LSTM's are those of torch's own steps; cuDNN runs a bucket as one. A third of a further layer's are dropout's hash.
"""


@pytest.fixture(autouse=True)
def simulated(gpu: SimulatedDevice | None) -> None:
    if gpu is None:
        pytest.skip("a real GPU does not count")


def step_counts(
    kind: str, x: Any, batch: wb.MiniBatch = BATCH, parts: int = 1, y: Tensor = Y, **options: Any
) -> Counts:
    """What the second step does."""
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": len(batch.blocks)}
    sizes |= {"num_relations": 3, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    model = wb.build_model(kind, **sizes, dropout=0.5, **options).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    micro = batch.split(torch.arange(batch.num_seeds) % parts) if parts > 1 else batch
    for _ in range(2):
        with counting() as counts:
            wb.train_step(model, micro, x, y, cross_entropy, optimizer, verify=False)
    return counts


@pytest.mark.parametrize("kind", [*MODEL_KINDS, *TYPED_MODEL_KINDS])
def test_a_step_does_not_wait(kind: str) -> None:
    """Rows, blocks and labels are copied once each, from pinned memory.

    Per layer, an LSTM downloads the in-degrees, for which the host waits, and uploads the steps of its buckets.
    """
    batch = TYPED_BATCH if kind in TYPED_MODEL_KINDS else BATCH
    counts = step_counts(kind, X, batch)
    degrees = [4 * block.num_dst for block in BATCH.blocks] if kind == "sage-lstm" else []
    assert [copy.nbytes for copy in counts.of("d2h")] == [copy.nbytes for copy in counts.pageable] == degrees
    once = [allocated_bytes(batch._tensors().values()), X[batch.node_ids].nbytes, Y[batch.seeds].nbytes]
    uploads = Counter(copy.nbytes for copy in counts.of("h2d"))
    steps = uploads - Counter(once)
    assert uploads.total() == len(once) + steps.total() and steps.total() == len(degrees)
    assert sum(steps.elements()) <= 24 * (4 + 5)
    assert len(counts.syncs) == len(degrees), counts.lines()


@pytest.mark.parametrize("kind", LAUNCHES)
def test_launches_of_a_step(kind: str) -> None:
    """Of two and three layers: they depend on the number of layers alone, not on the batch (LSTM: on its steps too)."""
    two, further = LAUNCHES[kind]
    batches = [wb.NeighborSampler([4] * n).sample(TYPED, torch.arange(50)) for n in (2, 3)]
    counted = [step_counts(kind, X, batch).num_launches for batch in batches]
    assert 0.8 * two <= counted[0] <= two
    assert 0.8 * further <= counted[1] - counted[0] <= further


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


def test_attention_to_the_node_itself_does_not_wait() -> None:
    """A layer launches eleven kernels more, which add the edges."""
    counts, without = step_counts("gat", X, self_attention=True), step_counts("gat", X)
    assert not counts.pageable and not counts.syncs and len(counts.copies) == len(without.copies)
    assert counts.num_launches <= without.num_launches + 2 * 11


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


FANOUTS, SMOOTHED, BY_TYPE = [5, 10], wb.Smoothed(4), [{0: 2, 1: -1, 2: 1}, {0: 1, 1: 2, 2: 0}]


class Sampled(NamedTuple):
    """What sampling on the device may cost.

    Args:
        sampler: of two layers.
        waits: of the host, per layer.
        launches: of kernels at most, per layer.
        why: what the host waits for, where that is more than the numbers of edges drawn and of nodes reached.
        excluding: more waits per layer with excluded edges.
        graph: the graph.
    """

    sampler: wb.Sampler
    waits: int
    launches: int
    why: str = ""
    excluding: int = 0
    graph: wb.Graph = PLAIN


SAMPLED = {
    "all": Sampled(wb.FullNeighborSampler(2), 1, 50, "no draw: the edges were counted with the nodes", 1),
    "uniform": Sampled(wb.NeighborSampler(FANOUTS), 2, 120),
    "replace": Sampled(wb.NeighborSampler(FANOUTS, replace=True), 2, 105),
    "nested": Sampled(wb.NeighborSampler(FANOUTS, dependence=wb.Nested(4)), 2, 120),
    "smoothed": Sampled(wb.NeighborSampler(FANOUTS, dependence=SMOOTHED), 2, 170),
    "smoothed, replace": Sampled(wb.NeighborSampler(FANOUTS, replace=True, dependence=SMOOTHED), 2, 205),
    "weighted": Sampled(wb.NeighborSampler(FANOUTS, weighted=True), 2, 135, graph=TYPED),
    "weighted, replace": Sampled(wb.NeighborSampler(FANOUTS, weighted=True, replace=True), 2, 155, graph=TYPED),
    "labor": Sampled(wb.LaborSampler(FANOUTS), 2, 85),
    "labor, exact": Sampled(wb.LaborSampler(FANOUTS, poisson=False), 2, 85),
    "labor, smoothed": Sampled(wb.LaborSampler(FANOUTS, dependence=SMOOTHED), 2, 90),
    "labor-1": Sampled(wb.LaborSampler(FANOUTS, importance=1), 4, 390, "Newton's method, every four of its steps", 1),
    "labor-*": Sampled(
        wb.LaborSampler(FANOUTS, importance="*"), 14, 1600, "the same, and the next round is decided", 1
    ),
    "by type": Sampled(wb.NeighborSampler(BY_TYPE), 7, 230, "groups, and the lengths of those drawn from", 1, TYPED),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sampling_on_the_device(name: str) -> None:
    """The host waits for sizes alone: per layer for the edges drawn and for the nodes reached, and once for the seeds.

    The nodes' in-edges, which the next layer draws from, and the range of their ids are read with their number. More
    waits need a reason. Excluded edges are looked up and sorted once per batch.
    """
    sampler, waits, launches, why, excluding, plain = SAMPLED[name]
    assert waits <= 2 or why
    graph, seeds = plain.to("cuda"), torch.arange(100)
    sampler.sample(graph, seeds)
    for excluded, more in ((None, 0), (torch.arange(0, 2000, 9), 2 + 2 * excluding)):
        with counting() as counts:
            sampler.sample(graph, seeds, exclude_edges=excluded)
        allowed = 1 + 2 * waits + more
        assert len(counts.syncs) == allowed or (why and len(counts.syncs) <= allowed), counts.lines()
        assert not counts.pageable, counts.pageable
        assert excluded is not None or 0.8 * 2 * launches <= counts.num_launches <= 2 * launches


def test_weights_are_checked_with_the_size_of_the_draw() -> None:
    weight = torch.ones(2000)
    weight[1500:] = -1
    graph = wb.Graph(PLAIN.indptr, PLAIN.indices, edge_weight=weight).to("cuda")
    with pytest.raises(ValueError, match=r"edge_weight is -1.0 at CSR position 1[5-9]\d\d"):
        wb.NeighborSampler([5], weighted=True).sample(graph, torch.arange(300))


def test_ids_are_checked_with_their_number() -> None:
    broken = wb.Graph(torch.tensor([0, 3, 3]), torch.tensor([1, 400, 1], dtype=torch.int32)).to("cuda")
    with pytest.raises(IndexError, match=r"indices contain 400; sources must be in \[0, 2\)"):
        wb.NeighborSampler([3, 3]).sample(broken, torch.tensor([0]))
    for seeds in (torch.tensor([0, 1, 0]), torch.tensor([0, 1, 0]).cuda()):
        with pytest.raises(ValueError, match="seeds contain 0 more than once"):
            wb.NeighborSampler([3, 3]).sample(PLAIN.to("cuda"), seeds)
    with pytest.raises(IndexError, match=r"nodes contains 300"):
        wb.NeighborSampler([3]).draw(PLAIN.to("cuda"), torch.tensor([1, 300]).cuda(), layer=0)


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
