"""What a rank fetches from the others for its mini-batches: one by one, in macrobatches, with cached aggregates.

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs", table 5, appendices A, C.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_type, check_vector
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.kernels.id_index import IdIndex


@dataclass(frozen=True, eq=False)
class RemoteFetch:
    """What one mini-batch asks of other ranks.

    Args:
        inputs: f_i, int64: input nodes that other ranks own, those that are expanded for the input layer first.
        num_expanded: |V_i|, how many of the inputs are destinations of the input layer.
        asked: per layer, input layer first: destinations whose in-edges other ranks draw.
        edges: per layer, input layer first: edges that other ranks draw.
        limit: exclusive upper bound of the ids.
    """

    inputs: Tensor
    num_expanded: int
    asked: tuple[int, ...]
    edges: tuple[int, ...]
    limit: int

    @staticmethod
    def of(mb: MiniBatch, owner: Tensor, rank: int) -> "RemoteFetch":
        """Count what a batch of a rank asks of others.

        Args:
            mb: a batch without exchanges, with at least one block.
            owner: integer [num_nodes], the rank that owns each node's features and in-edges.
            rank: of the batch; −1 for a machine that owns nothing, the paper's worst case.

        Raises:
            ValueError: the batch has exchanges or no blocks.
        """
        check_type("mb", mb, MiniBatch, "pass a batch that a sampler returned")
        refuse_halo(mb.exchanges, "counted as a batch of its own", "pass the plain batch of every rank")
        check_vector("owner", owner, None, (torch.int8, torch.int16, torch.int32, torch.int64))
        if not mb.blocks:
            raise ValueError("the batch has no blocks, so it asks for no edges; pass one that was sampled")
        remote = owner.to(mb.device)[mb.node_ids] != rank
        rows = [remote[: block.num_dst] for block in mb.blocks]
        edges = [block.indptr.diff()[row] for block, row in zip(mb.blocks, rows, strict=True)]
        return RemoteFetch(
            mb.node_ids[remote].cpu(),
            num_expanded=int(rows[0].sum()),
            asked=tuple(int(row.sum()) for row in rows),
            edges=tuple(int(degrees.sum()) for degrees in edges),
            limit=len(owner),
        )

    @property
    def expanded(self) -> Tensor:
        """V_i: the nodes that the input layer's sampling expands, of other ranks."""
        return self.inputs[: self.num_expanded]


@dataclass(frozen=True)
class MacrobatchWork:
    """What a rank fetches from others in an epoch, or several ranks do together.

    Args:
        num_batches: M, mini-batches.
        num_macrobatches: ⌈M/B⌉, relays per hop.
        num_groups: relays for features.
        rows: Σ_k |A_k|: rows of features, the union of the inputs of every group; with B = 1, Σ_i |f_i|.
        expanded: Σ_k |∪ V_i|: rows of features if the aggregates of as many nodes are fetched instead of their sources.
        asked: per layer, input layer first: destinations whose in-edges others draw.
        edges: per layer, input layer first: edges that others draw.
    """

    num_batches: int
    num_macrobatches: int
    num_groups: int
    rows: int
    expanded: int
    asked: tuple[int, ...]
    edges: tuple[int, ...]

    @property
    def rows_with_aggregates(self) -> int:
        """Rows fetched with the aggregation cache: features and aggregate of every expanded node, 2|V|."""
        return 2 * self.expanded

    def __add__(self, other: "MacrobatchWork") -> "MacrobatchWork":
        """The work of two ranks together; relays are collective, so their numbers are the larger ones."""
        return MacrobatchWork(
            self.num_batches + other.num_batches,
            max(self.num_macrobatches, other.num_macrobatches),
            max(self.num_groups, other.num_groups),
            self.rows + other.rows,
            self.expanded + other.expanded,
            tuple(a + b for a, b in zip(self.asked, other.asked, strict=True)),
            tuple(a + b for a, b in zip(self.edges, other.edges, strict=True)),
        )


def macrobatch_work(fetches: Sequence[RemoteFetch], *, size: int, group_size: int | None = None) -> MacrobatchWork:
    """Count what a rank fetches from others if its mini-batches are fetched in macrobatches.

    The mini-batches and what is learnt from them do not depend on the size of a macrobatch: what is sampled stays the
    same, and a row that several of its batches need is fetched once.

    Args:
        fetches: of the rank's mini-batches, in order.
        size: B, mini-batches per macrobatch; 1 is mini-batch by mini-batch.
        group_size: F, mini-batches whose features are fetched at once; None for B.

    Raises:
        ValueError: no batches, a size below 1, or a group larger than a macrobatch.

    Source: BatchGNN, section 3, table 5 and equation 3.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> sampler, owner = wb.FullNeighborSampler(1), torch.tensor([0, 1, 1, 0])
    >>> batches = [sampler.sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> fetches = [wb.RemoteFetch.of(mb, owner, 0) for mb in batches]
    >>> [wb.macrobatch_work(fetches, size=size).rows for size in (1, 2)]
    [3, 2]
    """
    if not fetches:
        raise ValueError("there are no mini-batches to count; pass at least one RemoteFetch")
    check_at_least("size", size, 1)
    group_size = size if group_size is None else group_size
    check_at_least("group_size", group_size, 1, most=size)
    groups = [group for window in _cut(fetches, size) for group in _cut(window, group_size)]
    return MacrobatchWork(
        num_batches=len(fetches),
        num_macrobatches=-(-len(fetches) // size),
        num_groups=len(groups),
        rows=sum(_num_distinct([one.inputs for one in group], group[0].limit) for group in groups),
        expanded=sum(_num_distinct([one.expanded for one in group], group[0].limit) for group in groups),
        asked=tuple(map(sum, zip(*(one.asked for one in fetches), strict=True))),
        edges=tuple(map(sum, zip(*(one.edges for one in fetches), strict=True))),
    )


def _cut(fetches: Sequence[RemoteFetch], size: int) -> Iterator[Sequence[RemoteFetch]]:
    return (fetches[start : start + size] for start in range(0, len(fetches), size))


def _num_distinct(ids: Sequence[Tensor], limit: int) -> int:
    return len(ids[0]) if len(ids) == 1 else len(IdIndex(ids, limit).ids)
