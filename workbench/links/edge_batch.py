"""`EdgeBatch`: positive and negative node pairs for link prediction, as positions in their distinct nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    check_at_least,
    check_ids,
    check_tensors,
    check_type,
    check_vector,
    find_out_of_range,
)
from workbench.core.graph import Graph
from workbench.core.shared_storage import TensorRecord, move_packed
from workbench.core.units import format_bytes, html_table
from workbench.kernels.relabel import relabeler

_FIELDS = ("seeds", "src", "dst", "neg_src", "neg_dst", "relation", "chunk", "parent", "parent_pairs")


@dataclass(frozen=True, eq=False, repr=False)
class EdgeBatch(TensorRecord):
    """Positive node pairs and their negatives, in one of two forms.

    - Per pair: `neg_src` and `neg_dst` are vectors; the negative pairs of pair `i` are entries `i · num_negatives` to
      `(i + 1) · num_negatives − 1` of both.
    - Shared: `neg_src`, `neg_dst` or both are [chunks, count], and pair `i` is scored against row `chunk[i]`: each node
      of `neg_src[chunk[i]]` replaces its source, each of `neg_dst[chunk[i]]` its destination. `per_pair` lists them.

    Args:
        seeds: int64 [num_seeds], distinct raw-graph ids of the nodes of all pairs: the seeds to sample.
        src: int64 [num_pairs], positions in `seeds`.
        dst: int64 [num_pairs], positions in `seeds`.
        neg_src: int64 [num_pairs · num_negatives] or [chunks, count], positions in `seeds`.
        neg_dst: int64 [num_pairs · num_negatives] or [chunks, count], positions in `seeds`.
        relation: int32 or int64 [num_pairs], relation of each pair and of its negatives.
        chunk: int64 [num_pairs], row of the shared negatives of each pair; None for negatives per pair.
        parent: int64 [num_seeds], positions of the seeds in the batch that this one was split from.
        parent_pairs: int64 [num_pairs], positions of the pairs in the batch that this one was split from.

    Raises:
        TypeError: if a tensor has another dtype.
        ValueError: if sizes do not match.

    >>> batch = EdgeBatch.from_pairs(torch.tensor([4, 9]), torch.tensor([9, 2]), negative_dst=torch.tensor([[5], [4]]))
    >>> batch.seeds, batch.neg_src, batch.neg_dst
    (tensor([4, 9, 2, 5]), tensor([0, 1]), tensor([3, 0]))
    """

    seeds: Tensor
    src: Tensor
    dst: Tensor
    neg_src: Tensor | None = None
    neg_dst: Tensor | None = None
    relation: Tensor | None = None
    chunk: Tensor | None = None
    parent: Tensor | None = None
    parent_pairs: Tensor | None = None

    def __post_init__(self) -> None:
        check_tensors(seeds=self.seeds, src=self.src, dst=self.dst)
        check_vector("seeds", self.seeds, None, (torch.int64,))
        check_vector("src", self.src, None, (torch.int64,))
        for name in ("dst", "chunk", "parent_pairs"):
            check_vector(name, getattr(self, name), self.num_pairs, (torch.int64,))
        check_vector("relation", self.relation, self.num_pairs, ID_DTYPES)
        check_vector("parent", self.parent, len(self.seeds), (torch.int64,))
        _check_negatives(self.neg_src, self.neg_dst, self.chunk, self.num_pairs)

    @classmethod
    def from_pairs(
        cls,
        src: Tensor,
        dst: Tensor,
        *,
        negative_src: Tensor | None = None,
        negative_dst: Tensor | None = None,
        relation: Tensor | None = None,
        chunks: int | None = None,
    ) -> "EdgeBatch":
        """Build a batch from pairs of raw-graph ids; seeds are ordered by first appearance in src, dst and negatives.

        Args:
            src: int32 or int64 [num_pairs], raw-graph ids.
            dst: int32 or int64 [num_pairs], raw-graph ids.
            negative_src: int32 or int64, raw-graph ids: [num_pairs, num_negatives], or flattened pair by pair, by
                default the positive pair's source if `negative_dst` is given; with `chunks` [chunks, count].
            negative_dst: int32 or int64, raw-graph ids in the same layouts; by default the positive pair's destination.
            relation: int32 or int64 [num_pairs], relation of each pair.
            chunks: number of contiguous chunks of pairs (equal in size, or larger by one) that share negatives, at most
                the number of pairs; None: every pair has negatives of its own.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if lengths do not match.
            IndexError: if an id is negative.
        """
        positive = {"src": check_ids("src", src, INT64_MAX), "dst": check_ids("dst", dst, INT64_MAX)}
        check_vector("dst", positive["dst"], len(positive["src"]), (torch.int64,))
        given = {
            name: _check_all_ids(f"negative_{name}", ids)
            for name, ids in (("src", negative_src), ("dst", negative_dst))
            if ids is not None
        }
        if chunks is None:
            negatives = _negatives_per_pair(positive, given)
        else:
            negatives = _shared_negatives(len(positive["src"]), given, chunks)
        chunk = negatives.pop("chunk", None)
        seeds, ends = _relabel(positive | negatives)
        return cls(seeds, **ends, relation=relation, chunk=chunk)

    @property
    def num_pairs(self) -> int:
        return self.src.shape[0]

    @property
    def num_negatives(self) -> int:
        """Number of negative pairs per positive pair."""
        if self.chunk is not None:
            return sum(ids.shape[1] for ids in self._shared().values())
        return 0 if self.neg_src is None else self.neg_src.shape[0] // max(1, self.num_pairs)

    @property
    def num_chunks(self) -> int:
        """Number of chunks of pairs that share negatives; 0 for negatives per pair."""
        return 0 if self.chunk is None else len(next(iter(self._shared().values())))

    def chunk_sizes(self) -> list[int]:
        """Return the number of pairs per chunk, of which `from_pairs` and `split` list one after another."""
        return [] if self.chunk is None else torch.bincount(self.chunk, minlength=self.num_chunks).tolist()

    @property
    def device(self) -> torch.device:
        return self.seeds.device

    def target_edges(self, graph: Graph, *, reverse: bool = True) -> Tensor:
        """Return the ids of the graph's edges between the positive pairs; exclude them from sampling to avoid leakage.

        Args:
            graph: the graph to be sampled.
            reverse: include the reverse edges of the pairs.

        Returns:
            Distinct int64 edge ids in ascending order, of edges of any type.
        """
        check_type("graph", graph, Graph, "pass the Graph to be sampled (graph_from_dgl and graph_from_pyg make one)")
        src, dst = self.seeds[self.src], self.seeds[self.dst]
        edge_ids = [graph.find_edges(src, dst)] + ([graph.find_edges(dst, src)] if reverse else [])
        return torch.unique(torch.cat(edge_ids))

    def per_pair(self) -> "EdgeBatch":
        """List shared negatives per pair: first those that replace its source, then those that replace its destination.

        Returns:
            The same pairs and negative pairs, with 16 bytes per negative pair; the batch itself if none are shared.
        """
        if self.chunk is None:
            return self
        src, dst = _corrupted_pairs(self.src, self.dst, self._shared(), self.chunk)
        return replace(self, neg_src=src, neg_dst=dst, chunk=None)

    def select(self, pairs: Tensor) -> "EdgeBatch":
        """Extract some pairs with their negatives; the new batch has only their nodes as seeds.

        Its `parent` and `parent_pairs` say where its seeds and pairs are in this batch, so that
        `mb.select([part.parent for part in parts])` gives the micro-batches of a batch `mb` sampled for `seeds`.

        Args:
            pairs: int32 or int64 [any], positions of pairs.

        Raises:
            IndexError: if a position is out of range.
        """
        pairs = check_ids("pairs", pairs, self.num_pairs)
        chunk = None
        if self.chunk is not None:
            rows, chunk = torch.unique(self.chunk[pairs], return_inverse=True)
        else:
            per_pair = self.num_negatives
            rows = (pairs[:, None] * per_pair + torch.arange(per_pair, device=self.device)).flatten()
        negatives = {name: ids[rows] for name in ("neg_src", "neg_dst") if (ids := getattr(self, name)) is not None}
        parent, ends = _relabel({"src": self.src[pairs], "dst": self.dst[pairs]} | negatives)
        relation = None if self.relation is None else self.relation[pairs]
        return EdgeBatch(self.seeds[parent], **ends, relation=relation, chunk=chunk, parent=parent, parent_pairs=pairs)

    def split(self, part: Tensor) -> "list[EdgeBatch]":
        """Split the batch into one batch per part of the pairs, in the order of the part numbers.

        Every pair keeps its negatives, so that scores and losses of the parts are those of the whole; negatives of a
        chunk are repeated in every part that has pairs of it.

        Args:
            part: int32 or int64 [num_pairs], non-negative part number of each pair.

        Raises:
            ValueError: if `part` has another length.
            IndexError: if a part number is negative.
        """
        labels = check_ids("part", part, INT64_MAX)
        check_vector("part", labels, self.num_pairs, (torch.int64,))
        order = torch.argsort(labels, stable=True)
        _, counts = torch.unique_consecutive(labels[order], return_counts=True)
        return [self.select(pairs) for pairs in order.split(counts.tolist())] if self.num_pairs else []

    @cached_property
    def chunk_layout(self) -> tuple[Tensor, Tensor | None]:
        """Pairs laid out by chunks, with as many columns as the largest chunk has pairs; for shared negatives.

        Pairs, int64 [chunks, size], where smaller chunks are filled up with pair 0; and where each pair is in them,
        int64 [num_pairs], or None if the pairs are there one after another.
        """
        assert self.chunk is not None
        every = torch.arange(self.num_pairs, device=self.device)
        size = self.num_pairs // max(1, self.num_chunks)
        if size * self.num_chunks == self.num_pairs and torch.equal(self.chunk, every // max(1, size)):
            return every.view(-1, max(1, size)), None
        counts = torch.bincount(self.chunk, minlength=self.num_chunks)
        size, order = int(counts.max()), torch.argsort(self.chunk, stable=True)
        chunk = self.chunk[order]
        slots = torch.empty_like(every)
        slots[order] = chunk * size + every - (counts.cumsum(0) - counts)[chunk]
        at = every.new_zeros(self.num_chunks * size).index_copy_(0, slots, every)
        return at.view(-1, size), slots

    def check_positions(self) -> None:
        """Refuse positions of ends beyond the seeds; the result is remembered.

        Raises:
            IndexError: if a position is out of range.
        """
        if "has_checked_positions" in self.__dict__:
            return
        ends = [ids.reshape(-1) for ids in (self.src, self.dst, self.neg_src, self.neg_dst) if ids is not None]
        if find_out_of_range(torch.cat(ends), 0, len(self.seeds)) is not None:
            self.validate()  # names it
        self.__dict__["has_checked_positions"] = True

    def to(self, device: Any, *, non_blocking: bool = False) -> "EdgeBatch":
        """Copy the batch to a device. On the way to a GPU its positions are checked and its chunks laid out.

        Raises:
            IndexError: if a position is out of range, on the way to a GPU.
        """
        if self.device.type != "cpu" or torch.device(device).type != "cuda":
            return super().to(device, non_blocking=non_blocking)
        self.check_positions()  # here, where nothing waits for it
        at, slots = (None, None) if self.chunk is None else self.chunk_layout
        moved: dict[Any, Any] = move_packed({**self._tensors(), "at": at, "slots": slots}, device)
        new = replace(self, **{name: moved[name] for name in _FIELDS})
        new.__dict__["has_checked_positions"] = True
        if at is not None:
            new.__dict__["chunk_layout"] = moved["at"], moved["slots"]
        return new

    def validate(self) -> "EdgeBatch":
        """Check every position and return the batch.

        Raises:
            IndexError: if a position is out of range.
            ValueError: if a seed occurs twice.
        """
        check_ids("seeds", self.seeds, INT64_MAX, unique=True)
        for name in ("src", "dst", "neg_src", "neg_dst"):
            positions = getattr(self, name)
            if positions is not None:
                check_ids(name, positions.reshape(-1), len(self.seeds))
        if self.chunk is not None:
            check_ids("chunk", self.chunk, self.num_chunks)
        for name, positions in (("parent", self.parent), ("parent_pairs", self.parent_pairs)):
            if positions is not None:
                check_ids(name, positions, INT64_MAX, unique=name == "parent")
        return self

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in _FIELDS}

    def _shared(self) -> dict[str, Tensor]:
        """Return the ends that shared negatives replace."""
        ends = {"neg_src": self.neg_src, "neg_dst": self.neg_dst}
        return {name: ids for name, ids in ends.items() if ids is not None}

    def __repr__(self) -> str:
        relation = "" if self.relation is None else ", relation"
        shared = f" shared in {self.num_chunks} chunks" if self.num_chunks else ""
        pairs = f"{self.num_pairs} pairs, {self.num_negatives} negatives each{shared}{relation}"
        return f"EdgeBatch({pairs}, {len(self.seeds)} seeds; {format_bytes(self.nbytes)})"

    def _repr_html_(self) -> str:
        cells = {"pairs": self.num_pairs, "negatives each": self.num_negatives, "seeds": len(self.seeds)}
        return html_table(f"EdgeBatch, {format_bytes(self.nbytes)}", cells)


_SMALL_MAP = 1 << 22  # ids below this need a map of 16 MiB, which all batches share

_MAP_PER_ID = 64  # size of a map, relative to the ids, up to which it takes less time than sorting


def first_appearances(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance, and each id's position among them.

    Args:
        ids: int64 [any].

    >>> first_appearances(torch.tensor([7, 3, 7, 5]))
    (tensor([7, 3, 5]), tensor([0, 1, 0, 2]))
    """
    limit = int(ids.max()) + 1 if len(ids) and ids.device.type == "cpu" else 0
    if 0 < limit <= max(_SMALL_MAP, _MAP_PER_ID * len(ids)):
        with relabeler(limit, ids[:0]) as label:
            position = label(ids).long()
            return label.node_ids.clone(), position
    return first_appearances_torch(ids)


def first_appearances_torch(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `first_appearances` in plain torch, on any device, by sorting."""
    values, rank = torch.unique(ids, return_inverse=True)
    positions = torch.arange(len(ids), device=ids.device)
    order = torch.argsort(torch.full_like(values, len(ids)).scatter_reduce_(0, rank, positions, "amin"))
    position = torch.empty_like(order)
    position[order] = positions[: len(order)]
    return values[order], position[rank]


def _relabel(ends: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the distinct ids of all ends, and each end as positions among them."""
    ids, positions = first_appearances(torch.cat([end.reshape(-1) for end in ends.values()]))
    pieces = positions.split([end.numel() for end in ends.values()])
    return ids, {name: piece.view(end.shape) for (name, end), piece in zip(ends.items(), pieces, strict=True)}


def _negatives_per_pair(positive: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Flatten the negatives pair by pair; an end that is not given is that of the positive pair."""
    num_pairs = len(positive["src"])
    per_pair = max((ids.numel() for ids in given.values()), default=0) // max(1, num_pairs)
    for name, ids in given.items():
        if ids.numel() != num_pairs * per_pair:
            raise ValueError(
                f"negative_{name} has {ids.numel()} ids, but {num_pairs} pairs with {per_pair} negatives each need "
                f"{num_pairs * per_pair}; pass equally many for every pair"
            )
        if ids.dim() > 1 and len(ids) != num_pairs:
            raise ValueError(
                f"negative_{name} has shape {tuple(ids.shape)}; for {num_pairs} pairs it must be "
                f"[{num_pairs}, {per_pair}], or that flattened pair by pair"
            )
    ends = {name: given.get(name, positive[name].repeat_interleave(per_pair)) for name in positive} if given else {}
    return {f"neg_{name}": ids.reshape(-1) for name, ids in ends.items()}


def _shared_negatives(num_pairs: int, given: Mapping[str, Tensor], chunks: int) -> dict[str, Tensor]:
    """Return the negatives by name, and the chunk of each pair: contiguous chunks of equal size, or one pair more."""
    check_at_least("chunks", chunks, 1, most=max(1, num_pairs))
    if not given:
        raise ValueError(f"chunks is {chunks}, but there are no negatives; pass negative_src, negative_dst or both")
    for name, ids in given.items():
        if ids.dim() != 2 or len(ids) != chunks:
            raise ValueError(
                f"negative_{name} has shape {tuple(ids.shape)}; for {chunks} chunks it must be [{chunks}, count]"
            )
    pairs = torch.arange(num_pairs, device=next(iter(given.values())).device)
    return {f"neg_{name}": ids for name, ids in given.items()} | {"chunk": pairs * chunks // max(1, num_pairs)}


def _corrupted_pairs(src: Tensor, dst: Tensor, shared: Mapping[str, Tensor], chunk: Tensor) -> tuple[Tensor, Tensor]:
    """List shared negatives pair by pair: both ends of every negative pair.

    Args:
        src: int64 [num_pairs].
        dst: int64 [num_pairs].
        shared: [chunks, count] under "neg_src", "neg_dst" or both.
        chunk: int64 [num_pairs].
    """
    columns: tuple[list[Tensor], list[Tensor]] = [], []
    for name, ids in shared.items():
        rows = ids[chunk]
        columns[0].append(rows if name == "neg_src" else src[:, None].expand_as(rows))
        columns[1].append(rows if name == "neg_dst" else dst[:, None].expand_as(rows))
    return torch.cat(columns[0], 1).flatten(), torch.cat(columns[1], 1).flatten()


def _check_all_ids(name: str, ids: Tensor) -> Tensor:
    """Check ids of any shape and return them as int64."""
    flat = check_ids(name, ids.reshape(-1) if isinstance(ids, Tensor) else ids, INT64_MAX)
    return flat.view(ids.shape)


def _check_negatives(neg_src: Tensor | None, neg_dst: Tensor | None, chunk: Tensor | None, num_pairs: int) -> None:
    """Check the shapes and dtypes of the negatives of an `EdgeBatch`."""
    given = {name: ids for name, ids in (("neg_src", neg_src), ("neg_dst", neg_dst)) if ids is not None}
    check_tensors(**given)
    if chunk is not None and not given:
        raise ValueError("chunk is given without negatives; pass neg_src, neg_dst or both as [chunks, count]")
    if chunk is None and len(given) == 1:
        raise ValueError("pass both neg_src and neg_dst, or use EdgeBatch.from_pairs, which fills in a missing end")
    for name, ids in given.items():
        if ids.dim() != (1 if chunk is None else 2):
            expected = "one dimension; with chunk it may be" if chunk is None else "two dimensions:"
            raise ValueError(f"{name} has shape {tuple(ids.shape)}; it must have {expected} [chunks, count]")
    length = min((len(ids) for ids in given.values()), default=0)
    if chunk is None:
        length = length // max(1, num_pairs) * num_pairs
    for name, ids in given.items():
        check_vector(name, ids, length, (torch.int64,), columns=True)
