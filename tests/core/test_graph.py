"""Graphs as records: checks, edges and their positions, devices, folders."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from tests.strategies import edges_by_destination, graphs, random_edges, random_graph
from workbench.core.errors import CorruptFileError
from workbench.core.graph import Graph
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.meter.peak import measure_peak


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": torch.tensor([1, 2, 3])}, "indptr runs from 1 to 3"),
        ({"indptr": torch.tensor([0, 2, 4])}, "indptr runs from 0 to 4"),
        ({"indptr": torch.empty(0, dtype=torch.int64)}, "indptr is empty"),
        ({"edge_weight": torch.zeros(3, 2)}, r"edge_weight has shape \(3, 2\)"),
        ({"indptr": torch.tensor([0, 2, 3], dtype=torch.int32)}, "indptr must be a tensor of torch.int64"),
        ({"indices": torch.tensor([0.0, 1.0, 0.0])}, "indices must be a tensor"),
        ({"indices": torch.tensor([[0, 1, 0]])}, r"indices has shape \(1, 3\)"),
        ({"edge_ids": torch.arange(2)}, "edge_ids has shape"),
    ],
)
def test_construction_rejects(change, message):
    fields = {"indptr": torch.tensor([0, 2, 3]), "indices": torch.tensor([0, 1, 0])} | change
    with pytest.raises((TypeError, ValueError), match=message):
        Graph(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": torch.tensor([0, 4, 3])}, "indptr must be non-decreasing, but it decreases after row 1"),
        ({"indices": torch.tensor([0, 2, 0])}, r"indices contains 2; sources must be in \[0, 2\)"),
        ({"indices": torch.tensor([0, -1, 0])}, "indices contains -1"),
        ({"edge_ids": torch.tensor([0, 1, 1])}, "edge_ids contains 1 more than once"),
        ({"edge_weight": torch.tensor([0.0, float("inf"), 1.0])}, "edge_weight contains inf at position 1"),
    ],
)
def test_validate_checks_everything(change, message):
    fields = {"indptr": torch.tensor([0, 2, 3]), "indices": torch.tensor([0, 1, 0])} | change
    with pytest.raises((IndexError, ValueError), match=message):
        Graph(**fields).validate()


@given(graphs(), st.randoms(use_true_random=False))
def test_find_edges_and_positions(graph, rng):
    pairs = [(rng.randrange(graph.num_nodes), rng.randrange(graph.num_nodes)) for _ in range(6)] * 2
    src, dst = (torch.tensor(ids) for ids in zip(*pairs, strict=True))
    ids = list(range(graph.num_edges)) if graph.edge_ids is None else graph.edge_ids.tolist()
    bounds, sources = graph.indptr.tolist(), graph.indices.tolist()
    expected = [p for s, d in pairs for p in range(bounds[d], bounds[d + 1]) if sources[p] == s]
    edge_ids = graph.find_edges(src, dst)
    assert edge_ids.tolist() == [ids[p] for p in expected]
    assert graph.edge_positions(edge_ids).tolist() == expected


def test_find_edges_rejects():
    graph = random_graph(4, 8)
    with pytest.raises(IndexError, match=r"dst contains 4; ids must be in \[0, 4\)"):
        graph.find_edges(torch.tensor([0]), torch.tensor([4]))
    with pytest.raises(ValueError, match="dst has shape"):
        graph.find_edges(torch.tensor([0]), torch.tensor([1, 2]))


def test_edge_positions_rejects_unknown_ids():
    graph = Graph(torch.tensor([0, 2]), torch.tensor([0, 0]), edge_ids=torch.tensor([5, 2]))
    assert graph.edge_positions(torch.tensor([2, 5, 5], dtype=torch.int32)).tolist() == [1, 0, 0]
    with pytest.raises(IndexError, match="contains 3, which is not an edge of this graph"):
        graph.edge_positions(torch.tensor([2, 3]))
    with pytest.raises(IndexError, match="contains 6"):
        graph.edge_positions(torch.tensor([6]))
    sparse = Graph(torch.tensor([0, 2]), torch.tensor([0, 0]), edge_ids=torch.tensor([2**60, 2**40]))
    assert sparse.edge_positions(torch.tensor([2**40, 2**60])).tolist() == [1, 0]
    for unknown in (6, 2**40 + 1, 2**60 + 1):
        with pytest.raises(IndexError, match=f"contains {unknown}, which is not an edge of this graph"):
            sparse.edge_positions(torch.tensor([unknown]))
    with pytest.raises(IndexError, match="contains 0, which is not an edge"):
        Graph(torch.tensor([0]), torch.tensor([0])[:0], edge_ids=torch.tensor([0])[:0]).edge_positions(
            torch.tensor([0])
        )


def test_memory_of_edge_positions_does_not_grow_with_the_ids():
    num_edges = 50_000
    shuffled = torch.randperm(num_edges, generator=torch.Generator().manual_seed(0))
    for ids in (shuffled, shuffled * 2**20, shuffled + 2**40):
        graph = Graph(torch.tensor([0, num_edges]), torch.zeros(num_edges, dtype=torch.int32), edge_ids=ids)
        wanted, found = ids[::1000], []
        peak_bytes = measure_peak(lambda g=graph, w=wanted, f=found: f.append(g.edge_positions(w)))
        assert found[0].tolist() == list(range(0, num_edges, 1000))
        assert peak_bytes <= 20 * num_edges


def test_to_moves_every_array_and_keeps_shared_storage():
    graph = random_graph(edge_weight=torch.float32, num_edge_types=2, num_node_types=2)
    moved = graph.to("meta")
    assert all(t is not None and t.device.type == "meta" for t in moved._tensors().values())
    assert moved.device.type == "meta"
    assert graph.nbytes == sum(t.numel() * t.element_size() for t in graph._tensors().values() if t is not None)


def test_html_shows_sizes_and_degrees():
    html = Graph.from_edges([1, 2, 1], [0, 0, 1])._repr_html_()
    assert "<th>mean in-degree</th><td>1.00</td>" in html
    assert "<th>largest in-degree</th><td>2</td>" in html
    assert "<td>0</td>" in Graph.from_edges([], [])._repr_html_()


def test_open_checks_indptr(tmp_path):
    """Opening rejects a graph whose offsets decrease: kernels would read outside the mapped file."""
    valid = random_graph(4, 8)
    decreasing = Graph(torch.tensor([0, 8, 2, 4, 8]), valid.indices)
    decreasing.save(tmp_path / "graph")
    with pytest.raises(CorruptFileError, match="non-decreasing, but it decreases after row 1, from 8 to 2"):
        Graph.open(tmp_path / "graph")


edge_lists = st.tuples(st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**16))


def rows_of(graph: Graph) -> list[list[int]]:
    bounds = graph.indptr.tolist()
    return [graph.indices[lo:hi].tolist() for lo, hi in itertools.pairwise(bounds)]


def undirected_weights(src: list[int], dst: list[int], weight: list[float]) -> dict[tuple[int, int], float]:
    merged: dict[tuple[int, int], float] = {}
    for s, d, w in zip(src, dst, weight, strict=True):
        for pair in {(s, d), (d, s)}:
            merged[pair] = merged.get(pair, 0.0) + w
    return merged


@given(edge_lists, st.sampled_from((torch.int32, torch.int64)))
def test_from_edges_keeps_callers_order(sizes, dtype):
    src, dst = random_edges(*sizes)
    edge_type = [s % 3 for s in src]
    graph = Graph.from_edges(
        torch.tensor(src, dtype=dtype),
        torch.tensor(dst, dtype=dtype),
        num_nodes=sizes[0],
        edge_weight=torch.tensor(src, dtype=torch.float64),
        edge_type=torch.tensor(edge_type, dtype=torch.int64),
    ).validate()
    flat = [edge for row in edges_by_destination(sizes[0], src, dst) for edge in row]
    ids = list(range(len(src))) if graph.edge_ids is None else graph.edge_ids.tolist()
    assert graph.indices.tolist() == [s for s, _, _ in flat]
    assert ids == [e for _, _, e in flat]
    assert (graph.edge_ids is None) == (dst == sorted(dst))
    assert graph.edge_weight is not None
    assert graph.edge_type is not None
    assert graph.edge_weight.tolist() == [src[e] for e in ids]
    assert graph.edge_type.tolist() == [edge_type[e] for e in ids]
    assert graph.in_degrees().tolist() == [dst.count(v) for v in range(sizes[0])]


@given(edge_lists)
def test_undirected_merges_and_sums(sizes):
    src, dst = random_edges(*sizes)
    weight = [(-1) ** e * (e + 1) / 8 for e in range(len(src))]
    graph = Graph.from_edges(src, dst, num_nodes=sizes[0], undirected=True, edge_weight=np.array(weight)).validate()
    expected = undirected_weights(src, dst, weight)
    assert rows_of(graph) == [sorted(s for s, d in expected if d == v) for v in range(sizes[0])]
    edge_ids = {(s, d): 0.0 for d, row in enumerate(rows_of(graph)) for s in row}
    assert graph.edge_weight is not None
    assert dict(zip(edge_ids, graph.edge_weight.tolist(), strict=True)) == expected
    assert graph.edge_ids is None
    plain = Graph.from_edges(src, dst, num_nodes=sizes[0], undirected=True)
    assert rows_of(plain) == rows_of(graph)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_undirected_sums_half_precision_in_float32(dtype):
    weight = torch.full((300,), 1.0, dtype=dtype)  # bfloat16 sums of ones stop at 256
    graph = Graph.from_edges(
        torch.zeros(300, dtype=torch.int64), torch.ones(300, dtype=torch.int64), undirected=True, edge_weight=weight
    )
    assert graph.edge_weight is not None
    assert graph.edge_weight.dtype == dtype
    assert graph.edge_weight.tolist() == [300.0, 300.0]


def test_ids_are_int32_and_copied():
    src, dst = torch.tensor([1, 0], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    graph = Graph.from_edges(src, dst)
    src[0] = 7
    assert graph.indices.dtype == torch.int32
    assert graph.indices.tolist() == [1, 0]


def test_read_only_array_is_accepted_without_warning():
    src = np.array([0, 1])
    src.flags.writeable = False
    assert Graph.from_edges(src, src[::-1]).num_edges == 2


@pytest.mark.parametrize("undirected", [False, True])
def test_same_graph_for_any_number_of_threads(undirected):
    src = torch.randint(0, 3000, (400_000,), generator=torch.Generator().manual_seed(0))
    dst = (src * 7 + torch.arange(400_000)) % 3000
    weight, before = torch.rand(400_000), get_num_threads()
    results = []
    try:
        for threads in (1, 2, 7):
            set_num_threads(threads)
            results.append(Graph.from_edges(src, dst, undirected=undirected, edge_weight=weight))
    finally:
        set_num_threads(before)
    for other in results[1:]:
        for name, tensor in results[0]._tensors().items():
            assert tensor is None or torch.equal(tensor, getattr(other, name)), name


@pytest.mark.parametrize("undirected", [False, True])
def test_no_edges_and_no_nodes(undirected):
    assert repr(Graph.from_edges([], [], undirected=undirected)).startswith("Graph(0 nodes, 0 edges")
    assert Graph.from_edges([], [], num_nodes=3, undirected=undirected).validate().in_degrees().tolist() == [0, 0, 0]
    typed: Any = Graph.from_edges([], [], edge_type=[], node_type=[], edge_weight=[], undirected=undirected).validate()
    assert typed.edge_type.dtype == typed.node_type.dtype == torch.int64 and typed.edge_weight.is_floating_point()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"src": [0.5], "dst": [0]}, TypeError, r"src must be an int64 or int32 tensor, not torch.float32; convert"),
        (
            {"src": ["a"], "dst": [0]},
            TypeError,
            r"src is list, not a vector of numbers .*; pass a tensor, an array or a l",
        ),
        ({"src": object(), "dst": [0]}, TypeError, r"src is object, not a vector"),
        ({"src": torch.tensor([True]), "dst": [0]}, TypeError, r"src must be .* not torch.bool; convert a mask"),
        (
            {"src": [0], "dst": [1], "num_nodes": 2**62},
            MemoryError,
            r"a graph of .* nodes needs .* is free; number the",
        ),
        ({"src": [0], "dst": [2**62]}, MemoryError, r"a graph of 4,611,.* nodes needs"),
        ({"src": [0], "dst": [-3]}, IndexError, r"dst contains -3"),
        ({"src": [0, 9], "dst": [0, 1], "num_nodes": 5}, IndexError, r"node 9, but num_nodes is 5; pass num_nodes=10"),
        ({"src": [0, 1], "dst": [0]}, ValueError, r"src has 2 ids, but dst has 1"),
        ({"src": [[0]], "dst": [[0]]}, ValueError, r"src must be a vector, not of shape \(1, 1\)"),
        ({"src": [0], "dst": [0], "num_nodes": -1}, ValueError, r"num_nodes is -1"),
        (
            {"src": [0], "dst": [0], "edge_weight": [float("nan")]},
            ValueError,
            r"edge_weight contains nan at position 0",
        ),
        ({"src": [0], "dst": [0], "edge_weight": [1.0, 2.0]}, ValueError, r"edge_weight has shape \(2,\)"),
        ({"src": [0], "dst": [0], "edge_weight": [1]}, TypeError, r"edge_weight must be a tensor of torch.float32"),
        ({"src": [0], "dst": [0], "node_type": [1, 2]}, ValueError, r"node_type has shape \(2,\)"),
        ({"src": [0], "dst": [0], "undirected": "yes"}, ValueError, r"undirected is 'yes'; it must be False, True or"),
        ({"src": [0], "dst": [0], "num_edge_types": 2}, ValueError, r"num_edge_types is 2, but edge_type is None"),
        (
            {"src": [0], "dst": [0], "edge_type": [-1], "undirected": True},
            IndexError,
            r"contains -1; types can't be negative",
        ),
        (
            {"src": [0], "dst": [0], "edge_type": [3], "num_edge_types": 3},
            IndexError,
            r"is 3; pass 4",
        ),
        (
            {"src": [0], "dst": [0], "edge_type": [2**62], "undirected": True},
            ValueError,
            r"exceed 63 bits; number the types",
        ),
    ],
)
def test_from_edges_rejects(arguments, error, message):
    with pytest.raises(error, match=message):
        Graph.from_edges(**arguments)


def typed_edges_of(graph: Graph) -> list[tuple[int, int, int | None]]:
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees()).tolist()
    types = [None] * graph.num_edges if graph.edge_type is None else graph.edge_type.tolist()
    return list(zip(graph.indices.tolist(), dst, types, strict=True))


@given(edge_lists, st.booleans(), st.sampled_from((None, 5)))
def test_multi_numbers_the_reverse_of_every_edge(sizes, typed, num_types):
    src, dst = random_edges(*sizes)
    count = len(src)
    types = [s % 3 for s in src] if typed else None
    reverse = num_types or 1 + max(types or [0])
    graph = Graph.from_edges(
        src,
        dst,
        num_nodes=sizes[0],
        undirected="multi",
        edge_type=types if not typed else torch.tensor(types, dtype=torch.uint8),
        num_edge_types=num_types if typed else None,
        edge_weight=torch.arange(count) + 0.5,
    ).validate()
    ids = list(range(2 * count)) if graph.edge_ids is None else graph.edge_ids.tolist()
    edges = dict(zip(ids, typed_edges_of(graph), strict=True))
    for e, (s, d) in enumerate(zip(src, dst, strict=True)):
        r = None if types is None else types[e]
        assert edges[e] == (s, d, r)
        assert edges[e + count] == (d, s, None if r is None else r + reverse)
    assert graph.edge_weight is not None and graph.edge_weight.tolist() == [e % count + 0.5 for e in ids]
    rows = edges_by_destination(sizes[0], src + dst, dst + src)
    assert ids == [e for row in rows for _, _, e in row]


@given(edge_lists, st.sampled_from((None, 5)))
def test_undirected_merges_typed_edges_of_one_type(sizes, num_types):
    src, dst = random_edges(*sizes)
    types = [(s * d) % 3 for s, d in zip(src, dst, strict=True)]
    reverse = num_types or 1 + max(types, default=0)
    expected: dict[tuple[int, int, int], float] = {}
    for e, (s, d, r) in enumerate(zip(src, dst, types, strict=True)):
        for edge in ((s, d, r), (d, s, r + reverse)):
            expected[edge] = expected.get(edge, 0.0) + e / 8
    graph = Graph.from_edges(
        src,
        dst,
        num_nodes=sizes[0],
        undirected=True,
        edge_type=torch.tensor(types, dtype=torch.int16),
        num_edge_types=num_types,
        edge_weight=torch.arange(len(src)) / 8,
    ).validate()
    assert graph.edge_type is not None and graph.edge_type.dtype == torch.int16 and graph.edge_ids is None
    assert typed_edges_of(graph) == sorted(expected, key=lambda edge: (edge[1], edge[0], edge[2]))
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [expected[edge] for edge in typed_edges_of(graph)]  # type: ignore[index]


def test_types_of_reverse_edges_outgrow_a_narrow_dtype():
    types = torch.tensor([200], dtype=torch.uint8)
    for undirected in (True, "multi"):
        graph = Graph.from_edges([0], [1], undirected=undirected, edge_type=types)
        assert typed_edges_of(graph) == [(1, 0, 401), (0, 1, 200)]
