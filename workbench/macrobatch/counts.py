"""`count_macrobatches`: what macrobatches of any size would move and hold, from batches sampled before the run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import ID_DTYPES, INT64_MAX, check_at_least, check_ids, check_type, check_vector
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import total_bytes

ID_BYTES = 8
"""Bytes of a node id that is sent to another rank."""

_LENGTH_BYTES = 4  # of a row of another rank

_Batches = Iterable[MiniBatch | tuple[int, MiniBatch]]


@dataclass(frozen=True, eq=False)
class WindowUnions:
    """Distinct ids of every window of consecutive batches.

    An id that batch i reads counts in the window [first, last) if no batch of first, …, i − 1 has read it, that is if
    the last batch before i that did precedes `first`. A histogram of these last batches answers all windows.

    Args:
        sums: int64 [num_batches + 1, num_batches + 1]; `sums[i, first]` is the number of reads by the batches before i
            of ids whose last reader before precedes `first`.
    """

    sums: np.ndarray

    @staticmethod
    def of(batches: Iterable[Tensor]) -> "WindowUnions":
        """Count the ids of batches.

        Args:
            batches: int64 [any] per batch, each id once per batch, non-negative.
        """
        ids = [one.cpu().numpy() for one in batches]
        last_reader = np.zeros(max((int(one.max()) + 1 for one in ids if len(one)), default=0), np.int64)  # 0: none
        counts = np.zeros((len(ids) + 1, len(ids) + 1), np.int64)
        for number, one in enumerate(ids, 1):
            counts[number] = np.bincount(last_reader[one], minlength=len(ids) + 1)
            last_reader[one] = number
        return WindowUnions(counts.cumsum(0).cumsum(1))

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.sums) - 1

    def counts(self, size: int, *, num_batches: int | None = None) -> np.ndarray:
        """Return the distinct ids of each window of `size` batches, the last of which may have fewer.

        Args:
            size: batches per window, at least 1.
            num_batches: batches in all, of which those after the last one read nothing; None: those there are.

        Returns:
            int64 [windows].
        """
        first = np.arange(0, len(self) if num_batches is None else num_batches, size)
        last = np.minimum(first + size, len(self))
        first = np.minimum(first, len(self))
        return self.sums[last, first] - self.sums[first, first]


@dataclass(frozen=True, eq=False)
class ReadCounts:
    """What the batches of one rank read, with or without aggregates.

    Args:
        rows: distinct nodes of any window, whose rows are in memory together.
        fetched: those of them whose rows are not on this rank: those of other ranks, or all if it is the only one.
        stores: rows per node: 1, or 2 with aggregates.
        topology_bytes: int64 [num_batches], what other ranks send and are asked for while a batch is sampled.
        batch_bytes: int64 [num_batches], bytes of the batch in memory.
    """

    rows: WindowUnions
    fetched: WindowUnions
    stores: int
    topology_bytes: np.ndarray
    batch_bytes: np.ndarray


class InputHop(NamedTuple):
    """The last hop of a sampled batch.

    Args:
        expanded: |V|, nodes whose neighbours it samples: the destinations of the first block.
        new: |N(V)|, sources that are not among them.
        edges: sampled edges.
    """

    expanded: int
    new: int
    edges: int

    @staticmethod
    def of(mb: MiniBatch) -> "InputHop":
        """Count the last hop of a batch.

        Raises:
            ValueError: the batch has exchanges or no blocks.
        """
        refuse_halo(mb.exchanges, "counted")
        if not mb.blocks:
            raise ValueError("the batch has no block of an input layer; sample all layers of the model to count them")
        first = mb.blocks[0]
        return InputHop(first.num_dst, first.num_src - first.num_dst, first.num_edges)

    def sampled_bytes(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> int:
        """Bytes of a sampled input layer: |V|·S + |N(V)|·S + T_v + T_n + T_e.

        Args:
            row_bytes: S, bytes of a row of features.
            node_bytes: bytes of topology per node.
            edge_bytes: bytes of topology per edge.

        Source: BatchGNN, equation 4.
        """
        return (self.expanded + self.new) * (row_bytes + node_bytes) + self.edges * edge_bytes

    def aggregated_bytes(self, *, row_bytes: int, node_bytes: int = 8) -> int:
        """Bytes of an input layer whose aggregates are precomputed: 2·|V|·S + T_v.

        Args:
            row_bytes: S, bytes of a row of features, and of an aggregate.
            node_bytes: bytes of topology per node.

        Source: BatchGNN, equation 5.
        """
        return self.expanded * (2 * row_bytes + node_bytes)

    def aggregates_pay(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> bool:
        """Return whether aggregates take fewer bytes: |N(V)|·S + T_n + T_e > |V|·S."""
        sampled = self.sampled_bytes(row_bytes=row_bytes, node_bytes=node_bytes, edge_bytes=edge_bytes)
        return sampled > self.aggregated_bytes(row_bytes=row_bytes, node_bytes=node_bytes)


@dataclass(frozen=True, eq=False)
class MacrobatchCounts:
    """What one rank's batches read if all layers are sampled, and if aggregates replace the input layer.

    Args:
        sampled: with all layers.
        aggregated: without the input layer; two rows per node.
        input_hops: the last hop of each batch, of which BatchGNN's equations 4 and 5 speak.
        is_remote: other ranks own nodes, so that ids cross ranks too.
    """

    sampled: ReadCounts
    aggregated: ReadCounts
    input_hops: tuple[InputHop, ...]
    is_remote: bool

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.input_hops)


def count_macrobatches(
    batches: _Batches, *, owner: Tensor | None = None, rank: int = 0, source_bytes: int = 4
) -> MacrobatchCounts:
    """Count what macrobatches of some batches, of any size, would move and hold: the input of `plan_macrobatch`.

    Bytes are those that `Traffic` counts when a macrobatch is sampled in relays and its rows are staged: per node of
    another rank 8 bytes when its row is asked for, 8 when it is expanded, and 4 and those of the edges in the answer.
    Headers of messages, which do not depend on the batches' contents, are left out.

    Args:
        batches: consecutive batches of this rank, sampled with all layers, or pairs (step, batch); an epoch of
            `workbench.batches`, say. One of them is in memory at a time, and all their input ids.
        owner: integer [num_nodes], the rank that owns each node; None: this process samples alone and fetches all rows
            from its store.
        rank: this rank.
        source_bytes: bytes per sampled edge in an answer, besides its weight, type and id: 4, or 8 for graphs of 2³¹
            nodes or more.

    Raises:
        TypeError: something else than batches, or `owner` has another dtype.
        ValueError: a batch with exchanges or without blocks.
        IndexError: a node without an owner.
    """
    check_at_least("rank", rank, 0)
    check_vector("owner", owner, None, (*ID_DTYPES, torch.int16, torch.int8))
    hops, found = [], []
    for item in batches:
        mb = item[1] if isinstance(item, tuple) and len(item) == 2 else item
        check_type(
            "an item of batches", mb, MiniBatch, "pass batches or pairs (step, batch), as wb.batches yields them"
        )
        hops.append(InputHop.of(mb))
        node_ids = check_ids("node_ids", mb.node_ids, INT64_MAX if owner is None else len(owner)).cpu()
        is_foreign = None if owner is None else owner[node_ids.to(owner.device)].cpu() != rank
        found.append(_Batch(node_ids.clone(), is_foreign, hops[-1].expanded, *_bytes(mb, is_foreign, source_bytes)))
    sampled, aggregated = (_read_counts(found, owner is not None, input_layer=kept) for kept in (True, False))
    return MacrobatchCounts(sampled, aggregated, tuple(hops), owner is not None)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Ids of a batch, which of them are foreign, destinations of the first block, and bytes by layer."""

    node_ids: Tensor
    is_foreign: Tensor | None
    expanded: int
    topology_bytes: list[int]
    block_bytes: list[int]


def _bytes(mb: MiniBatch, is_foreign: Tensor | None, source_bytes: int) -> tuple[list[int], list[int]]:
    """Bytes that cross ranks, and bytes in memory, for each block."""
    topology = [0 if is_foreign is None else _answer_bytes(b, is_foreign, source_bytes) for b in mb.blocks]
    return topology, [total_bytes(block._tensors().values()) for block in mb.blocks]


def _answer_bytes(block: Block, is_foreign: Tensor, source_bytes: int) -> int:
    """Bytes of the requests and of the answers for the destinations of other ranks."""
    columns = (block.edge_ids, block.edge_weight, block.edge_type)
    edge_bytes = source_bytes + sum(values.element_size() for values in columns if values is not None)
    foreign = is_foreign[: block.num_dst]
    edges = int(block.in_degrees().cpu()[foreign].sum())
    return int(foreign.sum()) * (ID_BYTES + _LENGTH_BYTES) + edges * edge_bytes


def _read_counts(batches: Sequence[_Batch], is_remote: bool, *, input_layer: bool) -> ReadCounts:
    ids = [batch.node_ids if input_layer else batch.node_ids[: batch.expanded] for batch in batches]
    foreign = [one[b.is_foreign[: len(one)]] for one, b in zip(ids, batches, strict=True) if b.is_foreign is not None]
    rows, first = WindowUnions.of(ids), 0 if input_layer else 1
    fetched = WindowUnions.of(foreign) if is_remote else rows
    in_memory = [8 * len(one) + sum(batch.block_bytes[first:]) for one, batch in zip(ids, batches, strict=True)]
    topology = [sum(batch.topology_bytes[first:]) for batch in batches]
    return ReadCounts(
        rows, fetched, 1 if input_layer else 2, np.array(topology, np.int64), np.array(in_memory, np.int64)
    )
