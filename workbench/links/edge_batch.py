"""`EdgeBatch`: positive and negative node pairs for link prediction, as positions in their distinct nodes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, INT64_MAX, check_ids, check_tensors, check_type, check_vector
from workbench.core.graph import Graph
from workbench.core.html import html_table
from workbench.core.shared_storage import move_all, total_bytes
from workbench.core.units import format_bytes

_FIELDS = ("seeds", "src", "dst", "neg_src", "neg_dst", "relation")


def first_appearances(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance, and each id's position among them.

    Args:
        ids: int64 [any].

    >>> first_appearances(torch.tensor([7, 3, 7, 5]))
    (tensor([7, 3, 5]), tensor([0, 1, 0, 2]))
    """
    values, rank = torch.unique(ids, return_inverse=True)
    positions = torch.arange(len(ids), device=ids.device)
    order = torch.argsort(torch.full_like(values, len(ids)).scatter_reduce_(0, rank, positions, "amin"))
    position = torch.empty_like(order)
    position[order] = positions[: len(order)]
    return values[order], position[rank]


def _negatives(num_pairs: int, name: str, ids: Tensor | None, positive: Tensor, per_pair: int) -> Tensor:
    """Return one end of the negative pairs; it defaults to that of the positive pairs."""
    if ids is None:
        return positive.repeat_interleave(per_pair)
    if ids.numel() != num_pairs * per_pair:
        raise ValueError(
            f"{name} has {ids.numel()} ids, but {num_pairs} pairs with {per_pair} negatives each need "
            f"{num_pairs * per_pair}; pass equally many for every pair"
        )
    return ids.reshape(-1)


def _flat_ids(name: str, ids: Tensor) -> Tensor:
    return check_ids(name, ids.reshape(-1) if isinstance(ids, Tensor) else ids, INT64_MAX)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeBatch:
    """Positive node pairs, each with the same number of negative pairs.

    Args:
        seeds: int64 [num_seeds], distinct raw-graph ids of the nodes of all pairs: the seeds to sample.
        src: int64 [num_pairs], positions in `seeds`.
        dst: int64 [num_pairs], positions in `seeds`.
        neg_src: int64 [num_pairs · num_negatives], positions in `seeds`; the negatives of pair `i` are entries
            `i · num_negatives` to `(i + 1) · num_negatives − 1`.
        neg_dst: int64 [num_pairs · num_negatives], positions in `seeds`; required if `neg_src` is given.
        relation: integer [num_pairs], relation of each pair and of its negatives.

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

    def __post_init__(self) -> None:
        check_tensors(seeds=self.seeds, src=self.src, dst=self.dst)
        check_vector("seeds", self.seeds, None, (torch.int64,))
        check_vector("src", self.src, None, (torch.int64,))
        check_vector("dst", self.dst, self.num_pairs, (torch.int64,))
        check_vector("relation", self.relation, self.num_pairs, ID_DTYPES)
        if (self.neg_src is None) != (self.neg_dst is None):
            raise ValueError("pass both neg_src and neg_dst, or use EdgeBatch.from_pairs, which fills in a missing end")
        if self.neg_src is not None:
            check_tensors(neg_src=self.neg_src, neg_dst=self.neg_dst)
            check_vector("neg_src", self.neg_src, None, (torch.int64,))
        count = self.num_pairs * self.num_negatives
        check_vector("neg_src", self.neg_src, count, (torch.int64,))
        check_vector("neg_dst", self.neg_dst, count, (torch.int64,))

    @classmethod
    def from_pairs(
        cls,
        src: Tensor,
        dst: Tensor,
        *,
        negative_src: Tensor | None = None,
        negative_dst: Tensor | None = None,
        relation: Tensor | None = None,
    ) -> "EdgeBatch":
        """Build a batch from pairs of raw-graph ids; seeds are ordered by first appearance in src, dst and negatives.

        Args:
            src: int32 or int64 [num_pairs], raw-graph ids.
            dst: int32 or int64 [num_pairs], raw-graph ids.
            negative_src: int32 or int64 [num_pairs, num_negatives], or flattened pair by pair, raw-graph ids; by
                default the positive pair's source, if `negative_dst` is given.
            negative_dst: int32 or int64 [num_pairs, num_negatives], or flattened pair by pair, raw-graph ids; by
                default the positive pair's destination, if `negative_src` is given.
            relation: integer [num_pairs], relation of each pair.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if lengths do not match.
            IndexError: if an id is negative.
        """
        sources, destinations = check_ids("src", src, INT64_MAX), check_ids("dst", dst, INT64_MAX)
        pairs = len(sources)
        check_vector("dst", destinations, pairs, (torch.int64,))
        named = {"negative_src": negative_src, "negative_dst": negative_dst}
        given = {name: _flat_ids(name, ids) for name, ids in named.items() if ids is not None}
        ends = [sources, destinations]
        if given:
            per_pair = max(ids.numel() for ids in given.values()) // max(1, pairs)
            ends.append(_negatives(pairs, "negative_src", given.get("negative_src"), sources, per_pair))
            ends.append(_negatives(pairs, "negative_dst", given.get("negative_dst"), destinations, per_pair))
        seeds, positions = first_appearances(torch.cat(ends))
        return cls(seeds, *positions.split([len(end) for end in ends]), relation=relation)

    @property
    def num_pairs(self) -> int:
        return self.src.shape[0]

    @property
    def num_negatives(self) -> int:
        """Number of negative pairs per positive pair."""
        return 0 if self.neg_src is None else self.neg_src.shape[0] // max(1, self.num_pairs)

    @property
    def device(self) -> torch.device:
        return self.seeds.device

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, counting each storage once."""
        return total_bytes(self._tensors().values())

    def target_edges(self, graph: Graph, *, reverse: bool = True) -> Tensor:
        """Return the ids of the graph's edges between the positive pairs; exclude them from sampling to avoid leakage.

        Args:
            graph: the graph to be sampled.
            reverse: include the reverse edges of the pairs.

        Returns:
            Distinct int64 edge ids in ascending order.
        """
        check_type("graph", graph, Graph, "pass the Graph to be sampled (graph_from_dgl and graph_from_pyg make one)")
        src, dst = self.seeds[self.src], self.seeds[self.dst]
        edge_ids = [graph.find_edges(src, dst)] + ([graph.find_edges(dst, src)] if reverse else [])
        return torch.unique(torch.cat(edge_ids))

    def select(self, pairs: Tensor) -> "EdgeBatch":
        """Extract some pairs with their negatives; the new batch has only their nodes as seeds.

        Args:
            pairs: int32 or int64 [any], positions of pairs.

        Raises:
            IndexError: if a position is out of range.
        """
        pairs = check_ids("pairs", pairs, self.num_pairs)
        per_pair = self.num_negatives
        negatives = (pairs[:, None] * per_pair + torch.arange(per_pair, device=self.device)).flatten()
        selected = [(self.src, pairs), (self.dst, pairs), (self.neg_src, negatives), (self.neg_dst, negatives)]
        ends = [self.seeds[end[positions]] for end, positions in selected if end is not None]
        seeds, positions = first_appearances(torch.cat(ends))
        relation = None if self.relation is None else self.relation[pairs]
        return EdgeBatch(seeds, *positions.split([len(end) for end in ends]), relation=relation)

    def split(self, part: Tensor) -> "list[EdgeBatch]":
        """Split the batch into one batch per part of the pairs, in the order of the part numbers.

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
                check_ids(name, positions, len(self.seeds))
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "EdgeBatch":
        """Copy the batch to a device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __repr__(self) -> str:
        relation = "" if self.relation is None else ", relation"
        pairs = f"{self.num_pairs} pairs, {self.num_negatives} negatives each{relation}"
        return f"EdgeBatch({pairs}, {len(self.seeds)} seeds; {format_bytes(self.nbytes)})"

    def _repr_html_(self) -> str:
        cells = {"pairs": self.num_pairs, "negatives each": self.num_negatives, "seeds": len(self.seeds)}
        return html_table(f"EdgeBatch, {format_bytes(self.nbytes)}", cells)
