"""A graph in other forms: those of other libraries, and a notebook's table."""

from typing import Any, Self

from workbench.core.units import format_bytes, html_table


class GraphForms:
    """The conversions that `Graph` offers as methods; each imports its library when it is called."""

    @classmethod
    def from_dgl(cls, graph: Any) -> Self:
        """Convert a homogeneous DGL graph; each node's in-edges are ordered by edge id.

        Node data are not part of a `Graph`: pass `graph.ndata["feat"]` as features. Fanouts of samplers have DGL's
        order, input layer first.

        Args:
            graph: DGL graph; `edata["edge_weight"]`, `edata[dgl.ETYPE]` and `ndata[dgl.NTYPE]` are converted too.

        Raises:
            TypeError: if `graph` is not a DGL graph.
            ValueError: if the graph has several node or edge types.
        """
        from workbench.interop.dgl import graph_from_dgl

        converted: Any = graph_from_dgl(graph)
        return converted

    def to_dgl(self: Any) -> Any:
        """Convert to a DGL graph, keeping edge ids.

        Weights are in `edata["edge_weight"]`, types in `edata[dgl.ETYPE]` and `ndata[dgl.NTYPE]`.

        Raises:
            ValueError: if the edge ids have gaps.
        """
        from workbench.interop.dgl import graph_to_dgl

        return graph_to_dgl(self)

    @classmethod
    def from_pyg(cls, data: Any) -> Self:
        """Convert a homogeneous PyG `Data`; row 0 of its `edge_index` are the sources.

        Features and labels are not part of a `Graph`: pass `data.x` and `data.y` to the training step. **Fanouts have
        the reverse order of PyG's**: `NeighborLoader(num_neighbors=[25, 10])` begins at the seeds, whereas
        `NeighborSampler([10, 25])` begins at the input layer; both draw 25 neighbours of each seed.

        Args:
            data: object with `edge_index` and optionally `num_nodes`, `edge_weight`, `edge_type` and `node_type`.

        Raises:
            TypeError: if `edge_index` is not an integer tensor.
            ValueError: if `edge_index` is missing or does not have two rows.
            IndexError: if an id is out of range.
        """
        from workbench.interop.pyg import graph_from_pyg

        converted: Any = graph_from_pyg(data)
        return converted

    def to_pyg(self: Any) -> Any:
        """Convert to a PyG `Data` with edges ordered by edge id.

        Without PyG, the result is an object with the same attributes: `num_nodes`, `edge_index`, and `edge_weight`,
        `edge_type` and `node_type` if the graph has them.

        Raises:
            ValueError: if the edge ids have gaps.
        """
        from workbench.interop.pyg import graph_to_data

        return graph_to_data(self)

    @classmethod
    def from_scipy(cls, matrix: Any, *, weighted: bool = True) -> Self:
        """Convert a square sparse matrix, whose entry (i, j) is an edge from j to i.

        Args:
            matrix: SciPy sparse matrix or array; transpose it if its rows are the sources.
            weighted: store the entries as `edge_weight`.

        Raises:
            ValueError: if the matrix is not square, an entry is not finite, or its structure is invalid.
            TypeError: if it is not a sparse matrix, or `weighted` is set and the entries are not floating point.
        """
        from workbench.interop.networkx import from_scipy

        converted: Any = from_scipy(matrix, weighted=weighted)
        return converted

    def to_scipy(self: Any) -> Any:
        """Convert to a `scipy.sparse.csr_array` of the edge weights (1 without weights), row = destination.

        Multi-edges are separate entries until SciPy sums them; edge ids and types are dropped.
        """
        from workbench.interop.networkx import to_scipy

        return to_scipy(self)

    @classmethod
    def from_networkx(cls, graph: Any, *, weight: str | None = "weight") -> Self:
        """Convert a graph of networkx, directed or not, whose nodes are the numbers 0 to n − 1.

        An edge of an undirected graph becomes one edge in each direction, a self loop a single edge; parallel edges of
        a multigraph are kept. Edge ids of a directed graph are positions in `graph.edges`.

        Args:
            graph: networkx graph; the attributes `edge_type` of edges and `node_type` of nodes are converted too.
            weight: name of the edge attribute to store as `edge_weight`, in torch's default dtype, if the edges have
                it; None: no weights.

        Raises:
            TypeError: if `graph` is not of networkx, or an attribute is not a number.
            ValueError: if nodes have other names (the message says how to number them), an attribute is missing from
                some edges or nodes, or a weight is not finite.

        >>> import networkx, workbench as wb
        >>> wb.Graph.from_networkx(networkx.path_graph(3)).indices.tolist()
        [1, 0, 2, 1]
        """
        from workbench.interop.networkx import graph_from_networkx

        converted: Any = graph_from_networkx(graph, weight=weight)
        return converted

    def to_networkx(self: Any) -> Any:
        """Convert to a `networkx.DiGraph`, or to a `MultiDiGraph` if the graph has parallel edges.

        Edges have the attributes `weight`, `edge_type` and `edge_id`, nodes `node_type`, as far as the graph has them.
        """
        from workbench.interop.networkx import graph_to_networkx

        return graph_to_networkx(self)

    def _repr_html_(self: Any) -> str:
        degrees = self.in_degrees()
        mean = self.num_edges / max(1, self.num_nodes)
        cells = {
            "nodes": self.num_nodes,
            "edges": self.num_edges,
            "mean in-degree": f"{mean:,.2f}",
            "largest in-degree": int(degrees.max()) if self.num_nodes else 0,
            "bytes": format_bytes(self.nbytes),
        }
        return html_table("Graph", cells)
