"""The records of a batch: `Block` (one bipartite layer), `Exchange` (rows of other processes) and `MiniBatch`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_at_least, check_vector
from workbench.core.storage import move_all, total_bytes
from workbench.core.units import format_bytes
from workbench.kernels.transpose import Transposed, transpose

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_EDGE_FIELDS = ("edge_ids", "edge_weight", "edge_type")


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """One bipartite layer in local ids: for every destination the list of its sources (CSR).

    Destinations are the prefix of the sources: source `i < num_dst` and destination `i` are the same node.

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
        check_vector("indptr", self.indptr, self.num_dst + 1, (torch.int64,))
        check_vector("indices", self.indices, None, ID_DTYPES)
        check_vector("edge_ids", self.edge_ids, self.num_edges, ID_DTYPES)
        check_vector("edge_weight", self.edge_weight, self.num_edges, FLOATS)
        check_vector("edge_type", self.edge_type, self.num_edges, (*ID_DTYPES, torch.int16, torch.uint8))

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
        """Read all of it and return it.

        Raises:
            ValueError: `indptr` falls or does not span the edges, or a source is out of range.
        """
        if int(self.indptr[0]) != 0 or int(self.indptr[-1]) != self.num_edges or bool((self.indptr.diff() < 0).any()):
            raise ValueError(f"indptr must rise from 0 to the number of edges, {self.num_edges}")
        if self.num_edges:
            low, high = (int(v) for v in torch.aminmax(self.indices))
            if low < 0 or high >= self.num_src:
                raise ValueError(f"indices hold {low if low < 0 else high}; sources lie in [0, {self.num_src})")
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Block":
        """The block on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in ("indptr", "indices", *_EDGE_FIELDS)}

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in _EDGE_FIELDS if getattr(self, name) is not None)
        return f"Block({self.num_src} → {self.num_dst} nodes, {self.num_edges} edges{extra})"


@dataclass(frozen=True, eq=False)
class Exchange:
    """Which rows a process sends and receives before one layer of a cooperative batch.

    Args:
        send_index: int64 [Σ send_counts], local rows to send, by receiver.
        send_counts: rows for each process.
        receive_counts: rows from each process; their sum is the size of the halo.
        halo_ids: int64 [Σ receive_counts], raw-graph ids of the rows received, by sender.

    Raises:
        TypeError: an index of another dtype.
        ValueError: counts that do not add up.
    """

    send_index: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    halo_ids: Tensor

    def __post_init__(self) -> None:
        check_vector("send_index", self.send_index, sum(self.send_counts), (torch.int64,))
        check_vector("halo_ids", self.halo_ids, sum(self.receive_counts), (torch.int64,))
        if len(self.send_counts) != len(self.receive_counts):
            raise ValueError(
                f"{len(self.send_counts)} send counts for {len(self.receive_counts)} receive counts; "
                "there is one of each per process"
            )

    def to(self, device: Any, *, non_blocking: bool = False) -> "Exchange":
        """The exchange on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {"send_index": self.send_index, "halo_ids": self.halo_ids}


@dataclass(frozen=True, eq=False, repr=False)
class MiniBatch:
    """A sampled batch: its nodes and one block a layer, input layer first.

    One `node_ids` serves every layer, since destinations are the prefix of sources: the sources of a block are
    `node_ids[:block.num_src]`, the seeds `node_ids[:blocks[-1].num_dst]`.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first; each one's destinations are the next one's sources (fewer sources in a block than
            destinations before it are not possible; with `exchanges` a block has its halo as further sources).
        parent: int64 [num_inputs], local id → local id in the batch this one was split from.
        exchanges: one a layer for a cooperative batch; None means no halo.
        step: number of the batch, part of the key of every random decision made for it.

    Raises:
        ValueError: blocks that do not fit each other or `node_ids`.
    """

    node_ids: Tensor
    blocks: tuple[Block, ...]
    parent: Tensor | None = None
    exchanges: tuple[Exchange, ...] | None = None
    step: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        check_vector("node_ids", self.node_ids, None, (torch.int64,))
        check_vector("parent", self.parent, self.num_inputs, (torch.int64,))
        if self.exchanges is not None and len(self.exchanges) != len(self.blocks):
            raise ValueError(f"{len(self.exchanges)} exchanges for {len(self.blocks)} blocks; there is one a block")
        owned = self.num_inputs
        for layer, block in enumerate(self.blocks):
            halo = self.exchanges[layer].halo_ids.shape[0] if self.exchanges else 0
            if block.num_src != owned + halo:
                raise ValueError(
                    f"block {layer} has {block.num_src} sources; {owned} nodes and a halo of {halo} come in"
                )
            owned = block.num_dst

    @property
    def num_inputs(self) -> int:
        """Nodes whose features the batch reads."""
        return self.node_ids.shape[0]

    @property
    def num_seeds(self) -> int:
        """Nodes that the batch is for."""
        return self.blocks[-1].num_dst if self.blocks else self.num_inputs

    @property
    def seeds(self) -> Tensor:
        """int64 [num_seeds], raw-graph ids."""
        return self.node_ids[: self.num_seeds]

    @property
    def num_edges(self) -> int:
        return sum(block.num_edges for block in self.blocks)

    @property
    def device(self) -> torch.device:
        return self.node_ids.device

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays, each storage once."""
        return total_bytes(self._tensors().values())

    def to(self, device: Any, *, non_blocking: bool = False) -> "MiniBatch":
        """The batch on another device; blocks that share storage go on sharing it."""
        moved = move_all(self._tensors(), device, non_blocking=non_blocking)
        records = [
            replace(record, **{name: moved[place, name] for name in record._tensors()})
            for place, record in enumerate(self._records())
        ]
        layers = len(self.blocks)
        exchanges = None if self.exchanges is None else tuple(records[layers:])
        own = {"node_ids": moved["node_ids"], "parent": moved["parent"]}
        return replace(self, **own, blocks=tuple(records[:layers]), exchanges=exchanges)

    def split(self, part: Tensor) -> "list[MiniBatch]":
        """The micro-batches of a partition of the seeds; see `workbench.core.split.split_batch`."""
        from workbench.core.split import split_batch

        return split_batch(self, part)

    def to_dgl(self) -> list[Any]:
        """The blocks as DGL blocks with raw-graph ids; see `workbench.core.interop.to_dgl`."""
        from workbench.core.interop import to_dgl

        return to_dgl(self)

    @staticmethod
    def from_dgl(blocks: Sequence[Any], step: int = 0) -> "MiniBatch":
        """The batch of a list of DGL blocks; see `workbench.core.interop.from_dgl`."""
        from workbench.core.interop import from_dgl

        return from_dgl(blocks, step=step)

    def to_pyg(self) -> Any:
        """The batch in PyG's `edge_index` form; see `workbench.core.interop.to_pyg`."""
        from workbench.core.interop import to_pyg

        return to_pyg(self)

    def _records(self) -> list[Any]:
        return [*self.blocks, *(self.exchanges or ())]

    def _tensors(self) -> dict[Any, Tensor | None]:
        own: dict[Any, Tensor | None] = {"node_ids": self.node_ids, "parent": self.parent}
        inner = enumerate(self._records())
        return own | {(place, name): tensor for place, record in inner for name, tensor in record._tensors().items()}

    def __repr__(self) -> str:
        layers = ", ".join(f"{b.num_src}→{b.num_dst} ({b.num_edges} edges)" for b in self.blocks)
        return f"MiniBatch({self.num_inputs} inputs → {self.num_seeds} seeds: {layers}; {format_bytes(self.nbytes)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{layer}</td><td>{b.num_src:,}</td><td>{b.num_dst:,}</td><td>{b.num_edges:,}</td></tr>"
            for layer, b in enumerate(self.blocks)
        )
        head = "<tr><th>layer</th><th>sources</th><th>destinations</th><th>edges</th></tr>"
        caption = f"MiniBatch: {self.num_inputs:,} inputs → {self.num_seeds:,} seeds, {format_bytes(self.nbytes)}"
        return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{rows}</tbody></table>"
