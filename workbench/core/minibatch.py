"""`MiniBatch`: the nodes of a sampled batch and one block per layer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.conversions import BatchForms
from workbench.core.errors import INT64_MAX, check_ids, check_seed, check_tensors, check_type, check_vector
from workbench.core.exchange import Exchange, refuse_halo
from workbench.core.shared_storage import TensorRecord, all_on, pack, same_record
from workbench.core.split import Piece, select_blocks, share_rows, split_blocks
from workbench.core.units import format_bytes


def _as_tuple_of(kind: type, name: str, records: Iterable[Any]) -> tuple[Any, ...]:
    """Convert records to a tuple and check their type."""
    remedy = f"pass a list of {kind.__name__}s" + " (MiniBatch.from_dgl converts those of DGL)" * (kind is Block)
    check_type(name, records, Iterable, remedy)
    for position, record in enumerate(records := tuple(records)):
        check_type(f"{name}[{position}]", record, kind, remedy)
    return records


Positions = tuple[Tensor | None, ...]
"""For each block, the row of every edge in the data of the block it stems from; None: all rows in order."""


class Remembered:
    """A call without arguments that computes positions once; unlike `functools.cache`, it can be pickled."""

    def __init__(self, compute: Callable[..., Positions], *args: Any) -> None:
        self._compute, self._args = compute, args
        self._found: Positions | None = None

    def __call__(self) -> Positions:
        if self._found is None:
            self._found = self._compute(*self._args)
        return self._found


@dataclass(frozen=True, eq=False)
class CarriedData:
    """Data that a batch of DGL or PyG has besides its structure, none of which is gathered before a model is called.

    `MiniBatch.from_dgl` and `MiniBatch.from_pyg` attach it, micro-batches refer to their rows of it, and
    `workbench.interop` writes it where a model of the same library reads it.

    Args:
        source: the blocks of DGL, or the batch of PyG; a reference, so data that is released there is released here.
        nodes: int64 [num_inputs], row of every node in the node data; None: all rows in order.
        edges: returns the rows of the edges, which are computed when a model reads edge data.
        num_nodes: number of rows of the node data.
        num_edges: number of rows of the edge data of each block.
        held: micro-batches are written in the library's format, with all of this data, and held until their backward
            pass is over: the loop that `workbench.micro_batches` is for. A step of this library reads what its model
            asks for, and holds what autograd does.
    """

    source: Any
    nodes: Tensor | None
    edges: Callable[[], Positions]
    num_nodes: int
    num_edges: tuple[int, ...]
    held: bool = False

    def take(self, nodes: Tensor, edges: Callable[[], Positions]) -> "CarriedData":
        """Some rows, by their positions in the batch that has this data.

        Args:
            nodes: int64 [any], local ids of nodes in the batch.
            edges: returns positions of edges in each block of the batch.
        """
        taken = nodes if self.nodes is None else self.nodes[nodes.to(self.nodes.device)]
        return replace(self, nodes=taken, edges=partial(_composed, self.edges, edges))

    def of_part(self, whole: Sequence[Block], part: Sequence[Block], parent: Tensor) -> "CarriedData":
        """The rows of a micro-batch: it has the rows of its destinations complete and in order.

        Args:
            whole: blocks of the batch.
            part: blocks of the micro-batch.
            parent: int64 [num_inputs of the micro-batch], local id of every node in the batch.
        """
        offsets = [(of_whole.indptr, of_part.indptr) for of_whole, of_part in zip(whole, part, strict=True)]
        return self.take(parent, partial(_rows_of_part, offsets, parent))

    def rows_of_nodes(self, num_nodes: int) -> Tensor | None:
        """Return `nodes`.

        Args:
            num_nodes: number of nodes that the batch reads.
        """
        rows = self.num_nodes if self.nodes is None else len(self.nodes)
        if rows != num_nodes:
            raise ValueError(f"the batch has {num_nodes} nodes, but {rows} rows of node data; {_REMEDY}")
        return self.nodes

    def rows_of_edges(self, blocks: Sequence[Block]) -> Positions:
        """Return `edges()`."""
        positions, counts = self.edges(), [block.num_edges for block in blocks]
        rows = [count if some is None else len(some) for some, count in zip(positions, self.num_edges, strict=True)]
        if rows != counts:
            raise ValueError(f"the blocks have {counts} edges, but {rows} rows of edge data; {_REMEDY}")
        return positions


@dataclass(frozen=True, eq=False, repr=False)
class MiniBatch(TensorRecord, BatchForms):
    """A sampled batch: its nodes and one block per layer, input layer first.

    Because destinations are the prefix of sources, one `node_ids` serves every layer: the sources of a block are
    `node_ids[:block.num_src]`, the seeds are `node_ids[:blocks[-1].num_dst]`.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first; the destinations of a block are the sources of the next one, followed by the halo if
            there are `exchanges`.
        parent: int64 [num_inputs], maps each local id to the local id in the batch that this one was split from.
        exchanges: one per layer for a cooperative batch; None for a batch without halo.
        step: number of the batch, which enters the key of every random decision made for it.
        carried: node and edge data of the batch of DGL or PyG that this one was converted from; None without any.

    Raises:
        TypeError: if a tensor has another dtype, or `blocks` contains anything but blocks.
        ValueError: if blocks do not match each other or `node_ids`, or `step` is not a whole number.
    """

    node_ids: Tensor
    blocks: tuple[Block, ...]
    parent: Tensor | None = None
    exchanges: tuple[Exchange, ...] | None = None
    step: int = 0
    carried: CarriedData | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _as_tuple_of(Block, "blocks", self.blocks))
        check_tensors(node_ids=self.node_ids)
        check_vector("node_ids", self.node_ids, None, (torch.int64,))
        check_vector("parent", self.parent, self.num_inputs, (torch.int64,))
        check_seed(self.step, "step")
        if self.exchanges is not None:
            object.__setattr__(self, "exchanges", _as_tuple_of(Exchange, "exchanges", self.exchanges))
            if len(self.exchanges) != len(self.blocks):
                raise ValueError(f"{len(self.exchanges)} exchanges for {len(self.blocks)} blocks; pass one per block")
        for layer, (block, owned, halo) in enumerate(self._layers()):
            if block.num_src != owned + halo:
                raise ValueError(
                    f"block {layer} has {block.num_src} sources, but the batch provides {owned + halo} ({owned} owned "
                    f"+ {halo} halo); pass blocks input layer first: the destinations of one are the sources of the "
                    "next"
                )
        share_rows(self.blocks)

    def _layers(self) -> Iterator[tuple[Block, int, int]]:
        """Yield each block with the numbers of owned rows and halo rows available to it."""
        owned = self.num_inputs
        for layer, block in enumerate(self.blocks):
            yield block, owned, self.exchanges[layer].halo_ids.shape[0] if self.exchanges else 0
            owned = block.num_dst

    @property
    def num_inputs(self) -> int:
        """Number of nodes whose features the batch reads; those that this process owns if there are `exchanges`."""
        return self.node_ids.shape[0]

    @property
    def num_sources(self) -> int:
        """Number of rows that the first layer reads: `num_inputs`, and the halo if there are `exchanges`."""
        return self.blocks[0].num_src if self.blocks else self.num_inputs

    @property
    def num_seeds(self) -> int:
        """Number of seeds: the nodes that the batch computes outputs for."""
        return self.blocks[-1].num_dst if self.blocks else self.num_inputs

    @property
    def seeds(self) -> Tensor:
        """Raw-graph ids of the seeds, int64 [num_seeds]."""
        return self.node_ids[: self.num_seeds]

    @property
    def num_edges(self) -> int:
        return sum(block.num_edges for block in self.blocks)

    @property
    def device(self) -> torch.device:
        return self.node_ids.device

    def validate(self, *, num_nodes: int | None = None, unique: bool = True) -> "MiniBatch":
        """Check everything that kernels trust and return the batch; for batches built by hand.

        Args:
            num_nodes: number of nodes of the graph; None accepts any non-negative id.
            unique: reject a node that occurs twice; PyG's disjoint batches contain one copy per seed.

        Raises:
            ValueError: if a block is invalid or a node occurs twice.
            IndexError: if a node, a position in the parent or a row to send is out of range.
        """
        check_ids("node_ids", self.node_ids, INT64_MAX if num_nodes is None else num_nodes, unique=unique)
        if self.parent is not None:
            check_ids("parent", self.parent, INT64_MAX, unique=True)
        for layer, (block, owned, _) in enumerate(self._layers()):
            try:
                block.validate()
            except ValueError as error:
                raise ValueError(f"block {layer}: {error}") from error
            if self.exchanges is not None:
                self.exchanges[layer].validate(owned)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "MiniBatch":
        """Copy the batch to a device, to a GPU in one copy; blocks that share storage keep sharing it.

        A batch that is there already shares its arrays with the result, but not those that layers cache in its blocks.
        """
        if all_on(self._tensors().values(), device):
            exchanges = None if self.exchanges is None else tuple(same_record(e) for e in self.exchanges)
            share_rows(blocks := tuple(same_record(b) for b in self.blocks))
            return same_record(self, blocks=blocks, exchanges=exchanges)
        return self._with(self._moved(device, non_blocking))

    def pin_memory(self) -> "MiniBatch":
        """Copy all arrays to one buffer of pinned memory, from which `to` copies the batch to a GPU in one copy.

        `workbench.prefetch` and torch's `DataLoader(pin_memory=True)` do so in a background thread. Requires CUDA.
        """
        tensors = self._tensors()
        return self._with({**tensors, **pack(tensors)})

    def _with(self, tensors: dict[Any, Tensor | None]) -> "MiniBatch":
        """Return the batch with other tensors, named as by `_tensors`."""
        records = [
            replace(record, **{name: tensors[position, name] for name in record._tensors()})
            for position, record in enumerate(self._records())
        ]
        blocks = tuple(records[: len(self.blocks)])
        exchanges = None if self.exchanges is None else tuple(records[len(self.blocks) :])
        node_ids: Any = tensors["node_ids"]
        return replace(self, node_ids=node_ids, parent=tensors["parent"], blocks=blocks, exchanges=exchanges)

    def split(self, part: Tensor) -> "list[MiniBatch]":
        """Split the batch into one micro-batch per part of the seeds, whose gradients sum to those of the whole batch.

        A micro-batch contains its seeds in the batch's order, and every row complete and in order. Its `parent` maps
        local ids to those of this batch.

        Args:
            part: int64 or int32 [num_seeds], non-negative part number of each seed.

        Returns:
            One micro-batch per part that has seeds, in the order of the part numbers.

        Raises:
            TypeError: if `part` is not an integer tensor.
            ValueError: if `part` has another length or a negative number, or the batch has exchanges.

        Source: Betty (ASPLOS 2023), section 4.2.
        """
        refuse_halo(self.exchanges, "split")
        return self._from_pieces(split_blocks(self.node_ids, self.blocks, part))

    def select(self, groups: Sequence[Tensor]) -> "list[MiniBatch]":
        """Extract one micro-batch per group of seeds; unlike in `split`, groups may overlap and omit seeds.

        Args:
            groups: int64 [any] per group, positions of distinct seeds in the required order.

        Raises:
            ValueError: if the batch has exchanges, or a group contains a seed twice.
            IndexError: if a position is out of range.
        """
        refuse_halo(self.exchanges, "split")
        return self._from_pieces(select_blocks(self.node_ids, self.blocks, groups))

    def _from_pieces(self, pieces: Iterable[Piece]) -> "list[MiniBatch]":
        return [
            MiniBatch(
                piece.node_ids,
                piece.blocks,
                parent=piece.parent,
                step=self.step,
                carried=self.carried and self.carried.of_part(self.blocks, piece.blocks, piece.parent),
            )
            for piece in pieces
        ]

    def _records(self) -> list[Any]:
        return [*self.blocks, *(self.exchanges or ())]

    def _tensors(self) -> dict[Any, Tensor | None]:
        """Return all tensors: those of blocks and exchanges by (position, name), the others by name."""
        tensors: dict[Any, Tensor | None] = {"node_ids": self.node_ids, "parent": self.parent}
        for position, record in enumerate(self._records()):
            tensors |= {(position, name): tensor for name, tensor in record._tensors().items()}
        return tensors

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


_REMEDY = "its blocks were replaced after the conversion, so drop the data, dataclasses.replace(batch, carried=None)"


def _compose(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner.to(outer.device)]


def _composed(outer: Callable[[], Positions], inner: Callable[[], Positions]) -> Positions:
    return tuple(map(_compose, outer(), inner()))


def _rows_of_part(offsets: Sequence[tuple[Tensor, Tensor]], parent: Tensor) -> Positions:
    return tuple(_row_positions(*pair, parent) for pair in offsets)


def _row_positions(whole: Tensor, part: Tensor, parent: Tensor) -> Tensor:
    """Positions of a part's edges, from the offsets of both blocks' rows."""
    degrees = part.diff()
    shift = whole[parent[: len(degrees)]] - part[:-1]
    num_edges = int(part[-1])
    return torch.repeat_interleave(shift, degrees, output_size=num_edges) + torch.arange(num_edges, device=part.device)
