"""Conversions to and from networkx: graphs whose nodes are the numbers 0 to n − 1."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_type
from workbench.core.graph import Graph, as_vector


def graph_from_networkx(graph: Any, *, weight: str | None = "weight") -> Graph:
    """Convert a graph of networkx, directed or not: `Graph.from_networkx`."""
    import networkx

    check_type("graph", graph, networkx.Graph, "pass a graph of networkx")
    num_nodes = _check_names(graph)
    edges = list(graph.edges(data=True))
    ends = torch.tensor([(src, dst) for src, dst, _ in edges], dtype=torch.int64).reshape(-1, 2)
    columns = {
        "edge_weight": None if weight is None else _column("edges", weight, (data for *_, data in edges)),
        "edge_type": _column("edges", "edge_type", (data for *_, data in edges)),
    }
    values: dict[str, Any] = {name: value for name, value in columns.items() if value is not None}
    if "edge_weight" in values and not values["edge_weight"].is_complex():
        values["edge_weight"] = values["edge_weight"].to(torch.get_default_dtype())
    if not graph.is_directed():
        back = (ends[:, 0] != ends[:, 1]).nonzero()[:, 0]  # a self loop is its own reverse
        ends = torch.cat([ends, ends[back].flip(1)])
        values = {name: torch.cat([value, value[back]]) for name, value in values.items()}
    node_type = _column("nodes", "node_type", (graph.nodes[node] for node in range(num_nodes)))
    built = Graph.from_edges(ends[:, 0], ends[:, 1], num_nodes=num_nodes, node_type=node_type, **values)
    return built if graph.is_directed() else replace(built, edge_ids=None)  # which are no positions in graph.edges


def _check_names(graph: Any) -> int:
    """Check that the nodes are the numbers from 0, and return how many there are."""
    count = graph.number_of_nodes()
    other = next((node for node in graph if not isinstance(node, int | np.integer) or not 0 <= node < count), None)
    if other is not None:
        raise ValueError(
            f"the networkx graph has a node {other!r}; the {count} nodes of a Graph are the numbers 0 to {count - 1}. "
            'Number them with networkx.convert_node_labels_to_integers(graph, label_attribute="name"), which keeps '
            "the names in the node data"
        )
    return count


def _column(kind: str, name: str, rows: Iterable[Mapping[str, Any]]) -> Tensor | None:
    """An attribute of all edges or nodes as a tensor; None if none has it."""
    values: Any = [row.get(name) for row in rows]
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None
    if missing:
        raise ValueError(
            f"{missing} of {len(values)} {kind} have no attribute {name!r}; set it for all of them, or remove it"
            + " (for weights, pass weight=None)" * (kind == "edges" and name != "edge_type")
        )
    return as_vector(f"attribute {name!r} of the {kind}", values)


def graph_to_networkx(graph: Graph) -> Any:
    """Convert a graph to a `networkx.DiGraph`, or to a `MultiDiGraph` if it has parallel edges."""
    import networkx

    graph = graph.to("cpu")
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees(), output_size=graph.num_edges)
    order = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.argsort()
    src, dst = graph.indices[order].tolist(), dst[order].tolist()
    parallel = len(set(zip(src, dst, strict=True))) < len(src)
    out = networkx.MultiDiGraph() if parallel else networkx.DiGraph()
    columns = {"weight": graph.edge_weight, "edge_type": graph.edge_type, "edge_id": graph.edge_ids}
    out.add_nodes_from(zip(range(graph.num_nodes), _rows({"node_type": graph.node_type}, graph.num_nodes), strict=True))
    given = {name: None if column is None else column[order] for name, column in columns.items()}
    out.add_edges_from(zip(src, dst, _rows(given, len(src)), strict=True))
    return out


def _rows(columns: Mapping[str, Tensor | None], count: int) -> list[dict[str, Any]]:
    """Attributes of each edge or node, by name."""
    given = {name: column.tolist() for name, column in columns.items() if column is not None}
    return [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)] or [{}] * count


def to_scipy(graph: Graph) -> Any:
    """Convert a graph to a `scipy.sparse.csr_array` of its edge weights (`Graph.to_scipy`); half becomes float32."""
    from scipy.sparse import csr_array

    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.detach().cpu()
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
    arrays = weight.numpy(), graph.indices.cpu().numpy(), graph.indptr.cpu().numpy()
    shape = graph.num_nodes, graph.num_nodes
    return csr_array(arrays, shape, copy=True)  # methods of the matrix sort and sum entries in place


def from_scipy(matrix: Any, *, weighted: bool = True) -> Graph:
    """Convert a square sparse matrix, whose entry (i, j) is an edge from j to i: `Graph.from_scipy`."""
    from scipy.sparse import issparse

    if not issparse(matrix):
        raise TypeError(f"matrix is a {type(matrix).__name__}; pass a sparse one: scipy.sparse.csr_array(matrix)")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"the matrix has shape {matrix.shape}; it must be square")
    csr = matrix.tocsr()
    rows = Block(torch.as_tensor(csr.indptr).long(), torch.as_tensor(csr.indices), *csr.shape[::-1]).validate()
    weight = _weights(csr) if weighted else None
    return Graph.from_edges(rows.indices, rows.destinations, num_nodes=rows.num_dst, edge_weight=weight)


def _weights(csr: Any) -> torch.Tensor:
    if csr.data.dtype.kind != "f":
        raise TypeError(
            f"the matrix contains {csr.data.dtype}, but weights must be floating point; pass matrix.astype('float32'), "
            "or weighted=False"
        )
    return torch.as_tensor(csr.data)
