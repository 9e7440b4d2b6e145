"""Training from disk: equal to memory where all partitions fit, and faults in the middle of an epoch."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.outofcore.memory_buffer import MemoryBuffer, MemoryStore
from tests.strategies import random_graph
from workbench.core.graph import Graph

P, NODES, WIDTH = 8, 150, 6
GRAPH = random_graph(NODES, 1500, edge_ids=False)
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))
TRAIN = torch.arange(0, NODES, 2)
SAMPLERS = {
    "NS": wb.NeighborSampler([3, 4]),
    "DENSE": wb.DenseSampler([4, 3]),
    "LABOR-0": wb.LaborSampler([3, 4]),
    "LABOR-*": wb.LaborSampler([3, 4], importance="*"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "store"
    wb.outofcore.PartitionStore.build(folder, GRAPH, rows=X, num_partitions=P, seed=3)
    return wb.outofcore.PartitionStore.open(folder)


def renumbered(store) -> MemoryStore:
    """The data set by the store's ids, made without the store's files."""
    new = torch.empty(NODES, dtype=torch.int64)
    new[store.node_ids] = torch.arange(NODES)
    dst = torch.repeat_interleave(torch.arange(NODES), GRAPH.in_degrees())
    src = new[GRAPH.indices.long()]
    graph = Graph.from_edges(src, new[dst], num_nodes=NODES)
    return MemoryStore(graph, X[store.node_ids], P)


def train(batches, labels, *, parts: int = 1):
    """Losses of every step of two epochs, and the parameters after them."""
    model = wb.build_model("sage-mean", in_dim=WIDTH, hidden_dim=8, out_dim=3, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for rows, mb in batches():
            micro = mb.split(wb.partition_batch(mb, min(parts, mb.num_seeds), method="reg")) if parts > 1 else mb
            losses.append(wb.train_step(model, micro, rows, labels, cross_entropy, optimizer))
    return torch.stack(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


def from_disk(store, capacity, *, sampler="NS", parts=1, **options):
    labels, ids = torch.arange(NODES) % 3, torch.arange(1, NODES, 2)
    order = lambda epoch: wb.outofcore.node_order(P, capacity, P, epoch=epoch)  # noqa: E731
    with wb.outofcore.PartitionBuffer(store, capacity=capacity, **options) as buffer:
        loader = wb.outofcore.batches(buffer, order, ids, sampler=SAMPLERS[sampler], batch_size=10)
        return train(lambda: ((state.rows, mb) for state, _, mb in loader), labels, parts=parts)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_all_partitions_in_the_buffer_train_as_in_memory_in_every_bit(store, sampler):
    memory = renumbered(store)
    loader = wb.batches(memory.graph, torch.arange(1, NODES, 2), sampler=SAMPLERS[sampler], batch_size=10)
    expected = train(lambda: ((memory.rows, mb) for _, mb in loader), torch.arange(NODES) % 3)
    found = from_disk(store, P, sampler=sampler)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_prefetching_changes_no_loss(store):
    expected = from_disk(store, 3, prefetch=False)
    for threads in (1, 3):
        found = from_disk(store, 3, prefetch=True, io_threads=threads)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    memory = MemoryBuffer(renumbered(store), 3)
    order = lambda epoch: wb.outofcore.node_order(P, 3, P, epoch=epoch)  # noqa: E731
    ids = torch.arange(1, NODES, 2)
    loader = wb.outofcore.batches(memory, order, ids, sampler=SAMPLERS["NS"], batch_size=10)
    brute = train(lambda: ((state.rows, mb) for state, _, mb in loader), torch.arange(NODES) % 3)
    assert all(torch.equal(a, b) for a, b in zip(brute, expected, strict=True))


def test_micro_batches_from_the_buffer_train_as_whole_batches(store):
    whole, parts = from_disk(store, 3), from_disk(store, 3, parts=3)
    torch.testing.assert_close(parts[0], whole[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_contain_edges_of_the_buffer_alone(store, sampler):
    memory = renumbered(store)
    edges = set(map(tuple, memory.edges.tolist()))
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        order = wb.outofcore.node_order(P, 2, P)
        loader = wb.outofcore.batches(buffer, order, torch.arange(NODES), sampler=SAMPLERS[sampler], batch_size=10)
        for state, _, mb in loader:
            assert torch.isin(mb.node_ids // store.partition_rows, state.partitions).all()
            assert torch.equal(state.rows.read(mb.node_ids), memory.rows[mb.node_ids])
            for block in mb.blocks:
                src, dst = mb.node_ids[block.indices.long()], mb.node_ids[block.destinations.long()]
                assert set(zip(src.tolist(), dst.tolist(), strict=True)) <= edges


def test_a_row_outside_the_buffer_is_an_error_that_names_its_partition(store):
    order = wb.outofcore.node_order(P, 2, P)
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        for state in buffer.epoch(order):
            outside = next(i for i in range(P) if i not in state.partitions.tolist())
            with pytest.raises(IndexError, match=f"partition {outside}"):
                state.rows.read(torch.tensor([outside * store.partition_rows]))
            break


def test_all_partitions_in_the_buffer_give_the_pairs_of_memory(store):
    memory = renumbered(store)
    options = {"sampler": SAMPLERS["NS"], "batch_size": 300, "negatives": wb.links.Negatives(5, chunks=3, ends="both")}
    with wb.outofcore.PartitionBuffer(store, capacity=P) as buffer:
        [pairs] = [whole.edges().T for whole in buffer.epoch(wb.outofcore.comet_order(P, P))]
        assert sorted(pairs.T.tolist()) == sorted(memory.edges.tolist())
    with wb.outofcore.PartitionBuffer(store, capacity=P) as buffer:
        disk = wb.outofcore.edge_batches(buffer, lambda epoch: wb.outofcore.comet_order(P, P, epoch=epoch), **options)
        expected = wb.edge_batches(memory.graph, pairs, **options)
        for _ in range(2):
            for (step, ours, mb), (_, number, theirs, other) in zip(expected, disk, strict=True):
                assert step == number and torch.equal(mb.node_ids, other.node_ids)
                for name in ("seeds", "src", "dst", "neg_src", "neg_dst"):
                    assert torch.equal(getattr(ours, name), getattr(theirs, name))


def test_every_edge_is_trained_once_per_epoch_with_negatives_from_the_buffer(store):
    trained, memory = [], renumbered(store)
    with wb.outofcore.PartitionBuffer(store, capacity=4) as buffer:
        negatives = wb.links.Negatives(3, chunks=2)
        options = {"sampler": SAMPLERS["NS"], "batch_size": 100, "negatives": negatives, "epoch": 1}
        loader = wb.outofcore.edge_batches(buffer, wb.outofcore.comet_order(P, 4), **options)
        expected = len(loader)
        for state, _, pairs, mb in loader:
            assert torch.isin(mb.node_ids // store.partition_rows, state.partitions).all()
            trained.append(torch.stack([pairs.seeds[pairs.src], pairs.seeds[pairs.dst]], 1))
    assert len(trained) == expected
    assert sorted(torch.cat(trained).tolist()) == sorted(memory.edges.tolist())
