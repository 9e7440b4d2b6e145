"""The partition buffer as a state machine: states written by hand, and what every order must see."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.covering import chessboard
from tests.outofcore.memory_buffer import MemoryBuffer, MemoryStore
from workbench.outofcore.buffer_state import BufferRows

NODES, EDGES, P = 50, 600, 8
SRC, DST = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))
GRAPH = wb.Graph.from_edges(SRC, DST, num_nodes=NODES)
X = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(0))
HAND = [[0, 1, 2], [0, 1, 3], [4, 5, 3], [0, 1, 2]]  # one load, two loads, and partitions that come back at once


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> wb.outofcore.PartitionStore:
    return wb.outofcore.PartitionStore.build(
        tmp_path_factory.mktemp("f") / "s", GRAPH, rows=X, num_partitions=P, seed=1
    )


@pytest.fixture
def learnt(tmp_path: Path) -> wb.outofcore.PartitionStore:
    return wb.outofcore.PartitionStore.build(
        tmp_path / "s", GRAPH, rows=wb.outofcore.LearntInit(5, seed=2), num_partitions=P, seed=1
    )


def by_hand(states: list[list[int]], p: int = P) -> wb.outofcore.BucketOrder:
    """An order of given states; a bucket is trained in the first that holds it, others in none."""
    held = torch.tensor(states).sort(dim=1).values
    first = torch.full((p, p), -1, dtype=torch.int32)
    for number, state in reversed(list(enumerate(held))):
        first[state[:, None], state[None]] = number
    return wb.outofcore.BucketOrder("by hand", p, held, first)


def ids_in(store: wb.outofcore.PartitionStore, partitions: Tensor) -> Tensor:
    ids = torch.arange(store.num_nodes)
    return ids[torch.isin(ids // store.partition_rows, partitions)]


def in_memory(store: wb.outofcore.PartitionStore) -> MemoryStore:
    new = store.ids_of(torch.arange(NODES))
    return MemoryStore(wb.Graph.from_edges(new[SRC], new[DST], num_nodes=NODES), X[store.node_ids], P)


ORDERS = {
    "hand": by_hand(HAND),
    "BETA": wb.outofcore.beta_order(P, 3),
    "COMET": wb.outofcore.comet_order(P, 4, 4, seed=1),
    "balanced": wb.outofcore.balanced_order(P, 4, 4, seed=1),
    "nodes": wb.outofcore.node_order(P, 3, 6),
    "resident": wb.outofcore.node_order(P, 4, 2),
}


@pytest.mark.parametrize(("name", "prefetch"), chessboard(ORDERS, [True, False]))
def test_states_are_those_of_a_buffer_in_memory(
    features: wb.outofcore.PartitionStore, name: str, prefetch: bool
) -> None:
    order, memory = ORDERS[name], in_memory(features)
    capacity = order.states.shape[1]
    with wb.outofcore.PartitionBuffer(features, capacity=capacity, prefetch=prefetch, io_threads=3) as buffer:
        pairs = zip(buffer.epoch(order), MemoryBuffer(memory, capacity).epoch(order), strict=True)
        for number, (found, expected) in enumerate(pairs):
            assert found.number == number and torch.equal(found.partitions, expected.partitions)
            for ours, theirs in ((found.graph, expected.graph), (found.compact_graph, expected.compact_graph)):
                assert torch.equal(ours.indptr, theirs.indptr)
                assert torch.equal(ours.indices.long(), theirs.indices.long())  # no other, in its order
            ids = ids_in(features, found.partitions)
            assert torch.equal(found.rows.read(ids), memory.rows[ids])
        assert buffer.io == wb.outofcore.epoch_io(features, order)


@pytest.mark.parametrize("name", ["BETA", "COMET", "balanced"])
def test_every_edge_is_trained_once_in_a_state_that_holds_it(features: wb.outofcore.PartitionStore, name: str) -> None:
    order, new = ORDERS[name], features.ids_of(torch.arange(NODES))
    pairs, seen = torch.stack([new[SRC], new[DST]], 1), []
    with wb.outofcore.PartitionBuffer(features, capacity=order.states.shape[1]) as buffer:
        for state in buffer.epoch(order):
            edges, ids = state.edges(), state.edge_ids()
            assert torch.equal(edges, pairs[ids])
            assert torch.isin(edges // features.partition_rows, state.partitions).all()
            seen.append(ids)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(EDGES))


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("name", ["hand", "BETA", "COMET"])
def test_learnt_rows_are_those_of_tensors_in_memory(
    learnt: wb.outofcore.PartitionStore, name: str, prefetch: bool
) -> None:
    order, values, state_of = ORDERS[name], learnt.read(), learnt.read(state=True)
    with wb.outofcore.PartitionBuffer(learnt, capacity=order.states.shape[1], prefetch=prefetch) as buffer:
        for epoch in range(2):
            for state in buffer.epoch(order):
                ids = ids_in(learnt, state.partitions)
                assert state.state_rows is not None
                assert torch.equal(state.rows.read(ids), values[ids])
                assert torch.equal(state.state_rows.read(ids), state_of[ids])
                values[ids] += state.number + 1
                state_of[ids] -= epoch + 1
                state.rows.write(ids, values[ids])
                state.state_rows.write(ids, state_of[ids])
        predicted = wb.outofcore.epoch_io(learnt, order)
        assert buffer.io.read_bytes == 2 * predicted.read_bytes
        assert buffer.io.written_bytes == 2 * predicted.written_bytes  # all partitions change
    assert torch.equal(learnt.read(), values) and torch.equal(learnt.read(state=True), state_of)
    assert torch.equal(wb.outofcore.PartitionStore.open(learnt.folder).read(), values) and not learnt.damaged()


def test_only_what_changed_is_written(learnt: wb.outofcore.PartitionStore) -> None:
    with wb.outofcore.PartitionBuffer(learnt, capacity=3) as buffer:
        for state in buffer.epoch(ORDERS["hand"]):
            if state.number == 1:
                state.rows.write(torch.tensor([0]), torch.ones(1, 5))
        assert buffer.io.written_bytes == learnt.partition_bytes
    assert torch.equal(learnt.read()[0], torch.ones(5))


def test_steps_change_the_rows_of_a_buffer_in_place(
    learnt: wb.outofcore.PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps through the buffer give the bits of steps on tensors, without copies of the rows to write."""
    values, state_of = learnt.read(), learnt.read(state=True)
    reference = wb.LearnedRows(values, state_of, lr=0.3)
    monkeypatch.setattr(BufferRows, "write", None)
    with wb.outofcore.PartitionBuffer(learnt, capacity=ORDERS["BETA"].states.shape[1]) as buffer:
        for state in buffer.epoch(ORDERS["BETA"]):
            rows = wb.LearnedRows(state.rows, state.state_rows, lr=0.3)
            ids = ids_in(learnt, state.partitions).flip(0)[::3]
            for seed in (state.number, -1):
                gradients = torch.randn(len(ids), *learnt.row_shape, generator=torch.Generator().manual_seed(seed + 1))
                for trained in (rows, reference):
                    trained.add_gradients(ids, gradients)
                    trained.step()
    assert torch.equal(learnt.read(), values) and torch.equal(learnt.read(state=True), state_of)


def test_two_buffers_take_turns(learnt: wb.outofcore.PartitionStore) -> None:
    """One evaluates what the other has trained, although it was opened before."""
    order, all_ids = wb.outofcore.beta_order(P, P), torch.arange(NODES)
    first, second = (wb.outofcore.PartitionBuffer(learnt, capacity=P) for _ in range(2))
    for value, buffer in enumerate([first, second, first, second], 1):
        for state in buffer.epoch(order):
            assert (state.rows.read(all_ids) == value - 1).all() or value == 1
            state.rows.write(all_ids, torch.full((NODES, 5), float(value)))
    assert (learnt.read() == 4).all()


def test_a_second_epoch_at_a_time_is_refused(learnt: wb.outofcore.PartitionStore) -> None:
    order = ORDERS["BETA"]
    with (
        wb.outofcore.PartitionBuffer(learnt, capacity=3) as buffer,
        wb.outofcore.PartitionBuffer(learnt, capacity=3) as other,
    ):
        running = buffer.epoch(order)
        next(running)
        with pytest.raises(ValueError, match="an epoch of this buffer has not ended"):
            next(buffer.epoch(order))
        with pytest.raises(ValueError, match="writes to"):
            next(other.epoch(order))
        running.close()  # type: ignore[attr-defined]
        assert len(list(other.epoch(order))) == order.num_states


@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_an_error_interrupts_is_written(learnt: wb.outofcore.PartitionStore, at: int) -> None:
    values = learnt.read()

    def train() -> None:
        with wb.outofcore.PartitionBuffer(learnt, capacity=3) as buffer:
            for state in buffer.epoch(ORDERS["BETA"]):
                ids = ids_in(learnt, state.partitions)
                values[ids] += 1
                state.rows.write(ids, values[ids])
                if state.number == at:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert torch.equal(learnt.read(), values) and not learnt.damaged()


def test_rows_outside_the_buffer_and_after_their_state(features: wb.outofcore.PartitionStore) -> None:
    s, kept = features.partition_rows, []
    with wb.outofcore.PartitionBuffer(features, capacity=3) as buffer:
        for state in buffer.epoch(by_hand([[0, 1, 2], [0, 1, 3]])):
            outside = 2 if state.number else 3
            with pytest.raises(IndexError, match=rf"row {outside * s} is in partition {outside}, but the buffer has"):
                state.rows.read(torch.tensor([0, outside * s]))
            with pytest.raises(ValueError, match="features, which are only read"):
                state.rows.write(torch.tensor([0]), X[:1])
            kept.append(state.rows)
    for rows in kept:
        with pytest.raises(RuntimeError, match="this state of the buffer has ended"):
            rows.read(torch.tensor([0]))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (wb.outofcore.beta_order(P, 4), "4 partitions in a state, but capacity is 3"),
        (wb.outofcore.beta_order(9, 3), "9 partitions"),
        (wb.outofcore.node_order(4, 3, 1), "the order has 4 partitions, but the store has 8"),
        (wb.outofcore.node_order(6, 2, 4), "the order has 6 partitions, but the store has 8"),
        (wb.outofcore.node_order(9, 3, 4), "the order has 9 partitions, but the store has 8"),
    ],
)
def test_orders_of_other_sizes(features: wb.outofcore.PartitionStore, order: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wb.outofcore.PartitionBuffer(features, capacity=3).epoch(order)
    if order.num_partitions != P:
        with pytest.raises(ValueError, match=message):
            wb.outofcore.epoch_io(features, order)


@pytest.mark.parametrize("order", [None, 8, [[0, 1, 2]]])
def test_an_epoch_needs_an_order(features: wb.outofcore.PartitionStore, order: Any) -> None:
    words = f"order is a {type(order).__name__}; pass a BucketOrder or a NodeOrder"
    with pytest.raises(TypeError, match=words):
        wb.outofcore.PartitionBuffer(features, capacity=3).epoch(order)
    with pytest.raises(TypeError, match=words):
        wb.outofcore.epoch_io(features, order)


def test_reads_are_direct_or_not(features: wb.outofcore.PartitionStore) -> None:
    with pytest.raises(ValueError, match="direct is 'no'; pass True, False or \"auto\""):
        wb.outofcore.PartitionBuffer(features, capacity=3, direct="no")  # type: ignore[arg-type]


def test_edges_by_nodes_are_refused(features: wb.outofcore.PartitionStore) -> None:
    with wb.outofcore.PartitionBuffer(features, capacity=4) as buffer:
        for state in buffer.epoch(ORDERS["resident"]):
            with pytest.raises(ValueError, match="pass a BucketOrder"):
                state.edges()


@pytest.mark.parametrize("sampler", [wb.NeighborSampler([2, 2]), wb.DenseSampler([2, 2]), wb.LaborSampler([2])])
def test_seeds_outside_the_buffer_are_refused(features: wb.outofcore.PartitionStore, sampler: Any) -> None:
    s = features.partition_rows
    with wb.outofcore.PartitionBuffer(features, capacity=3) as buffer:
        for state in buffer.epoch(by_hand([[0, 1, 2], [0, 1, 3]])):
            outside = 2 if state.number else 3
            batch = sampler.sample(state.graph, torch.tensor([0, s]))
            assert torch.isin(batch.node_ids // s, state.partitions).all()
            message = rf"seeds contains {outside * s + 1} of partition {outside}, but the buffer has"
            with pytest.raises(IndexError, match=message):
                sampler.sample(state.graph, torch.tensor([0, outside * s + 1]))
