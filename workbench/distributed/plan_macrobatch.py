"""`plan_macrobatch`: sizes of macrobatches and use of aggregates, decided once, the same on all ranks."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from workbench.core.errors import check_at_least, check_bytes, check_type
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, get_world_size
from workbench.features.macrobatch_counts import MacrobatchCounts, count_macrobatches
from workbench.features.macrobatch_plan import MacrobatchPlan, choose_macrobatch

T = TypeVar("T")
Counted = MacrobatchCounts | Sequence[MacrobatchCounts] | Iterable[MiniBatch | tuple[int, MiniBatch]]


def plan_macrobatch(
    counts: Counted,
    *,
    row_bytes: int,
    capacity_bytes: int | str,
    aggregates: bool | None = None,
    aggregates_bytes: int | str = 0,
    group: Group = None,
) -> MacrobatchPlan:
    """Choose B, F and whether to use precomputed aggregates, before a run, from batches sampled for the purpose.

        plan = wb.plan_macrobatch(wb.batches(…).epoch(0), row_bytes=x[0].nbytes, capacity_bytes="2GiB")
        sampler = wb.WithoutInputLayer(sampler) if plan.use_aggregates else sampler
        loader = wb.macrobatches(…, sampler=sampler, size=plan.size, group_size=plan.group_size)

    The plan moves the fewest bytes of all that fit, and on the counted batches never more than the batches one by one.
    Aggregates replace the input layer if that moves fewer bytes; they change what is trained (full instead of sampled
    neighbourhoods), so the decision is made once, and never within a run. Over ranks the call is collective: the counts
    of all ranks are gathered, bytes added up, and every rank gets the same plan.

    Held bytes are the sampled batches of a macrobatch and the staged rows of a group, without the index of the staged
    ids and the copies that exist while rows arrive.

    Args:
        counts: this rank's `workbench.count_macrobatches`; or, in one process, a list of those of all ranks; or batches
            of a process that samples alone, with all layers.
        row_bytes: bytes of a row of features, and of an aggregate.
        capacity_bytes: bytes, or text such as "2GiB", that each rank may hold.
        aggregates: True or False to decide otherwise than by bytes; None: by bytes.
        aggregates_bytes: bytes that this rank's aggregates take in memory, if they are used; 0 if they are on disk.
        group: the ranks; None for all.

    Returns:
        The plan, frozen; `moved_bytes`, `fetched_rows` and `held_bytes` are those of the counted batches.

    Raises:
        TypeError: counts of another type.
        ValueError: no batches, or one that is not complete, or a number out of range.
        CapacityError: not even one batch at a time fits; the message says how many bytes it holds.

    Source: Hoang et al., "BatchGNN" (2023), equations 2 to 5; B and F of its figure 1.
    """
    check_at_least("row_bytes", row_bytes, 1)
    capacity = check_bytes("capacity_bytes", capacity_bytes)
    extra = check_bytes("aggregates_bytes", aggregates_bytes, 0)
    if isinstance(counts, Sequence) and len(counts) and isinstance(counts[0], MacrobatchCounts):
        ranks: Any = counts
        return choose_macrobatch(ranks, row_bytes, capacity, aggregates=aggregates, aggregates_bytes=extra)
    own = counts if isinstance(counts, MacrobatchCounts) else _counted(counts, group)
    found = _gathered((own, row_bytes, capacity, aggregates, extra), group)
    of_ranks, rows, capacities, choices, extras = zip(*found, strict=True)
    if len({*rows}) > 1 or len({*choices}) > 1:
        raise ValueError(f"ranks passed row_bytes {[*rows]} and aggregates {[*choices]}; pass the same on all of them")
    chosen = {"aggregates": aggregates, "aggregates_bytes": max(extras)}
    return choose_macrobatch(of_ranks, row_bytes, min(capacities), **chosen)


def _counted(batches: Any, group: Group) -> MacrobatchCounts:
    check_type("counts", batches, Iterable, "pass batches, or what workbench.count_macrobatches returns")
    if get_world_size(group) > 1:
        raise TypeError(
            "counts are batches, whose rows and topology belong to several ranks; pass workbench.count_macrobatches("
            "batches, owner=owner, rank=rank)"
        )
    return count_macrobatches(batches)


def _gathered(value: T, group: Group) -> list[T]:
    """The values of all ranks, in order; collective."""
    size = get_world_size(group)
    if size == 1:
        return [value]
    found: list[Any] = [None] * size
    dist.all_gather_object(found, value, group=group)
    return found
