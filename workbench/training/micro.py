"""Micro-batches in the form that the batch came in, for training loops of one's own."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.interop import from_dgl, from_pyg, to_dgl, to_pyg
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch


def micro_batches(
    batch: Any, num_parts: int, *, method: str = "auto", seed: int = 0, node_parts: Tensor | None = None
) -> list[Any]:
    """Cut a batch into micro-batches of its own kind.

    Add up the gradients of all of them before a step. They are those of the whole batch if each loss is the *sum* over
    the micro-batch's seeds, divided by the seeds of the batch.

    Args:
        batch: a `MiniBatch`; DGL blocks (the list that its DataLoader yields); or a batch of PyG (of its
            `NeighborLoader`, or from `MiniBatch.to_pyg`).
        num_parts: micro-batches, at least 1; a batch with fewer seeds gives one a seed.
        method: see `workbench.partition_batch`.
        seed: see `workbench.partition_batch`.
        node_parts: see `workbench.partition_batch`.

    Returns:
        Micro-batches with raw-graph ids. DGL's are lists of blocks, whose source and destination data (prefetched
        features and labels, say) are cut along; edges keep ids, `edge_weight` and types. PyG's hold structure and
        `n_id` only: features and labels are read by raw-graph id.

    Raises:
        ValueError: as `workbench.partition_batch` does, or a batch that is not self-contained.
        TypeError: a batch of another kind.

    Source: Betty (ASPLOS 2023).
    """
    check_at_least("num_parts", num_parts, 1)
    options = {"method": method, "seed": seed, "node_parts": node_parts}
    if isinstance(batch, MiniBatch):
        return _cut(batch, num_parts, options)
    if hasattr(batch, "n_id"):
        return [to_pyg(part) for part in _cut(from_pyg(batch), num_parts, options)]
    if isinstance(batch, Sequence) and all(hasattr(block, "srcdata") for block in batch):
        return [_with_data(part, batch) for part in _cut(from_dgl(batch), num_parts, options)]
    kinds = f" of {', '.join(type(part).__name__ for part in batch)}" if isinstance(batch, list | tuple) else ""
    raise TypeError(
        f"can't cut a {type(batch).__name__}{kinds}; pass a MiniBatch (the second of what workbench.batches yields), a "
        "list of DGL blocks (the third of what DGL's DataLoader yields) or a batch of PyG's NeighborLoader"
    )


def _cut(mb: MiniBatch, num_parts: int, options: dict[str, Any]) -> list[MiniBatch]:
    return mb.split(partition_batch(mb, min(num_parts, max(1, mb.num_seeds)), **options))


def _with_data(part: MiniBatch, blocks: Sequence[Any]) -> list[Any]:
    """The part as DGL blocks, with what the user or the loader had put on the nodes."""
    assert part.parent is not None
    made = to_dgl(part)
    for block, whole in zip(made, blocks, strict=True):
        _carry(block.srcdata, whole.srcdata, part.parent[: block.num_src_nodes()])
        _carry(block.dstdata, whole.dstdata, part.parent[: block.num_dst_nodes()])
    return made


def _carry(to: Any, source: Any, rows: Tensor) -> None:
    to.update({name: values[rows] for name, values in source.items() if name not in to})
