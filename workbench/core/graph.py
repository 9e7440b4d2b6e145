"""`Graph`: for every node the list of its in-neighbours."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """For every node the list of its in-neighbours (CSR, row = destination).

    Args:
        indptr: int64 [num_nodes + 1].
        indices: int32 or int64 [num_edges], sources.
        edge_ids: int64 [num_edges], position of each edge in the caller's edge list; None: its position in the CSR.
        edge_weight: floating [num_edges].
        edge_type: integer [num_edges].
        node_type: integer [num_nodes].
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None = None
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    node_type: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        return self.indices.shape[0]
