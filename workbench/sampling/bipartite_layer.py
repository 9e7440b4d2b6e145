"""`BipartiteLayer`: all in-edges of a layer's destinations, whose sources are numbered for arrays of a value each."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from workbench.kernels.relabel import relabeler
from workbench.sampling.candidates import Candidates, row_offsets
from workbench.sampling.uniform import draw_uniform

_DENSE = 4  # nodes of the graph per candidate up to which arrays of all nodes are cheaper than relabelling


class BipartiteLayer(NamedTuple):
    """All candidates of a layer's destinations.

    Args:
        offsets: int64 [num_rows + 1], the row lengths, cumulated.
        starts: int64 [num_rows], the first edge of every row.
        degrees: int64 [num_rows], edges per row.
        local: int32 or int64, the number of every edge's source.
        raw: int32 or int64, the raw-graph id of every edge's source.
        num_sources: exclusive bound of the numbers; not every number has edges.
        ids: int64 [num_sources], the raw-graph id of every source; None: its number.
        positions: int64, the CSR position of every edge; None: its index.
    """

    offsets: Tensor
    starts: Tensor
    degrees: Tensor
    local: Tensor
    raw: Tensor
    num_sources: int
    ids: Tensor | None = None
    positions: Tensor | None = None

    @classmethod
    def of_csr(cls, indptr: Tensor, local: Tensor, ids: Tensor) -> "BipartiteLayer":
        """Return the layer of consecutive rows: offsets int64 [num_rows + 1], numbers, and the ids of all sources."""
        return cls(indptr, indptr[:-1], indptr.diff(), local, ids[local.long()], len(ids), ids)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return starts, degrees and numbers for compiled kernels."""
        return self.starts.numpy(), self.degrees.numpy(), self.local.numpy()


def bipartite_layer(rows: Candidates, indices: Tensor, num_nodes: int, *, positions: bool) -> BipartiteLayer:
    """Number the sources of all candidates, on the CPU.

    Args:
        rows: the candidates, consecutive in `indices`.
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        num_nodes: number of nodes of the graph.
        positions: whether CSR positions are needed.
    """
    if not len(rows.excluded) and int(rows.degrees.numpy().sum()) * _DENSE >= num_nodes:  # raw ids are numbers enough
        offsets = row_offsets(rows.degrees)
        return BipartiteLayer(offsets, rows.starts, rows.degrees, indices, indices, num_nodes)
    full = draw_uniform(rows, indices, -1, replace=False, key=0, positions=positions)
    offsets = full.indptr
    with relabeler(num_nodes, offsets[:0]) as labels:
        local, ids = labels(full.sources), labels.node_ids
    return BipartiteLayer(offsets, offsets[:-1], rows.degrees, local, full.sources, len(ids), ids, full.positions)
