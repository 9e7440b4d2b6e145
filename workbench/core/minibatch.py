"""`MiniBatch`: the nodes of a sampled batch and one block a layer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_seed, check_tensors, check_type, check_vector
from workbench.core.exchange import Exchange
from workbench.core.storage import move_all, total_bytes
from workbench.core.units import format_bytes


def _records_of(name: str, records: Iterable[Any], kind: type) -> tuple[Any, ...]:
    """The records as a tuple.

    Raises:
        TypeError: one of another kind.
    """
    remedy = f"pass a list of {kind.__name__}s" + " (MiniBatch.from_dgl takes those of DGL)" * (kind is Block)
    check_type(name, records, Iterable, remedy)
    for position, record in enumerate(records := tuple(records)):
        check_type(f"{name}[{position}]", record, kind, remedy)
    return records


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
        TypeError: a tensor of another dtype, or something else than blocks.
        ValueError: blocks that do not fit each other or `node_ids`, or a step that is no whole number.
    """

    node_ids: Tensor
    blocks: tuple[Block, ...]
    parent: Tensor | None = None
    exchanges: tuple[Exchange, ...] | None = None
    step: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _records_of("blocks", self.blocks, Block))
        check_tensors(node_ids=self.node_ids)
        check_vector("node_ids", self.node_ids, None, (torch.int64,))
        check_vector("parent", self.parent, self.num_inputs, (torch.int64,))
        check_seed(self.step, "step")
        if self.exchanges is not None:
            object.__setattr__(self, "exchanges", _records_of("exchanges", self.exchanges, Exchange))
            self._check_one_per_block(len(self.exchanges))
        for layer, (block, owned, halo) in enumerate(self._layers()):
            if block.num_src != owned + halo:
                raise ValueError(
                    f"block {layer} has {block.num_src} sources, but the batch provides {owned + halo} ({owned} owned "
                    f"+ {halo} halo); pass blocks input layer first, each one's destinations the next one's sources"
                )

    def _check_one_per_block(self, count: int) -> None:
        if count != len(self.blocks):
            raise ValueError(f"{count} exchanges for {len(self.blocks)} blocks; give one per block")

    def _layers(self) -> Iterator[tuple[Block, int, int]]:
        """For every block the rows that it finds: owned ones, and the halo."""
        owned = self.num_inputs
        for layer, block in enumerate(self.blocks):
            yield block, owned, self.exchanges[layer].halo_ids.shape[0] if self.exchanges else 0
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

    def validate(self, *, num_nodes: int | None = None, unique: bool = True) -> "MiniBatch":
        """Read all that kernels trust, and return the batch; for batches made by hand.

        Args:
            num_nodes: of the graph; None: any id that is not negative will do.
            unique: refuse a node that occurs twice; PyG's disjoint batches hold one copy per seed.

        Raises:
            ValueError: a block that is not valid (see `Block.validate`), or a node that occurs twice.
            IndexError: a node, a position in the parent or a row to send that is out of range.
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
