"""`macrobatch_bytes`: the cost model of macrobatches, over counts of any window of mini-batches.

With M mini-batches, macrobatches of B, T_i bytes of topology and f_i input nodes of mini-batch i, A_k the union of the
input nodes of macrobatch k, S bytes per row of features and C bytes that every relay costs:

    one by one (2)     Σ T_i + M C   + S Σ_i |f_i|
    macrobatches (3)   Σ T_i + M C/B + S Σ_k |A_k|

With aggregates in place of the input layer, T_i lacks its edges, and two rows of each node of A_k are fetched, of the
nodes that the layer would expand (equation 5; `aggregate_cost` compares it with equation 4 batch by batch).

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs", appendices A and C.
"""

from typing import NamedTuple

from workbench.core.errors import check_at_least, check_type
from workbench.macrobatch.counts import ReadCounts


class FetchBytes(NamedTuple):
    """Modelled bytes that a rank receives from others.

    Args:
        topology: Σ T_i: ids of the nodes that others expand for it, the lengths of their rows, and their edges.
        relays: bytes that relays cost whatever they fetch.
        features: rows of features, and of aggregates.
    """

    topology: float
    relays: float
    features: float

    @property
    def total(self) -> float:
        return sum(self)


def macrobatch_bytes(
    counts: ReadCounts, *, size: int, row_bytes: int, group_size: int | None = None, relay_bytes: float = 0.0
) -> FetchBytes:
    """Model the bytes that a rank fetches for its mini-batches in macrobatches; of size 1, one by one.

    Args:
        counts: what they read: `sampled` or `aggregated` of `count_macrobatches(…)`.
        size: B, mini-batches per macrobatch; 1 gives equation 2, larger ones equation 3.
        row_bytes: S, bytes of a row of features.
        group_size: F, mini-batches whose rows are fetched at once: a divisor of B, or any number if B is all
            mini-batches; None for B.
        relay_bytes: C, bytes that sampling and fetching a macrobatch costs whatever it contains.

    Raises:
        ValueError: a size out of range, or groups that do not end with their macrobatch.

    Source: BatchGNN, equations 2, 3 and 5.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> sampler, owner = wb.FullNeighborSampler(1), torch.tensor([0, 1, 1, 0])
    >>> batches = [sampler.sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> counts = wb.count_macrobatches(batches, owner=owner, rank=0).sampled
    >>> [wb.macrobatch_bytes(counts, size=size, row_bytes=512).features for size in (1, 2)]
    [1536.0, 1024.0]
    """
    check_type("counts", counts, ReadCounts, "pass .sampled or .aggregated of count_macrobatches(batches, …)")
    check_at_least("size", size, 1)
    check_at_least("row_bytes", row_bytes, 0)
    group_size = size if group_size is None else group_size
    check_at_least("group_size", group_size, 1, most=size)
    if size % group_size and size < len(counts.fetched):
        raise ValueError(
            f"group_size is {group_size} for macrobatches of {size}; it must divide it, so that groups end with them"
        )
    if not relay_bytes >= 0:
        raise ValueError(f"relay_bytes is {relay_bytes}; it must be at least 0")
    rows = counts.stores * int(counts.fetched.counts(group_size).sum())
    relays = -(-len(counts.fetched) // size)
    return FetchBytes(float(counts.topology_bytes.sum()), float(relay_bytes * relays), float(row_bytes * rows))
