"""`Graph`: the in-neighbours of every node, in CSR form."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from workbench.core.array_store import HEADER, open_arrays, save_arrays
from workbench.core.block import FLOATS
from workbench.core.conversions import GraphForms
from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    CorruptFileError,
    check_at_least,
    check_ends,
    check_finite,
    check_fits,
    check_ids,
    check_non_decreasing,
    check_sources,
    check_tensors,
    check_vector,
)
from workbench.core.shared_storage import TensorRecord
from workbench.core.units import format_bytes, html_table
from workbench.kernels.csr import Csr, find_pairs, group_rows
from workbench.kernels.transpose import symmetric_rows, typed_symmetric_rows

_OPTIONAL = ("edge_ids", "edge_weight", "edge_type", "node_type")


class PositionIndex(NamedTuple):
    """The positions of edges by id, in memory proportional to the number of edges, however large the ids are.

    Args:
        ids: int64 [num_edges], ascending; None: the ids have few gaps, and `positions` is a table indexed by id.
        positions: int64, the position of each id; in a table −1 for an id that no edge has.
    """

    ids: Tensor | None
    positions: Tensor


ArrayLike: TypeAlias = Tensor | np.ndarray | Sequence[int] | Sequence[float]

Undirected: TypeAlias = bool | Literal["multi"]


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
        for name in ("indptr", "indices"):  # kernels read lanes of them, whatever the strides
            object.__setattr__(self, name, getattr(self, name).contiguous())
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
                keep self loops once and sort rows; edges of different types are no duplicates, so that a self loop with
                a type and its reverse are two. `edge_ids` is then None, since merged edges have no position in the
                caller's list.
                "multi": keep duplicates; the reverse of edge e has edge id e + num_edges, that of a self loop too.
            edge_weight: floating point [num_edges], finite; a reverse edge has that of its edge.
            edge_type: integer [num_edges]. Reverse edges whose types exceed its dtype make it int64.
            num_edge_types: number n of types; by default the largest type + 1.
            node_type: integer [num_nodes].

        Raises:
            TypeError: if ids are not integers.
            IndexError: if an id is negative or not below `num_nodes`, or a type not below `num_edge_types`.
            ValueError: if lengths differ, a weight or a sum of duplicates' is not finite, or `undirected` is another
                value.

        >>> Graph.from_edges([0, 1, 2], [1, 0, 2], undirected=True).indices.tolist()
        [1, 0, 2]
        >>> Graph.from_edges([0, 0], [1, 1], undirected="multi", edge_type=[0, 1]).edge_type
        tensor([2, 3, 0, 1])
        """
        csr, types = _edges_to_csr(src, dst, num_nodes, undirected, edge_weight, edge_type, num_edge_types)
        node_types = None if node_type is None else _as_integers("node_type", node_type).clone()
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

    def _repr_html_(self) -> str:
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


_BYTES_PER_NODE = 3 * 8  # offsets, counts and write positions

TYPE_DTYPES = (*ID_DTYPES, torch.int16, torch.uint8)


def as_vector(name: str, values: ArrayLike) -> Tensor:
    """Convert values to a contiguous vector that shares their memory if possible.

    Args:
        values: tensor, NumPy array or sequence of numbers.
    """
    with warnings.catch_warnings():  # NumPy warns about read-only arrays, but nothing here writes to them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        try:
            vector = torch.as_tensor(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{name} is {type(values).__name__}, not a vector of numbers ({error}); pass a tensor, an array or a "
                "list of numbers"
            ) from error
    if vector.dim() == 2 and vector.shape[0] == 2 and name == "src":
        raise ValueError(
            f"src has shape {tuple(vector.shape)}, like an edge_index; pass its rows: Graph.from_edges(*edge_index)"
        )
    if vector.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(vector.shape)}; flatten it with .reshape(-1)")
    return vector.detach().contiguous()


def _as_integers(name: str, values: ArrayLike) -> Tensor:
    """Convert as `as_vector` does; a list of nothing is one of integers, not of floating-point numbers."""
    vector = as_vector(name, values)
    return vector.to(torch.int64) if isinstance(values, list | tuple) and not values else vector


def _as_ids(name: str, values: ArrayLike) -> Tensor:
    ids = _as_integers(name, values)
    return ids if ids.dtype in ID_DTYPES else check_ids(name, ids, 0)


def id_remedy(lowest: int) -> str:
    """Return what to do about an id that is not below the number of nodes, without naming a number that may be wrong.

    Args:
        lowest: the smallest id that was seen. A larger number of nodes would accept ids from 1, and add a node 0.
    """
    if lowest > 0:
        return (
            f"number the nodes from 0: the smallest id so far is {lowest}, so subtract {lowest} if it is the first "
            "node's (an EdgeFile of text: base=1)"
        )
    return "number the nodes from 0 without gaps, or pass the number of all nodes, those without edges included"


def _largest_id(name: str, ids: Tensor) -> int:
    """Return the largest id, −1 for an empty vector."""
    if not ids.numel():
        return -1
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < 0:
        raise IndexError(f"{name} contains {low}; node ids can't be negative: number the nodes from 0")
    return high


def _check_edges(src: Tensor, dst: Tensor, num_nodes: int | None) -> int:
    """Check the ids and return the number of nodes."""
    if src.shape != dst.shape:
        raise ValueError(f"src has {src.shape[0]} ids, but dst has {dst.shape[0]}; pass one of each per edge")
    if src.device != dst.device:
        raise ValueError(f"src is on {src.device} and dst on {dst.device}; move them to one device")
    needed = 1 + max(_largest_id("src", src), _largest_id("dst", dst))
    count = needed if num_nodes is None else num_nodes
    check_at_least("num_nodes", count, 0)
    if needed > count:
        lowest = min(int(ids.min()) for ids in (src, dst))
        remedy = id_remedy(lowest) if lowest else f"pass num_nodes={needed} or more if all ids are those of nodes"
        raise IndexError(f"the edges contain node {needed - 1}, but num_nodes is {count}; {remedy}")
    if src.device.type == "cpu":
        check_fits(f"a graph of {count:,} nodes", _BYTES_PER_NODE * count, "number the nodes without gaps")
    return int(count)


def _in_csr_order(values: Tensor | None, order: Tensor | None) -> Tensor | None:
    """Copy values per edge from the caller's order into CSR order."""
    if values is None:
        return None
    return values.clone() if order is None else values[order]


def _edges_to_csr(
    src: ArrayLike,
    dst: ArrayLike,
    num_nodes: int | None,
    undirected: Undirected,
    edge_weight: ArrayLike | None,
    edge_type: ArrayLike | None,
    num_edge_types: int | None,
) -> tuple[Csr, Tensor | None]:
    """Build the CSR of an edge list, and its edge types in CSR order, from the arguments of `Graph.from_edges`."""
    if not isinstance(undirected, bool) and undirected != "multi":
        raise ValueError(f'undirected is {undirected!r}; it must be False, True or "multi" (keep duplicates)')
    sources, destinations = _as_ids("src", src), _as_ids("dst", dst)
    nodes = _check_edges(sources, destinations, num_nodes)
    weight = None if edge_weight is None else as_vector("edge_weight", edge_weight)
    types = None if edge_type is None else _as_integers("edge_type", edge_type)
    check_vector("edge_weight", weight, len(sources), FLOATS)
    check_vector("edge_type", types, len(sources), TYPE_DTYPES)
    if weight is not None:
        check_finite("edge_weight", weight)
    num_types = _count_types(types, num_edge_types, undirected, nodes)
    if undirected is True:
        csr, merged = _merged_csr(sources, destinations, weight, types, nodes, num_types)
        if csr.weight is not None:
            check_finite("edge_weight, duplicates summed,", csr.weight)
        return csr, merged
    if undirected:
        sources, destinations = torch.cat([sources, destinations]), torch.cat([destinations, sources])
        weight = None if weight is None else torch.cat([weight, weight])
        types = None if types is None else _types_of_both(types, num_types)
    csr = group_rows(destinations, sources, nodes, nodes)
    return csr._replace(weight=_in_csr_order(weight, csr.order)), _in_csr_order(types, csr.order)


def _merged_csr(
    src: Tensor, dst: Tensor, weight: Tensor | None, types: Tensor | None, num_nodes: int, num_types: int
) -> tuple[Csr, Tensor | None]:
    if types is None:
        return symmetric_rows(dst, src, weight, num_nodes), None
    csr, merged = typed_symmetric_rows(dst, src, types, weight, num_nodes, num_types)
    return csr, merged.to(_reverse_type_dtype(types, num_types))


def types_of_both(types: Tensor, num_types: int | None) -> Tensor:
    """Return the types of all edges, then those of their reverses.

    Args:
        types: integer [num_edges].
        num_types: number of edge types; None: the largest + 1.
    """
    return _types_of_both(types, _count_types(types, num_types, "multi", 0))


def _types_of_both(types: Tensor, num_types: int) -> Tensor:
    """Return the types of all edges, then those of their reverses."""
    types = types.to(_reverse_type_dtype(types, num_types))
    return torch.cat([types, types + num_types])


def _count_types(types: Tensor | None, num_types: int | None, undirected: Undirected, num_nodes: int) -> int:
    """Return the number of edge types after checking their range; 0 if there are none, or none are added or limited."""
    if num_types is not None:
        check_at_least("num_edge_types", num_types, 1)
        if types is None:
            raise ValueError(f"num_edge_types is {num_types}, but edge_type is None; pass both or neither")
    if types is None or (num_types is None and not undirected):
        return 0
    low, high = (int(value) for value in torch.aminmax(types)) if types.numel() else (0, -1)
    if low < 0:
        raise IndexError(f"edge_type contains {low}; types can't be negative: number them from 0")
    if num_types is not None and high >= num_types:
        remedy = "number the types from 0: the smallest is 1" if low == 1 else f"pass {high + 1} or more"
        raise IndexError(f"edge_type contains {high}, but num_edge_types is {num_types}; {remedy}")
    count = max(1, high + 1) if num_types is None else num_types
    if undirected and 2 * count * (max(1, num_nodes) if undirected is True else 1) >= 2**63:
        raise ValueError(f"{count} edge types of {num_nodes} nodes exceed 63 bits; number the types without gaps")
    return count


def _reverse_type_dtype(types: Tensor, num_types: int) -> torch.dtype:
    """Return the dtype of the types of both directions: the caller's, if it can represent those of reverse edges."""
    return types.dtype if 2 * num_types - 1 <= torch.iinfo(types.dtype).max else torch.int64
