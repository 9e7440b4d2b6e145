"""A partition store: what is built from a graph or a stream is what is read back, and bad input is refused first."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.strategies import examples
from workbench.core.errors import CapacityError
from workbench.outofcore import build_store

NODES, EDGES = 40, 300
SRC, DST = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))
GRAPH = wb.Graph.from_edges(SRC, DST, num_nodes=NODES)
X = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(0))


def only_state(store: wb.outofcore.PartitionStore) -> tuple[wb.Graph, Tensor, Tensor, Tensor]:
    """Graph, edges, their ids and all rows, of a state with all partitions."""
    p = store.num_partitions
    with wb.outofcore.PartitionBuffer(store, capacity=p) as buffer:
        [found] = [
            (state.graph, state.edges(), state.edge_ids(), state.rows.read(torch.arange(store.num_nodes)))
            for state in buffer.epoch(wb.outofcore.beta_order(p, p))
        ]
    return found


@examples(5)
@given(data=st.data())
def test_what_is_built_is_read_back(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 30))
    p = data.draw(st.integers(1, nodes))
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=80))
    src, dst = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).unbind(1)
    kind = torch.arange(len(src)) % 5 if data.draw(st.booleans()) else None
    weight = torch.arange(len(src)) / 7 if data.draw(st.booleans()) else None
    graph = wb.Graph.from_edges(src, dst, num_nodes=nodes, edge_type=kind, edge_weight=weight)
    x = torch.randn(nodes, data.draw(st.integers(1, 5)))
    train = torch.tensor(data.draw(st.lists(st.integers(0, nodes - 1), unique=True)), dtype=torch.int64)
    with TemporaryDirectory() as name:
        store = wb.outofcore.PartitionStore.build(
            f"{name}/store", graph, rows=x, num_partitions=p, train_idx=train, seed=7
        )
        found, edges, ids, rows = only_state(store)
        assert torch.equal(store.read(), rows)
    new = store.ids_of(torch.arange(nodes))
    assert torch.equal(store.node_ids[new], torch.arange(nodes)) and torch.equal(rows, x[store.node_ids])
    assert set(new[train].tolist()) == set(range(len(train)))  # in the first partitions
    assert store.num_train_partitions == -(-len(train) // store.partition_rows)
    expected = wb.Graph.from_edges(new[src], new[dst], num_nodes=nodes, edge_type=kind, edge_weight=weight)
    ours, theirs = forms(found), forms(expected)  # a row keeps the order of the caller's edges
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    pairs_of = torch.stack([new[src], new[dst]] + ([] if kind is None else [kind]), 1)
    assert torch.equal(ids.sort().values, torch.arange(len(src))) and torch.equal(edges, pairs_of[ids])
    part = pairs_of[:, :2] // store.partition_rows
    counts = (part[:, 0] * p + part[:, 1]).bincount(minlength=p * p)
    assert torch.equal(store.bucket_edges, counts.view(p, p))


def forms(graph: wb.Graph) -> dict[str, Tensor]:
    arrays = {"indptr": graph.indptr, "indices": graph.indices.long(), "edge_ids": graph.edge_ids}
    arrays |= {"edge_type": graph.edge_type, "edge_weight": graph.edge_weight}
    arrays["edge_ids"] = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.long()
    return {name: values for name, values in arrays.items() if values is not None}


def test_a_stream_gives_the_store_of_its_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_store, "CHUNK_EDGES", 64)
    chunks = [(SRC[i : i + 100], DST[i : i + 100].numpy()) for i in range(0, EDGES, 100)]
    options: dict[str, Any] = {"rows": X, "num_partitions": 5, "seed": 2}
    streamed = wb.outofcore.PartitionStore.build(tmp_path / "a", chunks, num_nodes=NODES, **options)
    GRAPH.save(tmp_path / "graph")
    mapped = wb.outofcore.PartitionStore.build(tmp_path / "b", wb.Graph.open(tmp_path / "graph"), **options)
    ours, theirs = forms(only_state(streamed)[0]), forms(only_state(mapped)[0])
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (tmp_path / "a" / "rows.bin").read_bytes() == (tmp_path / "b" / "rows.bin").read_bytes()
    tables = [json.loads((tmp_path / name / "table.json").read_text()) for name in "ab"]
    assert all(tables[0][name] == tables[1][name] for name in ("slots", "checksums"))


def test_learnt_rows_begin_with_draws_and_a_state_of_zeros(tmp_path: Path) -> None:
    init = wb.outofcore.LearntInit(64, std=0.5, seed=3)
    store = wb.outofcore.PartitionStore.build(tmp_path / "a", GRAPH, rows=init, num_partitions=4)
    again = wb.outofcore.PartitionStore.build(tmp_path / "b", GRAPH, rows=init, num_partitions=4)
    values = store.read()
    assert store.learnt and torch.equal(values, again.read()) and not store.read(state=True).any()
    assert 0.45 < float(values.std()) < 0.55 and abs(float(values.mean())) < 0.05
    assert len({tuple(row) for row in values.tolist()}) == NODES


def test_all_bits_of_a_seed_count(tmp_path: Path) -> None:
    def rows(seed: int) -> Tensor:
        init = wb.outofcore.LearntInit(8, std=1.0, seed=seed)
        store = wb.outofcore.PartitionStore.build(
            tmp_path / f"{seed}", GRAPH, rows=init, num_partitions=2, seed=0, overwrite=True
        )
        return store.read()

    for seed in (0, 1, 3, 2**32 - 1):  # the draws of stores that were built before
        drawn = [torch.Generator().manual_seed(seed * 0x9E3779B1 + partition) for partition in range(2)]
        assert torch.equal(rows(seed), torch.cat([torch.randn(NODES // 2, 8, generator=each) for each in drawn]))
    seeds = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**40, 2**62, 2**63 - 1, -1, -(2**32), -(2**63)]
    assert len({tuple(rows(seed).flatten().tolist()) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf")])
def test_standard_deviations_are_finite(std: float) -> None:
    with pytest.raises(ValueError, match=f"std is {std}; it must be at least 0 and finite"):
        wb.outofcore.LearntInit(8, std=std)


class Returning(wb.MemoryRows):
    """Rows of X that returns others."""

    def __init__(self, others: Tensor) -> None:
        super().__init__(X)
        self.others = others

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        return self.others[ids]


class ReadOnly:
    """The minimum that a training step needs."""

    def read(self, ids: Tensor) -> Tensor:
        return X[ids]


class Shrinking:
    """A stream with fewer, or other, edges when it is read again."""

    def __init__(self, *chunks: Tensor) -> None:
        self.chunks = list(chunks)

    def __iter__(self) -> Any:
        return iter([self.chunks.pop(0).unbind(0)])


BOTH = torch.stack([SRC, DST])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_partitions": 0}, ValueError, "num_partitions is 0"),
        ({"num_partitions": NODES + 1}, ValueError, "num_partitions is 41"),
        ({"rows": X[:-1]}, ValueError, "rows has 39 rows, but there are 40 nodes"),
        ({"rows": X.to(torch.complex64)}, (ValueError, TypeError), "complex64"),
        (
            {"rows": Returning(X.double())},
            ValueError,
            r"rows\.read returned \[10, 3\] torch\.float64 for 10 ids, but .* \[10, 3\] torch\.float32",
        ),
        ({"rows": Returning(X[:, :2])}, ValueError, r"rows\.read returned \[10, 2\] torch\.float32 for 10 ids"),
        ({"rows": Returning(X.repeat(1, 2))}, ValueError, r"rows\.read returned \[10, 6\] torch\.float32 for 10 ids"),
        ({"rows": ReadOnly()}, TypeError, "rows is a ReadOnly without row_shape, dtype, device, __len__"),
        ({"train_idx": torch.tensor([3, 3])}, ValueError, "3"),
        ({"train_idx": torch.tensor([NODES])}, IndexError, "40"),
        ({"edges": iter([(SRC, DST)]), "num_nodes": NODES}, ValueError, "can be read once"),
        ({"edges": [(SRC, DST)]}, ValueError, "num_nodes is None"),
        ({"edges": Shrinking(BOTH, BOTH[:, :-1]), "num_nodes": NODES}, ValueError, "edges were others"),
        ({"edges": Shrinking(BOTH, BOTH.flip(0)), "num_nodes": NODES}, ValueError, "edges were others"),
        ({"edges": Shrinking(BOTH[:, :0], BOTH), "num_nodes": NODES}, ValueError, "edges were others"),
        ({"edges": [(SRC, DST + 1)], "num_nodes": NODES}, IndexError, "40"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], error: Any, message: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"edges": GRAPH, "rows": X, "num_partitions": 4, **changes}
    with pytest.raises(error, match=message):
        wb.outofcore.PartitionStore.build(tmp_path / "store", arguments.pop("edges"), **arguments)
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_refused_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = type("Usage", (), {"free": 100})()
    monkeypatch.setattr(build_store.shutil, "disk_usage", lambda _: full)
    with pytest.raises(CapacityError, match=r"the store needs .* KiB, but .* has 100 B free"):
        wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X, num_partitions=4)
    assert not list(tmp_path.iterdir())


def test_only_a_store_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for overwrite, message in ((False, "exists; pass overwrite=True"), (True, "is not a partition store")):
        with pytest.raises(FileExistsError, match=message):
            wb.outofcore.PartitionStore.build(tmp_path / "mine", GRAPH, rows=X, num_partitions=4, overwrite=overwrite)
    wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X, num_partitions=4)
    again = wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X + 1, num_partitions=2, overwrite=True)
    assert again.num_partitions == 2 and torch.equal(again.read(), (X + 1)[again.node_ids])


def test_progress_and_an_interrupt_that_leaves_nothing(tmp_path: Path) -> None:
    seen: list[int] = []
    wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X, num_partitions=4, progress=seen.append)
    assert {EDGES, 2 * EDGES, NODES} <= set(seen)
    before = sorted(tmp_path.iterdir())
    for at in range(len(seen)):
        left = iter(range(at))

        def progress(_: int, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            wb.outofcore.PartitionStore.build(tmp_path / "other", GRAPH, rows=X, num_partitions=4, progress=progress)
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_memory_of_a_build_does_not_grow_with_edges_or_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.outofcore.build_memory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["file_bytes"] > 110_000_000
    assert found["peak_bytes"] is None or found["peak_bytes"] < 28_000_000
