"""Learnt rows trained through the partition buffer: with all partitions in it, in-memory training bit for bit."""

from inspect import getdoc
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb

NODES, DIM, RELATIONS, PARTITIONS = 45, 6, 3, 4
GENERATOR = torch.Generator().manual_seed(0)
SRC, DST = torch.randint(NODES, (2, 400), generator=GENERATOR)
RELATION = torch.randint(RELATIONS, (400,), generator=GENERATOR)
NEGATIVES = wb.links.Negatives(8, chunks=2, ends="both", by_degree=0.5, from_batch=True)
OPTIONS: dict[str, Any] = {"batch_size": 64, "negatives": NEGATIVES}
SAMPLERS: dict[str, wb.Sampler | None] = {"none": None, "sage": wb.DenseSampler([4], out_fanouts=[4])}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links") / "store"
    graph = wb.Graph.from_edges(SRC, DST, num_nodes=NODES, edge_type=RELATION)
    wb.outofcore.PartitionStore.build(
        folder, graph, rows=wb.outofcore.LearntInit(DIM, std=0.5), num_partitions=PARTITIONS
    )
    return folder


@pytest.fixture
def store(built: Path, tmp_path: Path) -> wb.outofcore.PartitionStore:
    """A copy, since training writes."""
    from shutil import copytree

    return wb.outofcore.PartitionStore.open(copytree(built, tmp_path / "store"))


def model_of(encoder: str) -> tuple[Any, wb.nn.Decoder, torch.optim.Optimizer]:
    torch.manual_seed(0)
    sage = wb.build_model("sage-mean", in_dim=DIM, hidden_dim=DIM, out_dim=DIM, num_layers=1)
    decoder = wb.nn.DistMult(DIM, num_relations=RELATIONS, inverse=True, std=0.5)
    model = sage if encoder == "sage" else None
    parameters = [*decoder.parameters(), *(sage.parameters() if model is not None else ())]
    return model, decoder, torch.optim.Adagrad(parameters, lr=0.1)


def train(batches: Any, encoder: str, rows_of: Any) -> list[Tensor]:
    """Losses and parameters."""
    model, decoder, optimizer = model_of(encoder)
    losses = []
    for state, _, pairs, mb in batches:
        losses.append(wb.link_step(model, decoder, pairs, mb, rows_of(state), wb.nn.softmax_pair_loss, optimizer))
    modules = [m for m in (model, decoder) if m is not None]
    return [torch.stack(losses), *(p.detach() for m in modules for p in m.parameters())]


def from_disk(store: wb.outofcore.PartitionStore, order: Any, encoder: str, **options: Any) -> list[Tensor]:
    buffer = wb.outofcore.PartitionBuffer(store, capacity=order.capacity)
    batches = wb.outofcore.edge_batches(buffer, order, sampler=SAMPLERS[encoder], epoch=0, **OPTIONS | options)
    return train(batches, encoder, lambda state: wb.LearnedRows(state.rows, state.state_rows, lr=0.2))


def test_ranks_of_rows_that_pass_through_the_buffer_by_the_documented_program(tmp_path: Path) -> None:
    """Also where the last partitions have no node: 6 nodes in 5 partitions are 2 each in the first three."""
    rows, triples = torch.arange(6 * DIM).sin().view(6, DIM), torch.tensor([[0, 1, 5], [4, 2, 3]])
    graph = wb.Graph.from_edges([0, 4], [5, 3], num_nodes=6)
    store = wb.outofcore.PartitionStore.build(tmp_path / "store", graph, rows=rows, num_partitions=5)
    assert [store.layout.nodes_of(part) for part in range(5)] == [2, 2, 2, 0, 0]
    _, decoder, _ = model_of("none")
    program, order = getdoc(wb.training.RowParts).partition("Args:")[0], wb.outofcore.beta_order(5, 2)  # type: ignore[union-attr]
    code = dedent("\n".join(line for line in program.splitlines() if line.startswith("    ")))
    code = code.replace("wb.training.rank_triples", "ranks = wb.training.rank_triples")
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        found = {"wb": wb, "torch": torch, "store": store, "buffer": buffer, "order": order}
        found |= {"decoder": decoder, "triples": triples}
        exec(code, found)
    assert torch.equal(found["ranks"], wb.training.rank_triples(decoder, store.read(), triples))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoder", SAMPLERS)
def test_all_partitions_in_the_buffer_equal_memory(store: wb.outofcore.PartitionStore, encoder: str) -> None:
    values, state = store.read(), torch.zeros(NODES, DIM)
    order = wb.outofcore.comet_order(PARTITIONS, PARTITIONS)
    with wb.outofcore.PartitionBuffer(store, capacity=PARTITIONS) as buffer:
        [(graph, edges)] = [(whole.graph, whole.edges()) for whole in buffer.epoch(order)]
    batches = wb.edge_batches(
        graph, edges[:, :2].T, relation=edges[:, 2], sampler=SAMPLERS[encoder], epoch=0, **OPTIONS
    )
    rows = wb.LearnedRows(values, state, lr=0.2)
    expected = train(((None, *batch) for batch in batches), encoder, lambda _: rows)
    found = from_disk(store, order, encoder)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    reopened = wb.outofcore.PartitionStore.open(store.folder)
    assert torch.equal(reopened.read(), values) and torch.equal(reopened.read(state=True), state)
    assert int((state != 0).any(1).sum()) > NODES // 2


@pytest.mark.parametrize("encoder", SAMPLERS)
def test_every_edge_once_and_all_rows_written_back(store: wb.outofcore.PartitionStore, encoder: str) -> None:
    """Replays the epoch in memory: the rows on disk are those of the same batches without a buffer."""
    values, state = store.read(), torch.zeros(NODES, DIM)
    order = wb.outofcore.comet_order(PARTITIONS, 2, num_groups=4)
    rows, trained = wb.LearnedRows(values, state, lr=0.2), []
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        batches = wb.outofcore.edge_batches(buffer, order, sampler=SAMPLERS[encoder], epoch=0, **OPTIONS)
        replayed = []
        for current, step, pairs, mb in batches:
            inside = torch.isin(mb.node_ids // store.partition_rows, current.partitions)
            assert inside.all()  # neighbours and negatives are in the buffer
            ends = store.node_ids[pairs.seeds[pairs.src]], pairs.relation, store.node_ids[pairs.seeds[pairs.dst]]
            trained.append(torch.stack([column for column in ends if column is not None], 1))
            replayed.append((None, step, pairs, mb))
    assert sorted(torch.cat(trained).tolist()) == sorted(torch.stack((SRC, RELATION, DST), 1).tolist())
    expected = train(replayed, encoder, lambda _: rows)
    found = from_disk(store, order, encoder)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(store.read(), values) and torch.equal(store.read(state=True), state)


def test_micro_batches_from_the_buffer(store: wb.outofcore.PartitionStore) -> None:
    model, decoder, optimizer = model_of("sage")
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        order = wb.outofcore.comet_order(PARTITIONS, 2, num_groups=4)
        for state, _, pairs, mb in wb.outofcore.edge_batches(
            buffer, order, sampler=SAMPLERS["sage"], epoch=0, **OPTIONS
        ):
            parts = pairs.split(torch.arange(pairs.num_pairs) % 3)
            rows = wb.LearnedRows(state.rows, state.state_rows, lr=0.2)
            assert wb.link_step(model, decoder, parts, mb, rows, wb.nn.softmax_pair_loss, optimizer).isfinite()
            break


@pytest.mark.parametrize(
    ("encoder", "negatives", "builds"),
    [
        ("none", NEGATIVES, False),
        ("none", None, False),
        ("none", wb.links.Negatives(8, chunks=2, by_degree=0.5), True),
        ("none", wb.links.Negatives(8, avoid_edges=True), True),
        ("sage", NEGATIVES, True),
    ],
)
def test_only_samplers_and_negatives_that_read_edges_build_a_graph(
    store: wb.outofcore.PartitionStore,
    encoder: str,
    negatives: wb.links.Negatives | None,
    builds: bool,
    monkeypatch: Any,
) -> None:
    import workbench.outofcore.buffer_state as module

    built, build = [], module.buffer_graph
    monkeypatch.setattr(module, "buffer_graph", lambda *args: built.append(args) or build(*args))
    order = wb.outofcore.comet_order(PARTITIONS, 2, num_groups=4)
    options = OPTIONS | {"negatives": negatives, "sampler": SAMPLERS[encoder], "epoch": 0}
    with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
        batches = sum(1 for _ in wb.outofcore.edge_batches(buffer, order, **options))
    assert batches > 0 and bool(built) == builds
