"""Micro-batches for training loops of DGL or PyG: each in the format of its batch."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from workbench.core.errors import check_at_least
from workbench.core.minibatch import MiniBatch
from workbench.interop.pair_batches import refuse_pairs
from workbench.partition.batch import partition_batch
from workbench.training.exactness_warning import warn_if_batch_inexact


def micro_batches(
    batch: Any,
    num_parts: int,
    *,
    model: nn.Module | None = None,
    method: str = "auto",
    seed: int = 0,
    node_parts: Tensor | None = None,
    verify: bool = True,
) -> list[Any]:
    """Split a batch into micro-batches of the same format.

    Accumulate the gradients of all of them before a step. They are those of the whole batch if each loss is the *sum*
    over the micro-batch's seeds, divided by the number of seeds of the batch.

    Args:
        batch: a `MiniBatch`; DGL blocks (the list that DGL's DataLoader yields); or a PyG batch (from
            `NeighborLoader` or `MiniBatch.to_pyg`).
        num_parts: number of micro-batches, at least 1; a batch with fewer seeds is split into one per seed.
        model: the module that will be trained on them, for `verify`.
        method: a name of `workbench.PARTITION_METHODS`, or "auto" or "fast".
        seed: seed of the random choices of the method.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster"; None for others.
        verify: check once per `model`, if it is given, that micro-batches are exact, and warn if not
            (`workbench.check_exact`).

    Returns:
        Micro-batches with raw-graph ids. DGL's are lists of blocks with the rows of source and destination data
        (prefetched features and labels, for example) and with edge ids, `edge_weight` and edge types. PyG's contain
        only structure and `n_id`: read features and labels by raw-graph id.

    Raises:
        ValueError: `workbench.partition_batch` refuses the arguments, the batch is not self-contained, or it was
            sampled for pairs of nodes (PyG's `LinkNeighborLoader`, DGL's edge prediction).
        TypeError: The batch has another type.

    Source: Betty (ASPLOS 2023).
    """
    check_at_least("num_parts", num_parts, 1)
    refuse_pairs(batch)
    warn_if_batch_inexact(model if verify and num_parts > 1 else None, batch)
    options = {"method": method, "seed": seed, "node_parts": node_parts}
    if isinstance(batch, MiniBatch):
        return _split(batch, num_parts, options)
    if hasattr(batch, "n_id"):
        return [part.to_pyg() for part in _split(MiniBatch.from_pyg(batch), num_parts, options)]
    if isinstance(batch, Sequence) and all(hasattr(block, "srcdata") for block in batch):
        return [_to_dgl_with_data(part, batch) for part in _split(MiniBatch.from_dgl(batch), num_parts, options)]
    kinds = f" of {', '.join(type(part).__name__ for part in batch)}" if isinstance(batch, list | tuple) else ""
    raise TypeError(
        f"can't split a {type(batch).__name__}{kinds}; pass a MiniBatch (workbench.batches yields (step, batch)), a "
        "list of DGL blocks (DGL's DataLoader yields (input nodes, output nodes, blocks)) or a batch of PyG's "
        "NeighborLoader"
    )


def _split(mb: MiniBatch, num_parts: int, options: dict[str, Any]) -> list[MiniBatch]:
    return mb.split(partition_batch(mb, min(num_parts, max(1, mb.num_seeds)), **options))


def _to_dgl_with_data(part: MiniBatch, blocks: Sequence[Any]) -> list[Any]:
    """A part as DGL blocks, with the rows of the node data of the batch's blocks."""
    assert part.parent is not None
    part_blocks = part.to_dgl()
    for block, whole in zip(part_blocks, blocks, strict=True):
        _copy_rows(block.srcdata, whole.srcdata, part.parent[: block.num_src_nodes()])
        _copy_rows(block.dstdata, whole.dstdata, part.parent[: block.num_dst_nodes()])
    return part_blocks


def _copy_rows(target: Any, source: Any, rows: Tensor) -> None:
    target.update({name: values[rows] for name, values in source.items() if name not in target})
