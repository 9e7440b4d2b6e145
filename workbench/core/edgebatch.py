"""`EdgeBatch`: pairs of nodes to predict links for, as positions in their unique nodes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, INT64_MAX, check_ids, check_tensors, check_type, check_vector
from workbench.core.graph import Graph
from workbench.core.storage import move_all, total_bytes
from workbench.core.units import format_bytes

_FIELDS = ("seeds", "src", "dst", "neg_src", "neg_dst", "relation")


def first_appearances(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct ids in order of first appearance, and each id's position among them.

    >>> first_appearances(torch.tensor([7, 3, 7, 5]))
    (tensor([7, 3, 5]), tensor([0, 1, 0, 2]))
    """
    values, rank = torch.unique(ids, return_inverse=True)
    places = torch.arange(len(ids), device=ids.device)
    order = torch.argsort(torch.full_like(values, len(ids)).scatter_reduce_(0, rank, places, "amin"))
    position = torch.empty_like(order)
    position[order] = places[: len(order)]
    return values[order], position[rank]


def _negatives(num_pairs: int, name: str, ids: Tensor | None, positive: Tensor, per_pair: int) -> Tensor:
    """One end of the negative pairs; the positive pairs' own end where the caller gave none."""
    if ids is None:
        return positive.repeat_interleave(per_pair)
    if ids.numel() != num_pairs * per_pair:
        raise ValueError(
            f"{name} has {ids.numel()} ids; {num_pairs} pairs with {per_pair} negatives each need "
            f"{num_pairs * per_pair}: give every pair equally many"
        )
    return ids.reshape(-1)


def _flat_ids(name: str, ids: Tensor) -> Tensor:
    return check_ids(name, ids.reshape(-1) if isinstance(ids, Tensor) else ids, INT64_MAX)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeBatch:
    """Pairs of nodes and, for each pair, its negative pairs.

    Args:
        seeds: int64 [num_seeds], the distinct raw ids of all pairs: what a sampler is given.
        src: int64 [num_pairs], positions in `seeds`.
        dst: int64 [num_pairs], positions in `seeds`.
        neg_src: int64 [num_pairs · num_negatives], positions in `seeds`; the negatives of pair `i` are entries
            `i · num_negatives` to `(i + 1) · num_negatives`.
        neg_dst: int64 like `neg_src`; both or neither.
        relation: integer [num_pairs], type of each pair, which its negatives share.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: sizes that do not fit each other.

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
            raise ValueError("neg_src and neg_dst go together; EdgeBatch.from_pairs fills in the end that is not given")
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
        """The batch of pairs given by raw ids; seeds are numbered by first appearance in src, dst and the negatives.

        Args:
            src: int32 or int64 [num_pairs].
            dst: int32 or int64 [num_pairs].
            negative_src: int32 or int64 [num_pairs, num_negatives], or flat, pair after pair. With one end alone the
                other end is that of the pair itself.
            negative_dst: like `negative_src`.
            relation: integer [num_pairs].

        Raises:
            TypeError: ids that are not whole numbers.
            ValueError: lengths that do not fit each other.
            IndexError: a negative id.
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
        """Negative pairs of each pair."""
        return 0 if self.neg_src is None else self.neg_src.shape[0] // max(1, self.num_pairs)

    @property
    def device(self) -> torch.device:
        return self.seeds.device

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, each storage once."""
        return total_bytes(self._tensors().values())

    def target_edges(self, graph: Graph, *, reverse: bool = True) -> Tensor:
        """Ids of the edges that are the pairs themselves: a sample without them does not tell the answer.

        Args:
            graph: to be sampled.
            reverse: the pairs' reverse edges too.

        Returns:
            int64 edge ids, each once.
        """
        check_type("graph", graph, Graph, "pass the Graph to be sampled (graph_from_dgl and graph_from_pyg make one)")
        src, dst = self.seeds[self.src], self.seeds[self.dst]
        found = [graph.find_edges(src, dst)] + ([graph.find_edges(dst, src)] if reverse else [])
        return torch.unique(torch.cat(found))

    def select(self, pairs: Tensor) -> "EdgeBatch":
        """The batch of some of the pairs with their negatives, its seeds those that are left.

        Args:
            pairs: int32 or int64 [any], positions of pairs.

        Raises:
            IndexError: a position out of range.
        """
        kept = check_ids("pairs", pairs, self.num_pairs)
        per_pair = self.num_negatives
        negatives = (kept[:, None] * per_pair + torch.arange(per_pair, device=self.device)).flatten()
        chosen = [(self.src, kept), (self.dst, kept), (self.neg_src, negatives), (self.neg_dst, negatives)]
        ends = [self.seeds[end[positions]] for end, positions in chosen if end is not None]
        seeds, positions = first_appearances(torch.cat(ends))
        relation = None if self.relation is None else self.relation[kept]
        return EdgeBatch(seeds, *positions.split([len(end) for end in ends]), relation=relation)

    def split(self, part: Tensor) -> "list[EdgeBatch]":
        """The batches of a partition of the pairs, in the order of the parts; empty parts are dropped.

        Args:
            part: int32 or int64 [num_pairs], part of each pair.

        Raises:
            ValueError: another length.
            IndexError: a negative part.
        """
        labels = check_ids("part", part, INT64_MAX)
        check_vector("part", labels, self.num_pairs, (torch.int64,))
        order = torch.argsort(labels, stable=True)
        _, counts = torch.unique_consecutive(labels[order], return_counts=True)
        return [self.select(pairs) for pairs in order.split(counts.tolist())] if self.num_pairs else []

    def validate(self) -> "EdgeBatch":
        """Read all of it and return it.

        Raises:
            IndexError: a position that is no seed's.
            ValueError: a seed that stands twice.
        """
        check_ids("seeds", self.seeds, INT64_MAX, unique=True)
        for name in ("src", "dst", "neg_src", "neg_dst"):
            positions = getattr(self, name)
            if positions is not None:
                check_ids(name, positions, len(self.seeds))
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "EdgeBatch":
        """The batch on another device."""
        return replace(self, **move_all(self._tensors(), device, non_blocking=non_blocking))

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __repr__(self) -> str:
        relation = "" if self.relation is None else ", relation"
        pairs = f"{self.num_pairs} pairs, {self.num_negatives} negatives each{relation}"
        return f"EdgeBatch({pairs}, {len(self.seeds)} seeds; {format_bytes(self.nbytes)})"

    def _repr_html_(self) -> str:
        cells = {"pairs": self.num_pairs, "negatives each": self.num_negatives, "seeds": len(self.seeds)}
        rows = "".join(f"<tr><th>{name}</th><td>{value:,}</td></tr>" for name, value in cells.items())
        return f"<table><caption>EdgeBatch, {format_bytes(self.nbytes)}</caption><tbody>{rows}</tbody></table>"
