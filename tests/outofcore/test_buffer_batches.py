"""Batches from a buffer: what is trained, when, and that all partitions in the buffer give the batches of memory."""

from collections import Counter

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.covering import pairwise
from tests.outofcore.memory_buffer import MemoryBuffer, MemoryStore
from tests.strategies import random_graph

P, NODES = 8, 61
GRAPH = random_graph(NODES, 400, edge_ids=False)
ROWS, LABELS = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0)), torch.arange(NODES) % 3
STORE = MemoryStore(GRAPH, ROWS, P)
IDS = torch.arange(0, 61, 2)
NS, DENSE, LABOR = wb.NeighborSampler([3, 2]), wb.DenseSampler([2, 3]), wb.LaborSampler([3, 2])
SAMPLERS = {"NS": NS, "DENSE": DENSE, "LABOR-0": LABOR, "LABOR-*": wb.LaborSampler([3, 2], importance="*")}


def swapping(epoch):
    return wb.outofcore.node_order(P, 3, P, epoch=epoch)


def nodes_loader(**options):
    return wb.outofcore.batches(MemoryBuffer(STORE, 3), swapping, IDS, sampler=NS, batch_size=4, **options)


def pairs_loader(**options):
    order = lambda epoch: wb.outofcore.comet_order(P, 4, epoch=epoch)  # noqa: E731
    defaults = {"sampler": NS, "batch_size": 16, "negatives": wb.links.Negatives(2, chunks=2, ends="both")}
    return wb.outofcore.edge_batches(MemoryBuffer(STORE, 4), order, **(defaults | options))


def test_every_training_node_is_in_one_batch_per_epoch_while_its_partition_is_in_the_buffer():
    loader = nodes_loader()
    for epoch in range(3):
        expected, seeds = len(loader), []
        batches = list(loader)
        assert len(batches) == expected
        for state, _, mb in batches:
            assert torch.isin(mb.node_ids // STORE.partition_rows, state.partitions).all()
            assert len(mb.seeds) <= 4
            seeds += mb.seeds.tolist()
            assert not state.rows.read(mb.node_ids).isnan().any()
        assert sorted(seeds) == IDS.tolist(), epoch


def test_every_edge_is_in_one_batch_per_epoch_with_negatives_from_the_buffer():
    loader = pairs_loader()
    for _ in range(2):
        expected, trained = len(loader), Counter()
        batches = list(loader)
        assert len(batches) == expected
        for state, step, pairs, mb in batches:
            assert torch.equal(pairs.seeds, mb.seeds) and mb.step == step
            assert torch.isin(mb.node_ids // STORE.partition_rows, state.partitions).all()
            trained.update(zip(pairs.seeds[pairs.src].tolist(), pairs.seeds[pairs.dst].tolist(), strict=True))
        assert trained == Counter(map(tuple, STORE.edges.tolist()))


@pytest.mark.parametrize("loader", [nodes_loader, pairs_loader])
def test_steps_rise_through_all_epochs_and_epochs_differ(loader):
    one, other = loader(), loader()
    epochs = [list(one) for _ in range(3)]
    steps = [batch[1] for epoch in epochs for batch in epoch]
    assert steps == sorted(set(steps))
    assert [b[-1].seeds.tolist() for b in epochs[0]] != [b[-1].seeds.tolist() for b in epochs[1]]
    again = list(other.epoch(2))
    assert [batch[1] for batch in again] == [batch[1] for batch in epochs[2]]
    assert all(torch.equal(a[-1].node_ids, b[-1].node_ids) for a, b in zip(again, epochs[2], strict=True))
    other.set_epoch(2)
    assert (other.next_epoch, [batch[1] for batch in other]) == (2, [batch[1] for batch in again])
    for skip in range(len(again) + 1):
        other.set_epoch(2, skip=skip)
        left = list(other)
        assert [batch[1] for batch in left] == [batch[1] for batch in again[skip:]]
        assert all(torch.equal(a[-1].node_ids, b[-1].node_ids) for a, b in zip(left, again[skip:], strict=True))
    with pytest.raises(ValueError, match=f"skip is {len(again) + 1}"):
        other.set_epoch(2, skip=len(again) + 1)


@pytest.mark.parametrize("loader", [nodes_loader, pairs_loader])
def test_a_refused_choice_of_an_epoch_changes_nothing(loader):
    one, other = loader(), loader()
    one.set_epoch(1, skip=2)
    for wrong in ({"epoch": 5, "skip": 10**6}, {"epoch": 5, "skip": -1}, {"epoch": -1}):
        other.set_epoch(1, skip=2)
        with pytest.raises(ValueError, match=r"is 1000000|is -1"):
            other.set_epoch(**wrong)
        assert other.next_epoch == 1
        assert [batch[1] for batch in other] == [batch[1] for batch in one.epoch(1)][2:]


@pytest.mark.parametrize(("name", "shuffle", "drop_last"), pairwise(SAMPLERS, [True, False], [True, False]))
def test_all_partitions_in_the_buffer_give_the_batches_of_memory(name, shuffle, drop_last):
    options = {"sampler": SAMPLERS[name], "batch_size": 4, "shuffle": shuffle, "drop_last": drop_last, "seed": 5}
    memory = wb.batches(GRAPH, IDS, **options)
    order = lambda epoch: wb.outofcore.node_order(P, P, P, epoch=epoch)  # noqa: E731
    disk = wb.outofcore.batches(MemoryBuffer(STORE, P), order, IDS, **options)
    for _ in range(2):
        for (step, mb), (_, number, other) in zip(memory, disk, strict=True):
            assert (step, mb.step) == (number, other.step)
            assert torch.equal(mb.node_ids, other.node_ids)
            assert all(torch.equal(a.indices, b.indices) for a, b in zip(mb.blocks, other.blocks, strict=True))


@pytest.mark.parametrize("ends", ["dst", "both"])
def test_all_partitions_in_the_buffer_give_the_pairs_of_memory(ends):
    negatives = wb.links.Negatives(3, chunks=2, ends=ends, by_degree=0.5)
    options = {"sampler": NS, "batch_size": 50, "negatives": negatives, "seed": 5}
    memory = wb.edge_batches(GRAPH, STORE.edges.T, **options)
    disk = wb.outofcore.edge_batches(
        MemoryBuffer(STORE, P), lambda epoch: wb.outofcore.comet_order(P, P, epoch=epoch), **options
    )
    for _ in range(2):
        for (step, pairs, mb), (_, number, others, other) in zip(memory, disk, strict=True):
            assert step == number and torch.equal(mb.node_ids, other.node_ids)
            for field in ("seeds", "src", "dst", "neg_dst"):
                assert torch.equal(getattr(pairs, field), getattr(others, field))


def test_sampling_ahead_changes_nothing():
    for loader in (nodes_loader, pairs_loader):
        for one, other in zip(loader(), loader(sample_ahead=2), strict=True):
            assert (one[0].number, one[1]) == (other[0].number, other[1])
            assert torch.equal(one[-1].node_ids, other[-1].node_ids)


def losses(parts: int) -> list[float]:
    model = wb.build_model("sage-mean", in_dim=4, hidden_dim=8, out_dim=3, seed=1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for state, _, mb in nodes_loader():
        micro = mb.split(wb.partition_batch(mb, min(parts, mb.num_seeds), method="reg")) if parts > 1 else mb
        rows = wb.MemoryRows(state.rows.read(torch.arange(NODES)).double())
        found.append(wb.train_step(model, micro, rows, LABELS, cross_entropy, optimizer))
    return torch.stack(found).tolist()


def test_micro_batches_from_the_buffer_equal_the_whole_batch():
    assert losses(3) == pytest.approx(losses(1), rel=1e-10)


def fail_in(loader):
    for _ in loader:
        raise ZeroDivisionError


@pytest.mark.parametrize("sample_ahead", [0, 2])
def test_a_loop_that_ends_early_or_fails_ends_the_epoch_of_the_buffer(sample_ahead):
    buffer = MemoryBuffer(STORE, 3)
    loader = wb.outofcore.batches(buffer, swapping, IDS, sampler=NS, batch_size=4, sample_ahead=sample_ahead)
    for _ in loader:
        break
    assert buffer.closed == 1
    with pytest.raises(ZeroDivisionError):
        fail_in(loader)
    assert buffer.closed == 2


@pytest.mark.parametrize(
    ("order", "ids", "error", "match"),
    [
        (
            wb.outofcore.beta_order(P, 3),
            IDS,
            TypeError,
            "order is a BucketOrder, not a NodeOrder; pass wb.outofcore.node_order",
        ),
        (wb.outofcore.node_order(P, 3, 2), IDS, ValueError, r"56, which is in partition 7, .* num_train_partitions=8"),
        (wb.outofcore.node_order(P, 3, P), torch.tensor([0, 0]), ValueError, "0 more than once"),
        (wb.outofcore.node_order(P, 3, P), torch.tensor([NODES]), IndexError, "61"),
        (
            lambda e: wb.outofcore.node_order(P, 3 + e, P),
            IDS,
            ValueError,
            "epoch 1 has 5 states, that of epoch 0 has 6",
        ),
    ],
)
def test_bad_input_is_refused(order, ids, error, match):
    with pytest.raises(error, match=match):
        list(wb.outofcore.batches(MemoryBuffer(STORE, 3), order, ids, sampler=NS, batch_size=4, epoch=1))


def test_a_store_is_no_buffer():
    with pytest.raises(TypeError, match=r"is a MemoryStore; pass wb\.outofcore\.PartitionBuffer\(store, capacity=c\)"):
        wb.outofcore.batches(STORE, swapping, IDS, sampler=NS, batch_size=4)


def test_equal_loaders_that_all_begin_with_epoch_0_are_noticed():
    buffer = MemoryBuffer(STORE, 3)
    loaders = [wb.outofcore.batches(buffer, swapping, IDS, sampler=NS, batch_size=4) for _ in range(3)]
    with pytest.warns(RuntimeWarning, match="3 loaders with the same arguments"):
        list(map(iter, loaders))
