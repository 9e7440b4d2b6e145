"""`Graph`: the in-neighbours of every node, in CSR form."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from workbench.core.array_store import HEADER, open_arrays, save_arrays
from workbench.core.block import FLOATS
from workbench.core.csr_checks import check_ends, check_non_decreasing, check_sources
from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    CorruptFileError,
    check_finite,
    check_fits,
    check_ids,
    check_tensors,
    check_vector,
)
from workbench.core.graph_build import TYPE_DTYPES, ArrayLike, Undirected, as_vector, edges_to_csr
from workbench.core.graph_forms import GraphForms
from workbench.core.shared_storage import TensorRecord
from workbench.core.units import format_bytes
from workbench.kernels.csr import find_pairs

_OPTIONAL = ("edge_ids", "edge_weight", "edge_type", "node_type")


class PositionIndex(NamedTuple):
    """The positions of edges by id, in memory proportional to the number of edges, however large the ids are.

    Args:
        ids: int64 [num_edges], ascending; None: the ids have few gaps, and `positions` is a table indexed by id.
        positions: int64, the position of each id; in a table −1 for an id that no edge has.
    """

    ids: Tensor | None
    positions: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Graph(TensorRecord, GraphForms):
    """A directed graph in CSR form: row `v` lists the in-neighbours of node `v`.

    The constructor checks dtypes, lengths and, on the CPU, the ends of `indptr`; `validate` checks everything.

    Args:
        indptr: int64 [num_nodes + 1], offsets of each node's in-edges.
        indices: int32 or int64 [num_edges], sources.
        edge_ids: int64 [num_edges], position of each edge in the caller's edge list; None for its CSR position.
        edge_weight: floating point [num_edges].
        edge_type: integer [num_edges].
        node_type: integer [num_nodes].

    Raises:
        TypeError: if a tensor has another dtype.
        ValueError: if sizes do not match.

    >>> Graph.from_edges(torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0]))
    Graph(3 nodes, 3 edges, edge_ids; 68 B)
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    node_type: Tensor | None = None
    is_packed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_tensors(indptr=self.indptr, indices=self.indices)
        check_vector("indptr", self.indptr, None, (torch.int64,))
        check_vector("indices", self.indices, None, ID_DTYPES)
        if not self.indptr.numel():
            raise ValueError("indptr is empty; it must have num_nodes + 1 entries, [0] for a graph without nodes")
        check_vector("edge_ids", self.edge_ids, self.num_edges, (torch.int64,))
        check_vector("edge_weight", self.edge_weight, self.num_edges, FLOATS)
        check_vector("edge_type", self.edge_type, self.num_edges, TYPE_DTYPES)
        check_vector("node_type", self.node_type, self.num_nodes, TYPE_DTYPES)
        if self.indptr.device.type == "cpu":
            check_ends(self.indptr, self.num_edges)

    @classmethod
    def from_edges(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        *,
        num_nodes: int | None = None,
        undirected: Undirected = False,
        edge_weight: ArrayLike | None = None,
        edge_type: ArrayLike | None = None,
        num_edge_types: int | None = None,
        node_type: ArrayLike | None = None,
    ) -> "Graph":
        """Build a graph from an edge list; each node's in-edges keep the caller's order.

        Args:
            src: int32 or int64 [num_edges], sources, as tensor, NumPy array or list.
            dst: int32 or int64 [num_edges], destinations.
            num_nodes: number of nodes; by default the largest id + 1.
            undirected: add the reverse of every edge; the reverse of an edge of type r has type r + n, where n is the
                number of types.
                True: also merge duplicates (summing their weights, also those of an edge given in both directions),
                keep self loops once and sort rows; edges of different types are no duplicates. `edge_ids` is then None,
                since merged edges have no position in the caller's list.
                "multi": keep duplicates; the reverse of edge e has edge id e + num_edges, that of a self loop too.
            edge_weight: floating point [num_edges], finite; a reverse edge has that of its edge.
            edge_type: integer [num_edges]. Reverse edges whose types exceed its dtype make it int64.
            num_edge_types: number n of types; by default the largest type + 1.
            node_type: integer [num_nodes].

        Raises:
            TypeError: if ids are not integers.
            IndexError: if an id is negative or not below `num_nodes`, or a type not below `num_edge_types`.
            ValueError: if lengths differ, a weight is not finite, or `undirected` is another value.

        >>> Graph.from_edges([0, 1, 2], [1, 0, 2], undirected=True).indices.tolist()
        [1, 0, 2]
        >>> Graph.from_edges([0, 0], [1, 1], undirected="multi", edge_type=[0, 1]).edge_type
        tensor([2, 3, 0, 1])
        """
        csr, types = edges_to_csr(
            src,
            dst,
            num_nodes=num_nodes,
            undirected=undirected,
            edge_weight=edge_weight,
            edge_type=edge_type,
            num_edge_types=num_edge_types,
        )
        node_types = None if node_type is None else as_vector("node_type", node_type)
        return cls(csr.indptr, csr.indices, csr.order, csr.weight, types, node_types)

    @staticmethod
    def open(folder: str | os.PathLike[str], *, verify: bool = False) -> "Graph":
        """Memory-map a saved graph: pages are read on first access, and writes to its tensors never reach the files.

        Only the header and `indptr` are read and checked; samplers check the sources that they visit.

        Args:
            folder: folder written by `save`.
            verify: read everything, compare checksums and call `validate`.

        Raises:
            FileNotFoundError: if the folder or one of its files is missing.
            CorruptFileError: if a file is truncated, modified, of another version or not a valid graph.
        """
        arrays = open_arrays(folder, kind="graph", verify=verify)
        try:
            graph = Graph(**arrays)
            check_non_decreasing(graph.indptr)
            return graph.validate() if verify else graph
        except (TypeError, ValueError, IndexError) as error:
            header = os.path.join(folder, HEADER)
            raise CorruptFileError(f"{header} does not describe a valid graph: {error}; save it again") from error

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the arrays with checksums and a header to a folder, atomically.

        Args:
            folder: folder to create.
            overwrite: replace a saved graph.

        Raises:
            FileExistsError: if the folder exists and `overwrite` is not set, or if it is not a saved graph.
        """
        save_arrays(folder, self._tensors(), kind="graph", overwrite=overwrite)

    @property
    def num_nodes(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]

    @property
    def device(self) -> torch.device:
        return self.indices.device

    def in_degrees(self) -> Tensor:
        """Return the number of in-edges of each node, int64 [num_nodes]."""
        return self.indptr.diff()

    def find_edges(self, src: Tensor, dst: Tensor) -> Tensor:
        """Return the ids of all edges between pairs of nodes, including multi-edges.

        Link prediction excludes these edges (and, with swapped arguments, their reverses) from sampling.

        Args:
            src: int32 or int64 [num_pairs].
            dst: int32 or int64 [num_pairs].

        Returns:
            int64 edge ids, grouped by pair, in row order within a pair; a pair without an edge contributes none.

        Raises:
            IndexError: if an id is out of range.
            ValueError: if `src` and `dst` differ in length.
        """
        sources, destinations = check_ids("src", src, self.num_nodes), check_ids("dst", dst, self.num_nodes)
        check_vector("dst", destinations, len(sources), (torch.int64,))
        positions = find_pairs(self.indptr, self.indices, destinations, sources)
        return positions if self.edge_ids is None else self.edge_ids[positions]

    def edge_positions(self, edge_ids: Tensor) -> Tensor:
        """Return the CSR positions of edges given by their ids: the inverse of `edge_ids`.

        Args:
            edge_ids: int32 or int64 [any].

        Returns:
            int64 [any].

        Raises:
            IndexError: if no edge has one of the ids.
        """
        if self.edge_ids is None:
            return check_ids("edge_ids", edge_ids, self.num_edges)
        return look_up(self.position_index, edge_ids)

    @cached_property
    def position_index(self) -> PositionIndex:
        assert self.edge_ids is not None
        return index_positions(self.edge_ids)

    def validate(self) -> "Graph":
        """Check every value and return the graph.

        Raises:
            IndexError: if a source or an edge id is out of range.
            ValueError: if `indptr` decreases, edge ids repeat, or a weight is not finite.
        """
        check_ends(self.indptr, self.num_edges)
        check_non_decreasing(self.indptr)
        check_sources(self.indices, self.num_nodes, IndexError)
        if self.edge_ids is not None:
            check_ids("edge_ids", self.edge_ids, INT64_MAX, unique=True)
        if self.edge_weight is not None:
            check_finite("edge_weight", self.edge_weight)
        return self

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in ("indptr", "indices", *_OPTIONAL)}

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in _OPTIONAL if getattr(self, name) is not None)
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{extra}; {format_bytes(self.nbytes)})"


_TABLE_ENTRIES_PER_EDGE = 2  # as much memory as sorted ids and their positions

_SORT_BYTES = 4 * 8  # per edge: ids and positions, twice while they are being sorted


def index_positions(edge_ids: Tensor) -> PositionIndex:
    """Index the positions of edges by id: a table if the ids have few gaps, otherwise sorted ids.

    Args:
        edge_ids: int64 [num_edges], the id of the edge at each position.
    """
    count = len(edge_ids)
    size = int(edge_ids.max()) + 1 if count else 0
    check_fits(f"an index of {count:,} edge ids", _SORT_BYTES * count, "sample without edge ids to exclude")
    if size > _TABLE_ENTRIES_PER_EDGE * count:
        return PositionIndex(*edge_ids.sort())
    positions = torch.full((max(1, size),), -1, dtype=torch.int64, device=edge_ids.device)
    positions[edge_ids] = torch.arange(count, device=edge_ids.device)
    return PositionIndex(None, positions)


def look_up(index: PositionIndex, edge_ids: Tensor) -> Tensor:
    """Return the positions of edges given by their ids: int64 [any].

    Args:
        edge_ids: int32 or int64 [any].
    """
    wanted = check_ids("edge_ids", edge_ids, INT64_MAX)
    positions = find(index, wanted)
    if bool((positions < 0).any()):
        raise IndexError(
            f"edge_ids contains {int(wanted[positions < 0][0])}, which is not an edge of this graph; pass ids from "
            "its edge_ids"
        )
    return positions


def find(index: PositionIndex, edge_ids: Tensor) -> Tensor:
    """Return the positions of edges given by their ids, −1 for an id that no edge has: int64 [any].

    Args:
        edge_ids: int64 [any], non-negative.
    """
    if not len(index.positions):
        return torch.full_like(edge_ids, -1)
    slots = edge_ids if index.ids is None else torch.searchsorted(index.ids, edge_ids)
    slots = slots.clamp(max=len(index.positions) - 1)
    found = slots if index.ids is None else index.ids[slots]
    return torch.where(found == edge_ids, index.positions[slots], -1)
