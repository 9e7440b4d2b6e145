"""Precomputed aggregates equal those of full neighbourhoods, whatever the chunks, stores and dtypes."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import workbench as wb
from tests.features.stores import on_disk
from tests.strategies import random_graph
from workbench.core.errors import CapacityError
from workbench.macrobatch import aggregation_cache as module
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN

NODES, WIDTH = 40, 5
PLAIN = random_graph(NODES, 200, seed=3)
WEIGHTED = random_graph(NODES, 200, seed=3, edge_weight=torch.float64)
X = torch.linspace(-9, 9, NODES * WIDTH, dtype=torch.float64).sin().view(NODES, WIDTH)
KINDS = ("sage-mean", "sage-gcn", "gcn", "gin")
ALL = torch.arange(NODES)


@cache
def by_hand(graph: wb.Graph, kind: str) -> Tensor:
    """The definition with a dense matrix."""
    adjacency = torch.zeros(NODES, NODES, dtype=torch.float64)
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    ones = adjacency.clone()
    for node, (start, end) in enumerate(graph.indptr.unfold(0, 2, 1).tolist()):
        for edge in range(start, end):
            adjacency[node, int(graph.indices[edge])] += float(weight[edge])
            ones[node, int(graph.indices[edge])] += 1
    degrees, out = ones.sum(1).clamp(min=1), ones.sum(0).clamp(min=1)
    if kind == "gin":
        return adjacency @ X
    if kind == "gcn-both":
        return adjacency / (degrees[:, None] * out).sqrt() @ X
    if kind == "sage-gcn":
        return (adjacency @ X + X) / (ones.sum(1) + 1)[:, None]
    return adjacency @ X / degrees[:, None]


def new_model(kind: str) -> GNN:
    return wb.build_model(kind, in_dim=WIDTH, hidden_dim=4, out_dim=3).double()


@pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", [*KINDS, "gcn-both"])
def test_aggregates_equal_the_definition_for_any_chunks(kind: str, graph: wb.Graph) -> None:
    expected = by_hand(graph, kind)
    assert int(graph.in_degrees().min()) == 0 < 20 < int(graph.in_degrees().max()), "hubs and nodes without edges"
    for x in (X, wb.MemoryRows(X)):
        for chunk_bytes in (800, 4000, "1MiB"):
            rows = wb.macrobatch.aggregate_rows(graph, x, kind=kind, chunk_bytes=chunk_bytes).read(ALL)
            assert float((rows - expected).abs().max()) <= 1e-12, chunk_bytes


def test_one_row_at_a_time() -> None:
    rows = wb.macrobatch.aggregate_rows(PLAIN, X, kind="sage-gcn", chunk_bytes=1).read(ALL)
    assert float((rows - by_hand(PLAIN, "sage-gcn")).abs().max()) <= 1e-12


STORES: dict[str, Callable[[Path], Any]] = {
    "columns": lambda folder: X.T.contiguous().T,
    "array": lambda folder: X.numpy(),
    "mapped": lambda folder: wb.MappedRows.create(folder / "x", X),
    "disk": lambda folder: on_disk(X, folder, False),
    "cached": lambda folder: wb.CachedRows(X, 7),
}


@pytest.mark.parametrize("name", STORES)
def test_any_store_is_a_source(name: str, tmp_path: Path) -> None:
    rows = wb.macrobatch.aggregate_rows(WEIGHTED, STORES[name](tmp_path), kind="sage-gcn", chunk_bytes=9000).read(ALL)
    assert float((rows - by_hand(WEIGHTED, "sage-gcn")).abs().max()) <= 1e-12


@pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_models_first_layer_computes_them(kind: str, graph: wb.Graph) -> None:
    model, whole = new_model(kind), wb.FullNeighborSampler(1).sample(graph, ALL)
    layer: Any = model.layers[0]
    with torch.no_grad():
        expected = layer.aggregate(whole.blocks[0], X)
    assert float((wb.macrobatch.aggregate_rows(graph, X, model=model).read(ALL) - expected).abs().max()) <= 1e-12


def test_symmetric_normalisation_is_that_of_a_block_of_the_whole_graph() -> None:
    whole, layer = wb.FullNeighborSampler(1).sample(WEIGHTED, ALL), GCNLayer(WIDTH, 3, norm="both")
    rows = wb.macrobatch.aggregate_rows(WEIGHTED, X, kind="gcn-both", chunk_bytes=500).read(ALL)
    assert float((rows - layer.aggregate(whole.blocks[0], X)).abs().max()) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_are_made_in_the_stated_dtype(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    exact = wb.macrobatch.aggregate_rows(PLAIN, x.double(), kind="gin").read(ALL)
    for sum_dtype, used in ((None, torch.float32), (torch.float64, torch.float64)):
        rows = wb.macrobatch.aggregate_rows(PLAIN, x, kind="gin", chunk_bytes=700, sum_dtype=sum_dtype).read(ALL)
        assert rows.dtype == dtype
        slack = float(exact.abs().max()) * (torch.finfo(dtype).eps + 300 * torch.finfo(used).eps)
        assert float((rows.double() - exact).abs().max()) <= slack
    with pytest.raises(ValueError, match=r"sum_dtype is torch\.float16; pass torch\.float32"):
        wb.macrobatch.aggregate_rows(PLAIN, x, kind="gin", sum_dtype=torch.float16)


def test_half_precision_sums_would_lose_their_addends() -> None:
    star = wb.Graph.from_edges(torch.arange(1, 5000), torch.zeros(4999, dtype=torch.int64), num_nodes=5000)
    rows = wb.macrobatch.aggregate_rows(star, torch.ones(5000, 1, dtype=torch.float16), kind="gin", chunk_bytes=9000)
    assert float(rows.read(torch.tensor([0]))) == 5000.0  # 4999 rounded; a sum in float16 ends at 2048


def test_a_folder_keeps_them_as_mapped_rows(tmp_path: Path) -> None:
    traffic = wb.Traffic()
    options = {"kind": "gcn", "folder": tmp_path / "a" / "rows", "chunk_bytes": 900, "traffic": traffic}
    rows = wb.macrobatch.aggregate_rows(PLAIN, X, **options)
    assert isinstance(rows, wb.MappedRows) and torch.equal(rows.read(ALL), wb.MappedRows(tmp_path / "a/rows").read(ALL))
    assert float((rows.read(ALL) - by_hand(PLAIN, "gcn")).abs().max()) <= 1e-12
    assert traffic.row()["disk_rows"] == 2 * NODES
    with pytest.raises(FileExistsError, match="overwrite=True"):
        wb.macrobatch.aggregate_rows(PLAIN, X, **options)
    assert len(wb.macrobatch.aggregate_rows(PLAIN, X, **options, overwrite=True)) == NODES


class Watched:
    """A store that remembers how many rows each read asks for."""

    row_shape, dtype, device = (WIDTH,), torch.float64, torch.device("cpu")

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return NODES

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        self.reads.append(len(ids))
        assert len(ids.unique()) == len(ids)
        return X[ids]


def test_pieces_are_bounded_and_progress_counts_edges() -> None:
    store, seen = Watched(), []
    wb.macrobatch.aggregate_rows(PLAIN, store, kind="gin", chunk_bytes=2 * 88 * 9, progress=seen.append)
    assert max(store.reads) == 9 and len(store.reads) == len(seen) > 20  # 88 bytes per source: a row and six numbers
    assert seen == sorted(seen) and seen[-1] == PLAIN.num_edges


def test_memory_is_bounded_by_the_chunk(tmp_path: Path) -> None:
    edges = torch.randint(1500, (2, 9000), generator=torch.Generator().manual_seed(0))
    graph = wb.Graph.from_edges(*edges, num_nodes=1500)
    x = wb.MemoryRows(torch.ones(1500, 64))  # 384,000 bytes; the rows of all edges are 2.3 MB
    peaks = {}
    for size in (100_000, 200_000):
        options = {"kind": "sage-mean", "chunk_bytes": size, "folder": tmp_path / "rows", "overwrite": True}
        peaks[size] = wb.measure_peak(lambda options=options: wb.macrobatch.aggregate_rows(graph, x, **options))
    assert all(peak <= size + 40_000 for size, peak in peaks.items()), peaks  # with 12,000 bytes of destinations
    assert peaks[200_000] > 1.4 * peaks[100_000]


def test_a_normaliser_that_depends_on_the_block_is_refused_by_name() -> None:
    model = GNN([GCNLayer(WIDTH, 3, norm="both")], [], nn.ReLU(), [])
    with pytest.raises(ValueError, match=r"GCNLayer\(5, 3, norm='both'\).*in the sampled block.*kind=\"gcn-both\""):
        wb.macrobatch.aggregate_rows(PLAIN, X, model=model)
    model = GNN([GCNLayer(WIDTH, 3, norm="none")], [], nn.ReLU(), [])
    assert (
        float((wb.macrobatch.aggregate_rows(PLAIN, X, model=model).read(ALL) - by_hand(PLAIN, "gin")).abs().max())
        <= 1e-12
    )


@pytest.mark.parametrize("kind", ["sage-pool", "sage-lstm", "gat"])
def test_aggregates_with_parameters_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="use sage-mean, sage-gcn, gcn or gin, or sample all layers"):
        wb.macrobatch.aggregate_rows(PLAIN, X, model=new_model(kind))


def test_bad_arguments_are_refused_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(graph: Any = PLAIN, x: Any = X, **options: Any) -> Any:
        return wb.macrobatch.aggregate_rows(graph, x, **{"kind": "gin", **options})

    owned = wb.sampling.OwnedGraph.of(PLAIN, ALL % 2, 1)
    cases: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "neither model nor kind given", lambda: call(kind=None)),
        (ValueError, "both model and kind given", lambda: call(model=new_model("gin"))),
        (ValueError, "kind 'mean' is not known; choose from gcn, gcn-both", lambda: call(kind="mean")),
        (TypeError, "pass a model of build_model, or kind=", lambda: call(kind=None, model=nn.Linear(5, 3))),
        (TypeError, "graph is a Tensor; pass a Graph", lambda: call(X)),
        (IndexError, "x has 39 rows", lambda: call(x=X[1:])),
        (ValueError, r"shape \(\) and dtype torch.float64", lambda: call(x=X[:, 0])),
        (ValueError, "dtype torch.int64", lambda: call(x=X.long())),
        (ValueError, "x requires a gradient", lambda: call(x=X.clone().requires_grad_())),
        (ValueError, "chunk_bytes is 0", lambda: call(chunk_bytes=0)),
        (ValueError, "the part of rank 1 of 2, but this is rank 0 of 1", lambda: call(owned)),
    ]
    for error, text, run in cases:
        with pytest.raises(error, match=text):
            run()
    bad = wb.Graph(PLAIN.indptr, PLAIN.indices.clone().index_fill_(0, torch.tensor([7]), NODES))
    with pytest.raises(IndexError, match="contains 40"):
        call(bad)
    monkeypatch.setattr(
        module, "check_fits", lambda name, size, remedy: (_ for _ in ()).throw(CapacityError(f"{name}; {remedy}"))
    )
    with pytest.raises(CapacityError, match="aggregates of 40 nodes; pass folder="):
        call()
    assert len(call(folder=tmp_path / "rows")) == NODES  # pyright: ignore[reportArgumentType]


def test_a_graph_without_nodes_or_edges(tmp_path: Path) -> None:
    none = wb.Graph(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
    assert len(wb.macrobatch.aggregate_rows(none, X[:0], kind="gin")) == 0
    assert len(wb.macrobatch.aggregate_rows(none, X[:0], kind="sage-gcn", folder=tmp_path / "rows")) == 0
    alone = wb.Graph(torch.zeros(NODES + 1, dtype=torch.int64), none.indices)
    assert torch.equal(wb.macrobatch.aggregate_rows(alone, X, kind="sage-gcn").read(ALL), X)


def test_one_rank_owns_all() -> None:
    owned = wb.sampling.OwnedGraph.of(PLAIN, torch.zeros(NODES, dtype=torch.int64), 0)
    rows = wb.macrobatch.aggregate_rows(
        owned, wb.distributed.OwnedRows.of(X, owned.owner), kind="gcn-both", chunk_bytes=800
    )
    assert isinstance(rows, wb.distributed.OwnedRows)
    assert float((rows.read(ALL) - by_hand(PLAIN, "gcn-both")).abs().max()) <= 1e-12
