"""`CompactIds`: the nodes in a buffer, numbered without gaps, so that arrays of them are as small as the buffer."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.outofcore.store_layout import StoreLayout


@dataclass(frozen=True, eq=False)
class CompactIds:
    """Positions of nodes among those of some partitions; with the first partitions, they are the ids of the store.

    Args:
        layout: sizes of the store.
        held: int64 [c], the partitions, ascending.

    >>> sizes = {"num_nodes": 6, "num_partitions": 3, "num_train": 0, "num_edges": 0}
    >>> layout = StoreLayout(**sizes, row_shape=(1,), dtype="float32", learnt=False)
    >>> ids = CompactIds(layout, torch.tensor([0, 2]))
    >>> ids.num_nodes, ids.of("ids", torch.tensor([5, 0])), ids.to_store(torch.tensor([3, 0]))
    (4, tensor([3, 0]), tensor([5, 0]))
    """

    layout: StoreLayout
    held: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the partitions."""
        return sum(self.layout.nodes_of(partition) for partition in self.held.tolist())

    def of(self, name: str, ids: Tensor) -> Tensor:
        """Number nodes of the partitions without gaps.

        Args:
            name: name of the argument, for the message.
            ids: int64 or int32 [n], ids of the store.

        Returns:
            int64 [n], below `num_nodes`.

        Raises:
            TypeError: ids of another dtype.
            IndexError: an id out of range, or of a partition that is not in the buffer.
        """
        wanted = check_ids(name, ids, self.layout.num_nodes).cpu().numpy()
        size, held = self.layout.partition_rows, self.held.numpy()
        partitions = wanted // size
        slots = np.minimum(np.searchsorted(held, partitions), len(held) - 1)
        outside = np.flatnonzero(held[slots] != partitions)
        if len(outside):
            at = int(outside[0])
            raise IndexError(
                f"{name} contains {wanted[at]} of partition {partitions[at]}, but the buffer has the partitions "
                f"{held.tolist()}; sample for nodes of state.partitions"
            )
        return torch.from_numpy(wanted - (partitions - slots) * size)

    def to_store(self, ids: Tensor) -> Tensor:
        """Return the ids of the store: the inverse of `of`.

        Args:
            ids: int64 [n], below `num_nodes`.
        """
        size, held = self.layout.partition_rows, self.held.numpy()
        shift = (held - np.arange(len(held))) * size
        if not shift.any():
            return ids
        compact = ids.numpy()
        return torch.from_numpy(compact + shift[compact // size])
