"""What a state of the buffer samples from: equal in ids of the store, as small as the buffer, freed at its end."""

import gc
from pathlib import Path
from weakref import ref

import pytest
import torch

import workbench as wb
from tests.outofcore.test_buffer_epochs import DST, EDGES, GRAPH, NODES, ORDERS, SRC, P, X, ids_in


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> wb.outofcore.PartitionStore:
    return wb.outofcore.PartitionStore.build(
        tmp_path_factory.mktemp("f") / "s", GRAPH, rows=X, num_partitions=P, seed=1
    )


EVERY = {
    "all neighbours": wb.NeighborSampler([-1, -1]),
    "DENSE, both directions": wb.DenseSampler([-1, -1], out_fanouts=[-1, -1], edge_ids=True),
    "dependent": wb.NeighborSampler([2, 2], dependence=wb.Smoothed(4)),  # recognizes nodes by their ids
    "by node": wb.LadiesSampler([9], factors=torch.linspace(1, 2, NODES).round()),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_state_samples_in_ids_of_the_store(features: wb.outofcore.PartitionStore, name: str) -> None:
    sampler = EVERY[name]
    with wb.outofcore.PartitionBuffer(features, capacity=3) as buffer:
        for state in buffer.epoch(ORDERS["hand"]):
            seeds, left_out = ids_in(features, state.partitions)[::4], state.edge_ids()[:20]
            for options in ({"step": state.number}, {"exclude_edges": left_out}):
                found = state.sample(sampler, seeds, **options)
                expected = sampler.sample(state.graph, seeds, **options)
                assert torch.equal(found.node_ids, expected.node_ids) and found.step == expected.step
                for ours, theirs in zip(found.blocks, expected.blocks, strict=True):
                    assert torch.equal(ours.indices, theirs.indices) and torch.equal(ours.indptr, theirs.indptr)
                    assert name[:5] != "DENSE" or torch.equal(ours.edge_ids, theirs.edge_ids)  # type: ignore[arg-type]


def test_what_a_state_samples_from_is_as_small_as_the_buffer(features: wb.outofcore.PartitionStore) -> None:
    with wb.outofcore.PartitionBuffer(features, capacity=3) as buffer:
        for state in buffer.epoch(ORDERS["hand"]):
            nodes = ids_in(features, state.partitions)
            assert state.ids.num_nodes == state.compact_graph.num_nodes == len(nodes) < NODES
            assert torch.equal(state.ids.to_store(torch.arange(len(nodes))), nodes)
            assert torch.equal(state.ids.of("nodes", nodes), torch.arange(len(nodes)))
            with pytest.raises(ValueError, match=f"seeds contains {int(nodes[-1])} more than once"):  # by its store id
                state.sample(EVERY["all neighbours"], nodes[[-1, -1]])


def test_a_state_that_has_ended_frees_its_graph_and_refuses_it(features: wb.outofcore.PartitionStore) -> None:
    with wb.outofcore.PartitionBuffer(features, capacity=3) as buffer:
        states = buffer.epoch(ORDERS["BETA"])
        first = next(states)
        graph = ref(first.compact_graph)
        assert graph() is not None and first.sample(EVERY["all neighbours"], first.partitions[:1]).num_seeds == 1
        next(states)
        gc.collect()
        assert graph() is None
        for use in (lambda: first.graph, first.edges, lambda: first.sample(EVERY["dependent"], torch.tensor([0]))):
            with pytest.raises(RuntimeError, match="this state of the buffer has ended"):
                use()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_dtype_follow_their_edges(tmp_path: Path, dtype: torch.dtype) -> None:
    weight = torch.rand(EDGES, generator=torch.Generator().manual_seed(2)).to(dtype)
    graph = wb.Graph.from_edges(SRC, DST, num_nodes=NODES, edge_weight=weight)
    store = wb.outofcore.PartitionStore.build(tmp_path / "s", graph, rows=X, num_partitions=P)
    with wb.outofcore.PartitionBuffer(store, capacity=3) as buffer:
        for state in buffer.epoch(ORDERS["hand"]):
            for found in (state.graph, state.compact_graph):
                assert found.edge_weight is not None and found.edge_ids is not None
                assert torch.equal(found.edge_weight, weight[found.edge_ids])
