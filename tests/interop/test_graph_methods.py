"""Conversions of graphs as methods: the same graph comes back, and networkx agrees on neighbours and attributes."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from scipy import sparse

from tests.interop.exact import assert_fields_equal
from tests.strategies import graphs, random_graph
from workbench.core.conversions import BatchForms, GraphForms
from workbench.core.graph import Graph
from workbench.interop import CONVERSIONS

RICH = random_graph(12, 40, seed=1, edge_weight=torch.float32, num_edge_types=3)


def edges_of(graph: Graph) -> list[tuple[Any, ...]]:
    """Edges with their weights and types, in ascending order: (source, destination, weight, type)."""
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    columns = [graph.indices, dst, graph.edge_weight, graph.edge_type]
    return sorted(zip(*(column.tolist() for column in columns if column is not None), strict=True))


@given(graphs())
def test_scipy_and_networkx_keep_edges_weights_and_types(graph: Graph) -> None:
    graph = replace(graph, edge_weight=None if graph.edge_weight is None else graph.edge_weight.float())
    again = Graph.from_networkx(graph.to_networkx())
    assert again.num_nodes == graph.num_nodes and edges_of(again) == edges_of(graph)
    assert again.num_edges == 0 or (again.edge_weight is None) == (graph.edge_weight is None)
    again = Graph.from_scipy(graph.to_scipy(), weighted=graph.edge_weight is not None)
    assert edges_of(again) == edges_of(replace(graph, edge_type=None))


def test_pyg_and_dgl_keep_edges_and_their_order() -> None:
    for again in (Graph.from_pyg(RICH.to_pyg()), *from_dgl(RICH)):
        assert isinstance(again, Graph)
        assert_fields_equal(replace(again, indices=again.indices.to(RICH.indices.dtype)), RICH)


def from_dgl(graph: Graph) -> list[Graph]:
    try:
        import dgl  # noqa: F401
    except ImportError:
        return []
    return [Graph.from_dgl(graph.to_dgl())]


def test_pyg_gets_its_own_class_or_the_same_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pytest.importorskip("torch_geometric.data")
    assert isinstance(RICH.to_pyg(), data.Data) and RICH.to_pyg().num_nodes == 12
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    plain = RICH.to_pyg()
    assert isinstance(plain, SimpleNamespace)
    assert edges_of(Graph.from_pyg(plain)) == edges_of(RICH)


def test_networkx_has_the_same_neighbours_and_attributes() -> None:
    theirs = RICH.to_networkx()
    assert theirs.is_directed() and theirs.number_of_nodes() == 12
    for node in range(12):
        mine = RICH.indices[RICH.indptr[node] : RICH.indptr[node + 1]].tolist()
        assert sorted(mine) == sorted(src for src, _ in theirs.in_edges(node))
    assert RICH.edge_ids is not None and RICH.edge_weight is not None
    by_id = {data["edge_id"]: data["weight"] for *_, data in theirs.edges(data=True)}
    assert by_id == dict(zip(RICH.edge_ids.tolist(), RICH.edge_weight.tolist(), strict=True))


def test_parallel_edges_need_a_multigraph() -> None:
    assert type(Graph.from_edges([0, 0], [1, 2]).to_networkx()) is networkx.DiGraph
    twice = Graph.from_edges([0, 0], [1, 1]).to_networkx()
    assert type(twice) is networkx.MultiDiGraph and twice.number_of_edges() == 2
    assert Graph.from_networkx(twice).num_edges == 2


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.MultiGraph])
def test_undirected_edges_go_both_ways_and_self_loops_once(kind: Any) -> None:
    theirs = kind([(0, 1, {"weight": 0.5}), (2, 2, {"weight": 2.0}), (1, 2, {"weight": 3.0})])
    ours = Graph.from_networkx(theirs)
    assert edges_of(ours) == [(0, 1, 0.5), (1, 0, 0.5), (1, 2, 3.0), (2, 1, 3.0), (2, 2, 2.0)]
    assert edges_of(ours) == sorted((u, v, w) for u, v, w in theirs.to_directed().edges(data="weight"))
    assert ours.edge_ids is None
    if kind is networkx.MultiGraph:
        theirs.add_edge(0, 1, weight=7.0)
        assert edges_of(Graph.from_networkx(theirs)) == sorted(theirs.to_directed().edges(data="weight"))


def test_nodes_in_any_order_and_edge_ids_of_directed_graphs() -> None:
    theirs: Any = networkx.DiGraph([(2, 1), (0, 1), (2, 0), (1, 1)])
    for node in range(3):
        theirs.nodes[node]["node_type"] = 10 * node
    ours = Graph.from_networkx(theirs)
    assert ours.node_type is not None and ours.node_type.tolist() == [0, 10, 20]
    for position, (src, dst) in zip(ours.edge_positions(torch.arange(4)).tolist(), theirs.edges, strict=True):
        assert ours.indices[position] == src and ours.indptr[dst] <= position < ours.indptr[dst + 1]
    assert [(u, v) for u, v, *_ in edges_of(ours)] == sorted(theirs.edges)
    assert Graph.from_networkx(theirs, weight="capacity").edge_weight is None


def test_a_built_in_graph_samples_and_empty_graphs_convert() -> None:
    club = networkx.karate_club_graph()
    assert torch.equal(Graph.from_networkx(club).in_degrees(), torch.tensor([d for _, d in club.degree]))
    assert Graph.from_networkx(networkx.Graph()).num_nodes == 0
    assert Graph.from_edges([], [], num_nodes=3).to_networkx().number_of_nodes() == 3
    numpy_names = networkx.DiGraph(list(zip(np.arange(3), np.arange(1, 4), strict=True)))
    assert Graph.from_networkx(numpy_names).indices.tolist() == [0, 1, 2]
    integers = networkx.DiGraph([(0, 1, {"weight": 3})])
    weight = Graph.from_networkx(integers).edge_weight
    assert weight is not None and weight.dtype == torch.get_default_dtype() and weight.tolist() == [3.0]
    assert Graph.from_networkx(integers, weight=None).edge_weight is None


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (networkx.Graph([("a", "b")]), ValueError, r"a node 'a'; .* networkx\.convert_node_labels_to_integers\(graph"),
        (networkx.Graph([(1, 2)]), ValueError, "a node 2; the 2 nodes of a Graph are the numbers 0 to 1"),
        (networkx.Graph([(0, -1)]), ValueError, "a node -1"),
        (networkx.Graph([(0, 1.5)]), ValueError, r"a node 1\.5"),
        (
            networkx.Graph([(0, 1, {"weight": 1.0}), (1, 2)]),
            ValueError,
            r"1 of 2 edges have no attribute 'weight'; .* pass weight=None",
        ),
        (networkx.Graph([(0, 1, {"edge_type": 1}), (1, 2)]), ValueError, "1 of 2 edges have no attribute 'edge_type'"),
        (networkx.Graph([(0, 1, {"weight": "a"})]), TypeError, "attribute 'weight' of the edges is list, not a vector"),
        (networkx.Graph([(0, 1, {"weight": 1j})]), TypeError, "edge_weight"),
        (networkx.Graph([(0, 1, {"weight": np.nan})]), ValueError, "edge_weight contains nan"),
        (networkx.Graph([(0, 1, {"edge_type": 0.5})]), TypeError, "edge_type"),
        ([(0, 1)], TypeError, "graph is a list; pass a graph of networkx"),
    ],
)
def test_graphs_of_networkx_are_checked(graph: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Graph.from_networkx(graph)


def test_renumbered_names_are_kept() -> None:
    theirs: Any = networkx.DiGraph([("a", "b"), ("c", "b")])
    numbered = networkx.convert_node_labels_to_integers(theirs, label_attribute="name")
    ours = Graph.from_networkx(numbered)
    assert {(numbered.nodes[u]["name"], numbered.nodes[v]["name"]) for u, v in edges_of(ours)} == set(theirs.edges)


def test_methods_refuse_what_is_of_another_library() -> None:
    with pytest.raises(ValueError, match="pass a PyG Data of one node and edge type before ToSparseTensor"):
        Graph.from_pyg(SimpleNamespace(adj_t=object()))
    with pytest.raises(TypeError, match="pass a sparse one"):
        Graph.from_scipy(np.eye(2))
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        Graph.from_scipy(sparse.csr_array((2, 3)))


def test_every_conversion_of_a_record_is_registered() -> None:
    forms = {"Graph": GraphForms, "MiniBatch": BatchForms}
    methods = {f"{record}.{name}" for record, form in forms.items() for name in vars(form) if name[0] != "_"}
    assert methods == set(CONVERSIONS)
