"""`Block`: one bipartite message-passing layer of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    check_at_least,
    check_ends,
    check_non_decreasing,
    check_sources,
    check_tensors,
    check_vector,
)
from workbench.core.shared_storage import TensorRecord, all_on, same_record
from workbench.core.units import format_bytes, html_table
from workbench.kernels.segment import Adjacency
from workbench.kernels.transpose import Transposed, transpose, transpose_prefixes

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_EDGE_FIELDS = ("edge_ids", "edge_weight", "edge_type")


class SharedRows:
    """The destinations and the transpose of blocks of one CSR, each computed once, for the largest block that needs it.

    A backward pass begins at the smallest block. The forward passes before it have told, by `expect_transposed`, which
    blocks' sources need a gradient, so that the first one computes the transpose of the largest of them.

    Args:
        blocks: input layer first; the rows of each are the first rows of the one before.
    """

    def __init__(self, blocks: Sequence[Adjacency]) -> None:
        self._sizes = [(block.num_dst, block.num_src) for block in reversed(blocks)]
        self._indptr, self._indices = blocks[0].indptr, blocks[0].indices
        self._expected = 0  # rows
        self._destinations: Tensor | None = None
        self._transposed: dict[tuple[int, int], Transposed] = {}

    def expect_transposed(self, block: Adjacency) -> None:
        """Note that a backward pass will read the transpose of a block."""
        self._expected = max(self._expected, block.num_dst)

    def destinations(self, block: Adjacency) -> Tensor:
        """Return the destination of each edge of a block."""
        if self._destinations is None or len(self._destinations) < block.num_edges:
            self._destinations = edge_destinations(block.indptr, block.indices)
        return self._destinations[: block.num_edges]

    def transposed(self, block: Adjacency) -> Transposed:
        """Return the transpose of a block, a view of that of the largest block that is expected to need one."""
        size = block.num_dst, block.num_src
        if size not in self._transposed:
            rows = max(self._expected, block.num_dst)
            prefixes = [known for known in self._sizes if known[0] <= rows]
            self._transposed = self._transpose(prefixes)
        return self._transposed[size]

    def _transpose(self, sizes: list[tuple[int, int]]) -> dict[tuple[int, int], Transposed]:
        num_dst, num_src = sizes[-1]
        indptr = self._indptr[: num_dst + 1]
        indices = self._indices[: int(indptr[-1])]
        return dict(zip(sizes, transpose_prefixes(indptr, indices, num_src, sizes[:-1]), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Block(TensorRecord):
    """A bipartite layer in local ids, in CSR form: for each destination the list of its sources.

    Destinations are the prefix of the sources: source `i < num_dst` and destination `i` are the same node. The
    constructor checks dtypes, lengths and, on the CPU, the ends of `indptr`; kernels trust the rest, so call `validate`
    on a block built by hand.

    Args:
        indptr: int64 [num_dst + 1], offsets of each destination's edges.
        indices: int32 [num_edges] (int64 from 2³¹ sources on), local source ids.
        num_src: number of sources.
        num_dst: number of destinations, at most `num_src`.
        edge_ids: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating point [num_edges].
        edge_type: integer [num_edges].

    Raises:
        TypeError: if a tensor has another dtype.
        ValueError: if sizes do not match.
    """

    indptr: Tensor
    indices: Tensor
    num_src: int
    num_dst: int
    edge_ids: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None

    def __post_init__(self) -> None:
        check_at_least("num_dst", self.num_dst, 0)
        check_at_least("num_src (destinations are a prefix of the sources)", self.num_src, self.num_dst)
        check_tensors(indptr=self.indptr, indices=self.indices)
        check_vector("indptr", self.indptr, self.num_dst + 1, (torch.int64,))
        check_vector("indices", self.indices, None, ID_DTYPES)
        check_vector("edge_ids", self.edge_ids, self.num_edges, ID_DTYPES)
        check_vector("edge_weight", self.edge_weight, self.num_edges, FLOATS)
        check_vector("edge_type", self.edge_type, self.num_edges, (*ID_DTYPES, torch.int16, torch.uint8))
        if self.indptr.device != self.device:
            raise ValueError(f"indptr is on {self.indptr.device}, indices on {self.device}; move both to one device")
        if self.device.type == "cpu":
            check_ends(self.indptr, self.num_edges)

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]

    @property
    def device(self) -> torch.device:
        return self.indices.device

    def in_degrees(self) -> Tensor:
        """Return the number of edges of each destination, int64 [num_dst]."""
        return self.indptr.diff()

    @cached_property
    def destinations(self) -> Tensor:
        """Destination of each edge: [num_edges], in the dtype of `indices`."""
        shared = self._shared_rows
        return edge_destinations(self.indptr, self.indices) if shared is None else shared.destinations(self)

    @cached_property
    def transposed(self) -> Transposed:
        """The same edges grouped by source, for backward passes; computed on first access.

        Blocks of a batch that are row prefixes of one CSR compute it once, for the largest that needs it.
        """
        shared = self._shared_rows
        return transpose(self.indptr, self.indices, self.num_src) if shared is None else shared.transposed(self)

    def expect_transposed(self) -> None:
        """Note in a forward pass that the backward pass will read `transposed`."""
        if self._shared_rows is not None:
            self._shared_rows.expect_transposed(self)

    @property
    def _shared_rows(self) -> SharedRows | None:
        return self.__dict__.get("shared_rows")  # set by `workbench.core.split.share_rows`

    def validate(self) -> "Block":
        """Check everything that kernels trust and return the block.

        Raises:
            ValueError: if `indptr` decreases or does not span the edges, or a source is out of range.
        """
        check_ends(self.indptr, self.num_edges)
        check_non_decreasing(self.indptr)
        check_sources(self.indices, self.num_src)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Block":
        """Copy the block to a device; if it is there already, the result shares its arrays but not its caches."""
        if all_on(self._tensors().values(), device):
            return same_record(self)
        return replace(self, **self._moved(device, non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in ("indptr", "indices", *_EDGE_FIELDS)}

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in _EDGE_FIELDS if getattr(self, name) is not None)
        return f"Block({self.num_src} → {self.num_dst} nodes, {self.num_edges} edges{extra})"

    def _repr_html_(self) -> str:
        sizes = {"sources": self.num_src, "destinations": self.num_dst, "edges": self.num_edges}
        return html_table(f"Block: {format_bytes(self.nbytes)}", sizes)


def edge_destinations(indptr: Tensor, indices: Tensor) -> Tensor:
    """Return the destination of each edge of a CSR, [num_edges] in the dtype of `indices`."""
    rows = torch.arange(len(indptr) - 1, device=indices.device, dtype=indices.dtype)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=len(indices))
