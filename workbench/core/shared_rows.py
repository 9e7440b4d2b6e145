"""What blocks derive from their edges, derived once for blocks whose rows are the first rows of one CSR.

Source: MariusGNN (EuroSys 2023), DENSE: a node has one sample for all layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.kernels.segment import Adjacency
from workbench.kernels.transpose import Transposed, transpose_prefixes


class SharedRows:
    """The destinations and the transpose of blocks of one CSR, each computed once, for the largest block that needs it.

    A backward pass begins at the smallest block. The forward passes before it have told, by `expect_transposed`, which
    blocks' sources need a gradient, so that the first one computes the transpose of the largest of them.

    Args:
        blocks: input layer first; the rows of each are the first rows of the one before.
    """

    def __init__(self, blocks: Sequence[Adjacency]) -> None:
        self._sizes = [(block.num_dst, block.num_src) for block in reversed(blocks)]
        self._indptr, self._indices = blocks[0].indptr, blocks[0].indices
        self._expected = 0  # rows
        self._destinations: Tensor | None = None
        self._transposed: dict[tuple[int, int], Transposed] = {}

    def expect_transposed(self, block: Adjacency) -> None:
        """Note that a backward pass will read the transpose of a block."""
        self._expected = max(self._expected, block.num_dst)

    def destinations(self, block: Adjacency) -> Tensor:
        """Return the destination of each edge of a block."""
        if self._destinations is None or len(self._destinations) < block.num_edges:
            self._destinations = edge_destinations(block.indptr, block.indices)
        return self._destinations[: block.num_edges]

    def transposed(self, block: Adjacency) -> Transposed:
        """Return the transpose of a block, a view of that of the largest block that is expected to need one."""
        size = block.num_dst, block.num_src
        if size not in self._transposed:
            rows = max(self._expected, block.num_dst)
            prefixes = [known for known in self._sizes if known[0] <= rows]
            self._transposed = self._transpose(prefixes)
        return self._transposed[size]

    def _transpose(self, sizes: list[tuple[int, int]]) -> dict[tuple[int, int], Transposed]:
        num_dst, num_src = sizes[-1]
        indptr = self._indptr[: num_dst + 1]
        indices = self._indices[: int(indptr[-1])]
        return dict(zip(sizes, transpose_prefixes(indptr, indices, num_src, sizes[:-1]), strict=True))


def edge_destinations(indptr: Tensor, indices: Tensor) -> Tensor:
    """Return the destination of each edge of a CSR, [num_edges] in the dtype of `indices`."""
    rows = torch.arange(len(indptr) - 1, device=indices.device, dtype=indices.dtype)
    return torch.repeat_interleave(rows, indptr.diff(), output_size=len(indices))
