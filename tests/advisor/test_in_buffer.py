"""`batches_in_buffer`: graphs and batches of a buffer, without its store, are those of one that is built."""

from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.advisor.in_buffer import Store, batches_in_buffer
from workbench.core.dataset import Dataset
from workbench.memory.traced.dry_run import work
from workbench.outofcore.buffer_state import CompactIds, buffer_graph
from workbench.outofcore.build_store import assign_nodes

SEED = 3


def a_dataset(num_nodes: int = 500, num_train: int = 200, *, typed: bool = False) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(num_nodes, (2, 6 * num_nodes), generator=generator)
    more: dict[str, Any] = {}
    if typed:
        more["edge_type"] = torch.randint(3, (len(src),), generator=generator)
        more["edge_weight"] = torch.rand(len(src), generator=generator)
    graph = wb.Graph.from_edges(src, dst, num_nodes=num_nodes, **more)
    ids = torch.randperm(num_nodes, generator=generator)
    x, y = torch.randn(num_nodes, 4), torch.randint(3, (num_nodes,))
    split: dict[str, Any] = {"train_idx": ids[:num_train], "val_idx": ids[num_train:], "test_idx": ids[:0]}
    return Dataset.build(graph, x, y, **split, name="drawn")


def a_store(data: Dataset, folder: Path, num_partitions: int) -> wb.outofcore.PartitionStore:
    options: dict[str, Any] = {"rows": data.x, "train_idx": data.train_idx, "num_partitions": num_partitions}
    return wb.outofcore.PartitionStore.build(folder, data.graph, **options, seed=SEED)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(("num_partitions", "capacity"), [(8, 5), (8, 3), (7, 2), (3, 3), (300, 260)])
def test_graphs_are_those_of_a_store(tmp_path: Path, num_partitions: int, capacity: int, typed: bool):
    data = a_dataset(typed=typed)
    built = a_store(data, tmp_path / "store", num_partitions)
    node_ids = assign_nodes(data.graph.num_nodes, data.train_idx, SEED)
    assert torch.equal(node_ids, built.node_ids)
    store = Store(data, num_partitions, SEED)
    order = wb.outofcore.node_order(num_partitions, capacity, built.num_train_partitions, seed=SEED)
    compared = 0
    with wb.outofcore.PartitionBuffer(built, capacity=capacity) as buffer:
        for state in buffer.epoch(order):
            held = CompactIds(store.layout, order.states[state.number])
            here = buffer_graph(held, store.buckets(held))
            expected, nodes = state.graph, held.to_store(torch.arange(held.num_nodes))
            degrees = expected.in_degrees()
            assert torch.equal(here.in_degrees(), degrees[nodes]) and degrees.sum() == here.num_edges
            assert torch.equal(held.to_store(here.indices.long()), expected.indices.long())
            assert expected.edge_ids is not None and here.edge_ids is not None
            assert torch.equal(data.graph.edge_positions(expected.edge_ids), here.edge_ids)
            for name in ("edge_type", "edge_weight"):
                ours, theirs = getattr(here, name), getattr(expected, name)
                assert (ours is not None) == (theirs is not None) == typed
                assert ours is None or torch.equal(ours, theirs)
            compared += 1
    assert compared == order.num_states


@pytest.mark.parametrize(("num_partitions", "capacity"), [(8, 5), (8, 3), (16, 2)])
def test_batches_are_as_large_as_those_of_a_store(tmp_path: Path, num_partitions: int, capacity: int):
    data, sampler = a_dataset(4000, 1500), wb.NeighborSampler([4, 3], seed=1)
    options: dict[str, Any] = {"capacity": capacity, "batch_size": 100, "num_batches": 60}
    found = batches_in_buffer(Store(data, num_partitions, SEED), sampler, **options)
    store = a_store(data, tmp_path / "store", num_partitions)
    ids = torch.isin(store.node_ids, data.train_idx).nonzero()[:, 0]
    order = wb.outofcore.node_order(num_partitions, capacity, store.num_train_partitions, seed=SEED)
    with wb.outofcore.PartitionBuffer(store, capacity=capacity) as buffer:
        loader = wb.outofcore.batches(buffer, order, ids, sampler=sampler, batch_size=100, seed=SEED)
        real = [mb for _, _, mb in loader]
    assert found.batches_per_epoch == len(real)
    if order.num_states <= 3:  # all are rehearsed
        assert sorted(mb.num_seeds for mb in found.batches) == sorted(mb.num_seeds for mb in real)
    ours, theirs = (
        torch.tensor([(work(mb) / mb.num_seeds, mb.num_inputs / mb.num_seeds) for mb in some if mb.num_seeds == 100])
        for some in (found.batches, real)
    )
    error = (ours.var(0) / len(ours) + theirs.var(0) / len(theirs)).sqrt() + 0.02 * theirs.mean(0)
    assert bool(((ours.mean(0) - theirs.mean(0)).abs() < 4 * error).all())


def test_of_many_states_a_few_are_sampled():
    data = a_dataset(4000, 1500)
    options: dict[str, Any] = {"capacity": 2, "batch_size": 100, "num_batches": 12}
    found = batches_in_buffer(Store(data, 16, SEED), wb.NeighborSampler([4, 3]), **options)
    assert 3 <= len(found.seconds) == len(found.batches) <= 12 < found.batches_per_epoch
    first, *_ = (mb for _, mb in found.loader.steps(1))
    assert 0 < first.num_seeds <= 100 and min(found.seconds) > 0 < found.graph_seconds
