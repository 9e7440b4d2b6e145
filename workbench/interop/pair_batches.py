"""Recognises batches that other libraries sampled for pairs of nodes, which must not be split by their nodes."""

from typing import Any

_PAIR_ATTRIBUTES = ("edge_label_index", "src_index")  # of LinkNeighborLoader: binary and triplet negatives
_REMEDY = (
    "its loss is one of pairs, so parts of its seeds would separate the ends of pairs. Split the pairs: "
    "pairs = workbench.EdgeBatch(batch.seeds, src, dst, …).split(part) for a MiniBatch `batch` of their ends, with "
    "positions of the ends, then batch.select([p.parent for p in pairs]); workbench.edge_batches samples such batches"
)


def refuse_pairs(batch: Any) -> None:
    """Refuse a batch of PyG's `LinkNeighborLoader` or of DGL's edge prediction.

    DGL's blocks alone do not show that they were sampled for pairs: they have no data that those of nodes lack. What
    its DataLoader yields does.

    Args:
        batch: any object.

    Raises:
        ValueError: It is a PyG batch with `edge_label_index` or `src_index`, or a tuple of input nodes, a graph of the
            pairs (and one of negative pairs) and blocks.
    """
    names = [name for name in _PAIR_ATTRIBUTES if getattr(batch, name, None) is not None]
    if names:
        raise ValueError(f"can't split a batch with {names[0]} (of PyG's LinkNeighborLoader) by its seeds: {_REMEDY}")
    if isinstance(batch, tuple | list) and len(batch) > 2 and isinstance(batch[-1], list) and _is_graph(batch[1]):
        raise ValueError(f"can't split a batch of DGL's edge prediction by its seeds: {_REMEDY}")


def _is_graph(value: Any) -> bool:
    return hasattr(value, "edata") and hasattr(value, "ndata")
