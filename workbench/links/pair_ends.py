"""Ends of positive and negative pairs: their layouts, their checks, and positions among their distinct nodes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_tensors, check_vector
from workbench.kernels.relabel import relabeler

_SMALL_MAP = 1 << 22  # ids below this need a map of 16 MiB, which all batches share
_MAP_PER_ID = 64  # size of a map, relative to the ids, up to which it takes less time than sorting


def first_appearances(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in order of first appearance, and each id's position among them.

    Args:
        ids: int64 [any].

    >>> first_appearances(torch.tensor([7, 3, 7, 5]))
    (tensor([7, 3, 5]), tensor([0, 1, 0, 2]))
    """
    limit = int(ids.max()) + 1 if len(ids) and ids.device.type == "cpu" else 0
    if 0 < limit <= max(_SMALL_MAP, _MAP_PER_ID * len(ids)):
        with relabeler(limit, ids[:0]) as label:
            position = label(ids).long()
            return label.node_ids.clone(), position
    return first_appearances_torch(ids)


def first_appearances_torch(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `first_appearances` in plain torch, on any device, by sorting."""
    values, rank = torch.unique(ids, return_inverse=True)
    positions = torch.arange(len(ids), device=ids.device)
    order = torch.argsort(torch.full_like(values, len(ids)).scatter_reduce_(0, rank, positions, "amin"))
    position = torch.empty_like(order)
    position[order] = positions[: len(order)]
    return values[order], position[rank]


def relabel(ends: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the distinct ids of all ends, and each end as positions among them."""
    ids, positions = first_appearances(torch.cat([end.reshape(-1) for end in ends.values()]))
    pieces = positions.split([end.numel() for end in ends.values()])
    return ids, {name: piece.view(end.shape) for (name, end), piece in zip(ends.items(), pieces, strict=True)}


def negatives_per_pair(positive: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Flatten the negatives pair by pair; an end that is not given is that of the positive pair."""
    num_pairs = len(positive["src"])
    per_pair = max((ids.numel() for ids in given.values()), default=0) // max(1, num_pairs)
    for name, ids in given.items():
        if ids.numel() != num_pairs * per_pair:
            raise ValueError(
                f"negative_{name} has {ids.numel()} ids, but {num_pairs} pairs with {per_pair} negatives each need "
                f"{num_pairs * per_pair}; pass equally many for every pair"
            )
    ends = {name: given.get(name, positive[name].repeat_interleave(per_pair)) for name in positive} if given else {}
    return {f"neg_{name}": ids.reshape(-1) for name, ids in ends.items()}


def shared_negatives(num_pairs: int, given: Mapping[str, Tensor], chunks: int) -> dict[str, Tensor]:
    """Return the negatives by name, and the chunk of each pair: contiguous chunks of equal size, or one pair more."""
    check_at_least("chunks", chunks, 1, most=max(1, num_pairs))
    if not given:
        raise ValueError(f"chunks is {chunks}, but there are no negatives; pass negative_src, negative_dst or both")
    for name, ids in given.items():
        if ids.dim() != 2 or len(ids) != chunks:
            raise ValueError(
                f"negative_{name} has shape {tuple(ids.shape)}; for {chunks} chunks it must be [{chunks}, count]"
            )
    pairs = torch.arange(num_pairs, device=next(iter(given.values())).device)
    return {f"neg_{name}": ids for name, ids in given.items()} | {"chunk": pairs * chunks // max(1, num_pairs)}


def corrupted_pairs(src: Tensor, dst: Tensor, shared: Mapping[str, Tensor], chunk: Tensor) -> tuple[Tensor, Tensor]:
    """List shared negatives pair by pair: both ends of every negative pair.

    Args:
        src: int64 [num_pairs].
        dst: int64 [num_pairs].
        shared: [chunks, count] under "neg_src", "neg_dst" or both.
        chunk: int64 [num_pairs].
    """
    columns: tuple[list[Tensor], list[Tensor]] = [], []
    for name, ids in shared.items():
        rows = ids[chunk]
        columns[0].append(rows if name == "neg_src" else src[:, None].expand_as(rows))
        columns[1].append(rows if name == "neg_dst" else dst[:, None].expand_as(rows))
    return torch.cat(columns[0], 1).flatten(), torch.cat(columns[1], 1).flatten()


def check_all_ids(name: str, ids: Tensor) -> Tensor:
    """Check ids of any shape and return them as int64."""
    flat = check_ids(name, ids.reshape(-1) if isinstance(ids, Tensor) else ids, INT64_MAX)
    return flat.view(ids.shape)


def check_negatives(neg_src: Tensor | None, neg_dst: Tensor | None, chunk: Tensor | None, num_pairs: int) -> None:
    """Check the shapes and dtypes of the negatives of an `EdgeBatch`."""
    given = {name: ids for name, ids in (("neg_src", neg_src), ("neg_dst", neg_dst)) if ids is not None}
    check_tensors(**given)
    if chunk is not None and not given:
        raise ValueError("chunk is given without negatives; pass neg_src, neg_dst or both as [chunks, count]")
    if chunk is None and len(given) == 1:
        raise ValueError("pass both neg_src and neg_dst, or use EdgeBatch.from_pairs, which fills in a missing end")
    for name, ids in given.items():
        if ids.dim() != (1 if chunk is None else 2):
            expected = "one dimension; with chunk it may be" if chunk is None else "two dimensions:"
            raise ValueError(f"{name} has shape {tuple(ids.shape)}; it must have {expected} [chunks, count]")
    length = min((len(ids) for ids in given.values()), default=0)
    if chunk is None:
        length = length // max(1, num_pairs) * num_pairs
    for name, ids in given.items():
        check_vector(name, ids, length, (torch.int64,), columns=True)
