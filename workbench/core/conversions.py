"""Records in the forms of other libraries: methods of `Graph` and `MiniBatch`, and what they call.

The functions belong to a package above, which is registered by `register_conversions` and imported when a method is
called: this package knows neither it nor a library.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Self

_places: list[str] = []


def register_conversions(place: str) -> None:
    """Let records convert themselves by functions of a package above, which is not imported before the first call.

    Args:
        place: "module:mapping", a mapping of methods, such as "Graph.to_dgl", to the functions that they call.
    """
    _places.append(place)


@cache
def _conversions() -> dict[str, Any]:
    modules = ((import_module(module), name) for module, _, name in (place.partition(":") for place in _places))
    return {method: function for module, name in modules for method, function in getattr(module, name).items()}


def _convert(method: str, *args: Any, **options: Any) -> Any:
    return _conversions()[method](*args, **options)


class GraphForms:
    """The conversions that `Graph` offers; each imports its library when it is called."""

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
        return _convert("Graph.from_dgl", graph)

    def to_dgl(self) -> Any:
        """Convert to a DGL graph, keeping edge ids.

        Weights are in `edata["edge_weight"]`, types in `edata[dgl.ETYPE]` and `ndata[dgl.NTYPE]`.

        Raises:
            ValueError: if the edge ids have gaps.
        """
        return _convert("Graph.to_dgl", self)

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
        return _convert("Graph.from_pyg", data)

    def to_pyg(self) -> Any:
        """Convert to a PyG `Data` with edges ordered by edge id.

        Without PyG, the result is an object with the same attributes: `num_nodes`, `edge_index`, and `edge_weight`,
        `edge_type` and `node_type` if the graph has them.

        Raises:
            ValueError: if the edge ids have gaps.
        """
        return _convert("Graph.to_pyg", self)

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
        return _convert("Graph.from_scipy", matrix, weighted=weighted)

    def to_scipy(self) -> Any:
        """Convert to a `scipy.sparse.csr_array` of the edge weights (1 without weights), row = destination.

        Multi-edges are separate entries until SciPy sums them; edge ids and types are dropped.
        """
        return _convert("Graph.to_scipy", self)

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
        return _convert("Graph.from_networkx", graph, weight=weight)

    def to_networkx(self) -> Any:
        """Convert to a `networkx.DiGraph`, or to a `MultiDiGraph` if the graph has parallel edges.

        Edges have the attributes `weight`, `edge_type` and `edge_id`, nodes `node_type`, as far as the graph has them.
        """
        return _convert("Graph.to_networkx", self)


class BatchForms:
    """The conversions that `MiniBatch` offers; each imports its library when it is called."""

    def to_dgl(self) -> list[Any]:
        """Convert the blocks to DGL blocks that carry raw-graph ids.

        A batch that was converted from DGL, or a micro-batch of it, has all columns of node and edge data again; their
        rows are gathered when they are read.

        Raises:
            ValueError: if the batch has exchanges.
        """
        return _convert("MiniBatch.to_dgl", self)

    @classmethod
    def from_dgl(cls, blocks: Sequence[Any], step: int = 0) -> Self:
        """Convert a list of DGL blocks to a batch.

        Node and edge data of the blocks stays where it is: the batch refers to the blocks, and DGL models that
        estimates, plans and steps call with the batch or its micro-batches find it in their blocks.

        Args:
            blocks: DGL blocks as DGL's samplers return them, input layer first.
            step: number of the batch.
        """
        return _convert("MiniBatch.from_dgl", blocks, step)

    def to_pyg(self, form: str = "adjs") -> Any:
        """Convert the batch to PyG's form.

        Args:
            form: "adjs" for modules called with the edges of each layer, `model(x, batch.adjs)`. The result has an
                `edge_index` too if every node has one sample for all layers (full neighbourhoods, DENSE samples,
                batches of `NeighborLoader`), for modules called with `model(x, batch.edge_index)`. "edge_index" for
                such modules on any batch: a node that was sampled in several layers keeps the sample of the layer that
                reached it first, and nodes that nothing reads any more are dropped. Gradients of micro-batches
                (`workbench.micro_batches`) are exact in both forms.

        Raises:
            ValueError: if the batch has exchanges, or no blocks, or `form` is unknown.
        """
        return _convert("MiniBatch.to_pyg", self, form)

    @classmethod
    def from_pyg(cls, batch: Any, step: int = 0) -> Self:
        """Convert a batch of PyG: one that `to_pyg` returned or that PyG's `NeighborLoader` yields.

        The result refers to the batch, so that models with parameters named as its node- and edge-level attributes
        (`edge_attr`, say) are called with the rows of the batch or of a micro-batch.

        Args:
            batch: an object with `n_id` and either `adjs` or `edge_index` and `num_sampled_nodes`.
            step: number of the batch.
        """
        return _convert("MiniBatch.from_pyg", batch, step)
