"""`Graph`: for every node the list of its in-neighbours."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.array_store import HEADER, open_arrays, save_arrays
from workbench.core.block import FLOATS, check_rises, check_sources
from workbench.core.capacity import check_fits
from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    CorruptFileError,
    check_finite,
    check_ids,
    check_tensors,
    check_vector,
)
from workbench.core.graph_build import TYPE_DTYPES, ArrayLike, as_vector, edges_to_csr
from workbench.core.storage import move_all, total_bytes
from workbench.core.units import format_bytes
from workbench.kernels.pairs import find_pairs

_OPTIONAL = ("edge_ids", "edge_weight", "edge_type", "node_type")
_FIELDS = ("indptr", "indices", *_OPTIONAL)


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """For every node the list of its in-neighbours (CSR, row = destination).

    Construction checks dtypes and lengths, and on the CPU the ends of `indptr`; `validate` reads everything.

    Args:
        indptr: int64 [num_nodes + 1].
        indices: int32 or int64 [num_edges], sources.
        edge_ids: int64 [num_edges], position of each edge in the caller's edge list; None: its position in the CSR.
        edge_weight: floating [num_edges].
        edge_type: integer [num_edges].
        node_type: integer [num_nodes].

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: sizes that do not fit each other.

    >>> Graph.from_edges(torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0]))
    Graph(3 nodes, 3 edges, edge_ids; 68 B)
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    node_type: Tensor | None = None

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
            self._check_ends()

    def _check_ends(self) -> None:
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        if first != 0 or last != self.num_edges:
            raise ValueError(f"indptr runs from {first} to {last}; it must run from 0 to the {self.num_edges} edges")

    @classmethod
    def from_edges(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        *,
        num_nodes: int | None = None,
        undirected: bool = False,
        edge_weight: ArrayLike | None = None,
        edge_type: ArrayLike | None = None,
        node_type: ArrayLike | None = None,
    ) -> "Graph":
        """The graph of an edge list; a node's in-edges keep the caller's order.

        Args:
            src: int32 or int64 [num_edges], tensor or numpy array.
            dst: int32 or int64 [num_edges], each edge leads from `src` to `dst`.
            num_nodes: nodes; default: the largest id + 1.
            undirected: add reverse edges, merge duplicates (their weights are summed, so an edge given in both
                directions weighs what both weigh), keep self loops once, sort rows. The edges then have no place in the
                caller's list: `edge_ids` is None.
            edge_weight: floating [num_edges], finite.
            edge_type: integer [num_edges]; not with `undirected`.
            node_type: integer [num_nodes].

        Raises:
            TypeError: ids that are not whole numbers.
            IndexError: an id that is negative or not below `num_nodes`.
            ValueError: lengths that differ, a weight that is not finite, `edge_type` with `undirected`.

        >>> Graph.from_edges([0, 1, 2], [1, 0, 2], undirected=True).indices.tolist()
        [1, 0, 2]
        """
        csr, types = edges_to_csr(
            src, dst, num_nodes=num_nodes, undirected=undirected, edge_weight=edge_weight, edge_type=edge_type
        )
        kinds = None if node_type is None else as_vector("node_type", node_type)
        return cls(csr.indptr, csr.indices, csr.order, csr.weight, types, kinds)

    @staticmethod
    def open(folder: str | os.PathLike[str], *, verify: bool = False) -> "Graph":
        """A saved graph, memory-mapped: pages are read when touched, and writing to them never alters the files.

        Read are the header and `indptr`, which kernels follow: it must rise. Samplers check each source they meet.

        Args:
            folder: what `save` wrote.
            verify: read everything, compare checksums and `validate`.

        Raises:
            FileNotFoundError: the folder or one of its files is missing.
            CorruptFileError: a file that is truncated, altered, of another version or no graph.
        """
        arrays = open_arrays(folder, kind="graph", verify=verify)
        try:
            graph = Graph(**arrays)
            check_rises(graph.indptr)
            return graph.validate() if verify else graph
        except (TypeError, ValueError, IndexError) as error:
            raise CorruptFileError(
                f"{os.path.join(folder, HEADER)} describes no graph: {error}; save it again"
            ) from error

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the arrays, their checksums and a header to a folder that appears only when it is complete.

        Args:
            folder: to create.
            overwrite: replace a saved graph.

        Raises:
            FileExistsError: the folder exists (or, with `overwrite`, holds something else).
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

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return total_bytes(self._tensors().values())

    def in_degrees(self) -> Tensor:
        """int64 [num_nodes]: edges into every node."""
        return self.indptr.diff()

    def find_edges(self, src: Tensor, dst: Tensor) -> Tensor:
        """Ids of all edges that join the given pairs, multi-edges included.

        Link prediction keeps its targets (and, with the arguments exchanged, their reverses) out of a sample by them.

        Args:
            src: int32 or int64 [num_pairs].
            dst: int32 or int64 [num_pairs].

        Returns:
            int64 edge ids, pair by pair, each pair's in the order of the row; a pair without an edge has none.

        Raises:
            IndexError: an id out of range.
            ValueError: another number of sources than of destinations.
        """
        sources, destinations = check_ids("src", src, self.num_nodes), check_ids("dst", dst, self.num_nodes)
        check_vector("dst", destinations, len(sources), (torch.int64,))
        positions = find_pairs(self.indptr, self.indices, destinations, sources)
        return positions if self.edge_ids is None else self.edge_ids[positions]

    def edge_positions(self, edge_ids: Tensor) -> Tensor:
        """int64: the positions in the CSR of edges given by their ids (the inverse of `edge_ids`).

        Args:
            edge_ids: int32 or int64, of any number.

        Raises:
            IndexError: an id that no edge has.
        """
        if self.edge_ids is None:
            return check_ids("edge_ids", edge_ids, self.num_edges)
        positions = self._positions[check_ids("edge_ids", edge_ids, self._positions.shape[0])]
        if bool((positions < 0).any()):
            raise IndexError(
                f"edge_ids contains {int(edge_ids[positions < 0][0])}, which is not an edge of this graph; pass ids "
                "from its edge_ids"
            )
        return positions

    @cached_property
    def _positions(self) -> Tensor:
        """int64 [largest edge id + 1]: position of each edge id, −1 for none; kept once asked for."""
        if self.edge_ids is None or not self.num_edges:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        size = int(self.edge_ids.max()) + 1
        check_fits(f"finding edges by ids up to {size - 1:,}", 8 * size, "number the edges without gaps")
        positions = torch.full((size,), -1, dtype=torch.int64, device=self.device)
        positions[self.edge_ids] = torch.arange(self.num_edges, device=self.device)
        return positions

    def validate(self) -> "Graph":
        """Read all of it and return it.

        Raises:
            IndexError: a source, or an edge id, out of range.
            ValueError: `indptr` falls, edge ids repeat, or a weight is not finite.
        """
        self._check_ends()
        check_rises(self.indptr)
        check_sources(self.indices, self.num_nodes, IndexError)
        if self.edge_ids is not None:
            check_ids("edge_ids", self.edge_ids, INT64_MAX, unique=True)
        if self.edge_weight is not None:
            check_finite("edge_weight", self.edge_weight)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Graph":
        """The graph on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in _OPTIONAL if getattr(self, name) is not None)
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{extra}; {format_bytes(self.nbytes)})"

    def _repr_html_(self) -> str:
        degrees = self.in_degrees()
        mean = self.num_edges / max(1, self.num_nodes)
        cells = {
            "nodes": f"{self.num_nodes:,}",
            "edges": f"{self.num_edges:,}",
            "mean in-degree": f"{mean:,.2f}",
            "largest in-degree": f"{int(degrees.max()) if self.num_nodes else 0:,}",
            "bytes": format_bytes(self.nbytes),
        }
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in cells.items())
        return f"<table><caption>Graph</caption><tbody>{rows}</tbody></table>"
