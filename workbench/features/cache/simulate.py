"""`simulate_cache`: hits of a cache on a recorded trace, by the machine that also serves rows."""

from dataclasses import dataclass
from numbers import Integral, Real

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.policies import NEED_TRACE, make_machine
from workbench.features.cache.static import num_rows_of

SEMANTICS = ("access", "batch")


@dataclass(frozen=True, eq=False)
class CacheSimulation:
    """Hits and accesses of every read of a trace.

    Args:
        policy: name of the policy.
        semantics: "access" or "batch".
        capacity_rows: rows that the cache has room for.
        hits: int64 [num_reads].
        accesses: int64 [num_reads].
        warmup_reads: number of first reads that `miss_rate` leaves out.
    """

    policy: str
    semantics: str
    capacity_rows: int
    hits: Tensor
    accesses: Tensor
    warmup_reads: int = 0

    @property
    def num_hits(self) -> int:
        """Hits after the warm-up."""
        return int(self.hits[self.warmup_reads :].sum())

    @property
    def num_accesses(self) -> int:
        """Accesses after the warm-up."""
        return int(self.accesses[self.warmup_reads :].sum())

    @property
    def num_misses(self) -> int:
        """Misses after the warm-up."""
        return self.num_accesses - self.num_hits

    @property
    def miss_rate(self) -> float:
        """Misses per access after the warm-up; not a number if there is no access."""
        return self.num_misses / self.num_accesses if self.num_accesses else float("nan")


def simulate_cache(
    trace: AccessTrace,
    capacity_rows: int,
    *,
    policy: str = "lru",
    semantics: str = "access",
    rows: Tensor | None = None,
    num_rows: int | None = None,
    warmup: int | float = 0,
) -> CacheSimulation:
    """Simulate a cache on a trace.

    Args:
        trace: reads of row ids, such as `RecordedRows.trace`, or the `node_ids` of batches.
        capacity_rows: rows that the cache has room for, at least 1; it is empty at the start, unless static.
        policy: a name of `CACHE_POLICIES`. "belady" evicts the row whose next use is farthest in the future and
            inserts every row that misses, as all others do; "belady-bypass" may also not insert it.
        semantics: "access": every access is looked up and, if it misses, inserted before the next one; "batch": all
            accesses of a read are looked up, then all misses are inserted, as `CachedRows` does.
        rows: int64 or int32 [any], ids of the rows of a static cache, of which the first `capacity_rows` are cached;
            for "static" alone. `rank_by_degree` and `rank_by_frequency` give them.
        num_rows: exclusive upper bound of the ids; None: the largest id of the trace and `rows` + 1.
        warmup: first reads that the miss rate leaves out: their number, or their share if it is a float.

    Raises:
        ValueError: an unknown policy or semantics, a capacity below 1, `rows` missing or not expected, or a warm-up
            that is longer than the trace.
        IndexError: an id that is not below `num_rows`.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    check_choice("semantics", semantics, SEMANTICS)
    skipped = warmup_reads(warmup, len(trace))
    limit = _num_rows(trace, rows, num_rows)
    ids = check_ids("trace.ids", trace.ids, limit).cpu()
    batches, offsets = semantics == "batch", trace.offsets.cpu().contiguous()
    future = AccessTrace(ids, offsets) if policy in NEED_TRACE else None
    machine = make_machine(policy, limit, capacity_rows, batches=batches, rows=rows, trace=future)
    hits = machine.replay(ids.numpy(), offsets.numpy(), batches=batches)
    return CacheSimulation(policy, semantics, int(capacity_rows), torch.from_numpy(hits), offsets.diff(), skipped)


def _num_rows(trace: AccessTrace, rows: Tensor | None, num_rows: int | None) -> int:
    if num_rows is None:
        return max(num_rows_of(trace), int(rows.max()) + 1 if isinstance(rows, Tensor) and rows.numel() else 0)
    check_at_least("num_rows", num_rows, 0)
    return int(num_rows)


def warmup_reads(warmup: int | float, num_reads: int) -> int:
    """Return the number of reads of a warm-up.

    Args:
        warmup: their number, or a float in [0, 1]: their share, rounded down.
        num_reads: reads of the trace.

    Raises:
        ValueError: a number or share out of range.
    """
    if isinstance(warmup, Integral):
        check_at_least("warmup", int(warmup), 0, most=num_reads)
        return int(warmup)
    if not (isinstance(warmup, Real) and 0 <= warmup <= 1):
        raise ValueError(f"warmup is {warmup!r}; pass a number of reads, or their share as a float in [0, 1]")
    return int(warmup * num_reads)
