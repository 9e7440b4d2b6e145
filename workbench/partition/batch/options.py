"""What every rule that partitions a batch may be told, and the part of the batch that it looks at."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_vector
from workbench.core.minibatch import MiniBatch


@dataclass(frozen=True, eq=False)
class PartitionOptions:
    """Options of `partition_batch`, checked.

    Args:
        seed: of every random decision.
        weights: [num_seeds] on the CPU, non-negative weight of every seed to balance; None: 1 each.
        node_parts: integer [num_graph_nodes], a partition of the whole graph.
        max_bytes: memory that the partition's own arrays may take; None: what the machine has left.
    """

    seed: int = 0
    weights: Tensor | None = None
    node_parts: Tensor | None = None
    max_bytes: int | None = None


def check_method(method: str, node_parts: Tensor | None) -> None:
    """Refuse a partition of the whole graph that is missing, or that the method would not use, before any work.

    Raises:
        ValueError: "cluster" without `node_parts`, another method than it and "auto" with them, or not a vector.
        TypeError: `node_parts` are no integers.
    """
    check_vector("node_parts", node_parts, None, ID_DTYPES)
    if (method == "cluster") if node_parts is None else (method not in ("auto", "cluster")):
        raise ValueError(
            f"method is {method!r} and node_parts is {'not ' if node_parts is None else ''}given; method 'cluster' "
            "needs them (partition_graph), 'auto' may have them, others would not use them"
        )


def output_rows(mb: MiniBatch) -> tuple[Tensor, Tensor, int]:
    """`indptr`, `indices` and number of sources of the output block, on the CPU; without layers there are no edges."""
    if not mb.blocks:
        return torch.zeros(mb.num_seeds + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), mb.num_seeds
    block = mb.blocks[-1]
    return block.indptr.cpu(), block.indices.cpu(), block.num_src
