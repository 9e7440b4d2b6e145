"""`remote_rows`: how many feature rows a rank fetches from others, mini-batch by mini-batch or in macrobatches."""

from collections.abc import Iterable
from itertools import islice

from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_at_least, check_ids, check_vector
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.kernels.gather import gather_rows
from workbench.kernels.id_index import IdIndex


def remote_rows(batches: Iterable[MiniBatch], owner: Tensor, rank: int, *, group_size: int = 1) -> int:
    """Count the feature rows that a rank fetches from others, if those of several mini-batches are fetched at once.

    Args:
        batches: the rank's mini-batches of an epoch, in order; a group at a time is in memory if they are generated.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        rank: number of the rank.
        group_size: F, mini-batches whose rows are fetched together, at least 1.

    Returns:
        Σ |A_k| of equation 3, restricted to rows of other ranks; with `group_size` 1, Σ |f_i| of equation 2.

    Raises:
        ValueError: `group_size` below 1, or a batch with exchanges, whose rows are not fetched in groups.
        IndexError: a node that no rank owns.

    Source: BatchGNN, appendix A, equations 2 and 3.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> batches = [wb.FullNeighborSampler(1).sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> [remote_rows(batches, torch.tensor([0, 0, 1, 1]), 0, group_size=size) for size in (1, 2)]
    [3, 2]
    """
    check_at_least("group_size", group_size, 1)
    check_vector("owner", owner, None, ID_DTYPES)
    total, rest = 0, iter(batches)
    while group := list(islice(rest, group_size)):
        ids = []
        for mb in group:
            refuse_halo(mb.exchanges, "counted")
            ids.append(check_ids("node_ids", mb.node_ids, len(owner)))
        total += int((gather_rows(owner, IdIndex(ids, len(owner)).ids) != rank).sum())
    return total
