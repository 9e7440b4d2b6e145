"""`Block`: one bipartite layer of a batch."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_at_least, check_tensors, check_vector, first_outside
from workbench.core.storage import move_all, total_bytes
from workbench.core.units import format_bytes
from workbench.kernels.checks import first_fall
from workbench.kernels.transpose import Transposed, transpose

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_EDGE_FIELDS = ("edge_ids", "edge_weight", "edge_type")


def check_rises(indptr: Tensor) -> None:
    """Refuse row offsets that fall: a kernel would read outside of the edges.

    Raises:
        ValueError: with the row.
    """
    if (row := first_fall(indptr)) is not None:
        raise ValueError(
            f"indptr must be non-decreasing, but it decreases after row {row}, from {int(indptr[row])} to "
            f"{int(indptr[row + 1])}; build it as the running sum of the in-degrees"
        )


def check_sources(indices: Tensor, num_nodes: int, kind: type[Exception] = ValueError) -> None:
    """Refuse a source that is no node.

    Raises:
        ValueError: (or another kind of error) with the source.
    """
    if (bad := first_outside(indices, 0, num_nodes)) is not None:
        raise kind(f"indices hold {bad}; sources lie in [0, {num_nodes}): pass local ids, or count all nodes")


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """One bipartite layer in local ids: for every destination the list of its sources (CSR).

    Destinations are the prefix of the sources: source `i < num_dst` and destination `i` are the same node. Construction
    checks dtypes, lengths and, on the CPU, the ends of `indptr`; kernels trust the rest, so call `validate` on a block
    made by hand.

    Args:
        indptr: int64 [num_dst + 1], where each destination's edges begin.
        indices: int32 [num_edges] (int64 from 2³¹ sources on), local source ids.
        num_src: sources.
        num_dst: destinations, at most `num_src`.
        edge_ids: int64 [num_edges], raw-graph edge ids.
        edge_weight: floating [num_edges].
        edge_type: integer [num_edges].

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: sizes that do not fit each other.
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
            self._check_ends()

    def _check_ends(self) -> None:
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        if first != 0 or last != self.num_edges:
            raise ValueError(f"indptr runs from {first} to {last}; it must run from 0 to the {self.num_edges} edges")

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
        """int64 [num_dst]: edges of every destination."""
        return self.indptr.diff()

    @cached_property
    def destinations(self) -> Tensor:
        """[num_edges] in the dtype of `indices`: the destination of every edge."""
        rows = torch.arange(self.num_dst, device=self.device, dtype=self.indices.dtype)
        return torch.repeat_interleave(rows, self.in_degrees(), output_size=self.num_edges)

    @cached_property
    def transposed(self) -> Transposed:
        """The same edges by source, for backward passes; built when first asked for."""
        return transpose(self.indptr, self.indices, self.num_src)

    def validate(self) -> "Block":
        """Read all that kernels trust, and return the block.

        Raises:
            ValueError: `indptr` falls or does not span the edges, or a source is out of range.
        """
        self._check_ends()
        check_rises(self.indptr)
        check_sources(self.indices, self.num_src)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Block":
        """The block on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in ("indptr", "indices", *_EDGE_FIELDS)}

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in _EDGE_FIELDS if getattr(self, name) is not None)
        return f"Block({self.num_src} → {self.num_dst} nodes, {self.num_edges} edges{extra})"

    def _repr_html_(self) -> str:
        sizes = {"sources": self.num_src, "destinations": self.num_dst, "edges": self.num_edges}
        rows = "".join(f"<tr><th>{name}</th><td>{size:,}</td></tr>" for name, size in sizes.items())
        return f"<table><caption>Block: {format_bytes(self.nbytes)}</caption><tbody>{rows}</tbody></table>"
