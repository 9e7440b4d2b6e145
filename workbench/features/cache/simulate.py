"""`simulate_cache`: hits of a cache on a recorded trace, by the machine that also serves rows."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_fits, check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.policies import CACHE_POLICIES, NEED_TRACE, make_machine, num_rows_of, rank_by_frequency
from workbench.kernels.jit import compiled

SEMANTICS = ("access", "batch")


def warmup_reads(warmup: int | float, num_reads: int) -> int:
    """Return the number of reads of a warm-up.

    Args:
        warmup: their number, or a float in [0, 1]: their share, rounded down.
        num_reads: reads of the trace.
    """
    if isinstance(warmup, Integral):
        check_at_least("warmup", int(warmup), 0, most=num_reads)
        return int(warmup)
    if not (isinstance(warmup, Real) and 0 <= warmup <= 1):
        raise ValueError(f"warmup is {warmup!r}; pass a number of reads, or their share as a float in [0, 1]")
    return int(warmup * num_reads)


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


def miss_ratio_curve(trace: AccessTrace, *, warmup: int | float = 0) -> Tensor:
    """Compute the miss rate of an LRU cache of every capacity, in access semantics.

    Args:
        trace: reads of row ids.
        warmup: first reads that the miss rates leave out: their number, or their share if it is a float.

    Returns:
        float64 [distinct rows + 1]: element c is the miss rate of a cache of c rows, 1 for c = 0; no larger cache
        misses less than the last.

    Raises:
        ValueError: a warm-up that is longer than the trace, or leaves no access.
        CapacityError: ids so large that the last accesses of all rows below them do not fit into memory.

    Source: Mattson et al. (1970).
    """
    distances, distinct = stack_distances(trace)
    counted = distances[int(trace.offsets[warmup_reads(warmup, len(trace))]) :]
    if not len(counted):
        raise ValueError(f"no access is left of {trace} after a warm-up of {warmup}; pass a longer trace")
    hits = torch.bincount(counted[counted > 0], minlength=distinct + 1).cumsum(0).double()
    return 1 - hits / len(counted)


def stack_distances(trace: AccessTrace) -> tuple[Tensor, int]:
    """Compute the stack distance of every access: the smallest capacity of an LRU cache in which it hits.

    Args:
        trace: reads of row ids.

    Returns:
        int64 [num_accesses], 0 for the first access to a row, and the number of distinct rows.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    limit = num_rows_of(trace)
    ids = check_ids("trace.ids", trace.ids, limit).cpu()
    check_fits(f"the last accesses of {limit:,} rows", 8 * limit + 12 * len(ids), "number the rows from 0")
    last = torch.full((limit,), -1, dtype=torch.int64)
    tree, distances = torch.zeros(len(ids) + 1, dtype=torch.int32), torch.empty_like(ids)
    distinct = _distances(ids.numpy(), last.numpy(), tree.numpy(), distances.numpy())
    return distances, distinct


@compiled(_nrt=False)
def _distances(ids, last, tree, distances):
    """Keep a 1 in the tree at the position of each row's last access; ones after a row's own are its distance."""
    distinct = 0
    for i in range(len(ids)):
        before = last[ids[i]]
        if before < 0:
            distances[i] = 0
            distinct += 1
        else:
            distances[i] = distinct - _prefix_sum(tree, before)
            _add(tree, before, -1)
        _add(tree, i, 1)
        last[ids[i]] = i
    return distinct


@compiled(_nrt=False)
def _prefix_sum(tree, position):
    """Sum the values before a position."""
    total = np.int64(0)
    while position > 0:
        total += tree[position]
        position -= position & -position
    return total


@compiled(_nrt=False)
def _add(tree, position, value):
    position += 1
    while position < len(tree):
        tree[position] += value
        position += position & -position


class CacheCost(NamedTuple):
    """What one cache leaves of the reads of one trace, after the warm-up.

    Args:
        reads: name of the trace.
        policy: name of the policy.
        capacity_rows: rows that the cache has room for.
        rows_per_read: mean number of rows that a read asks for.
        miss_rate: share of them that miss.
        bytes_per_read: mean number of bytes that a read takes from the store: rows × miss rate × bytes of a row.
    """

    reads: Hashable
    policy: str
    capacity_rows: int
    rows_per_read: float
    miss_rate: float
    bytes_per_read: float

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"policy": self.policy, "capacity_rows": self.capacity_rows}

    @property
    def predicted(self) -> Mapping[str, float]:
        return {"miss_rate": self.miss_rate, "read_rows": self.rows_per_read, "missed_bytes": self.bytes_per_read}

    @property
    def error(self) -> float:
        """0: counted, on the trace given."""
        return 0.0

    def code(self) -> str:
        """Lines that put the cache in front of the store `x`; a static one is of `hottest`, the ids of its rows."""
        rows = ", rows=hottest" if self.policy == "static" else ""
        trace = ", trace=trace" if self.policy.startswith("belady") else ""
        return f'rows = wb.CachedRows(x, {self.capacity_rows}, policy="{self.policy}"{rows}{trace})\n'


def cache_costs(
    traces: Mapping[Hashable, AccessTrace],
    capacities: Sequence[int],
    *,
    row_bytes: int,
    policies: Sequence[str] = ("lru",),
    rows: Tensor | None = None,
    semantics: str = "access",
    warmup: int | float = 0.5,
) -> list[CacheCost]:
    """Simulate every policy at every capacity on every trace: what a read takes from the store behind the cache.

    One pass over a trace gives LRU at all capacities (in access semantics); the other policies take one pass each.

    Args:
        traces: name → reads of row ids, such as the input nodes of batches, one trace per sampler.
        capacities: rows that the cache has room for, at least 1.
        row_bytes: bytes of a row.
        policies: names of `CACHE_POLICIES`.
        rows: int64 or int32 [any], ids of the rows of static caches, the most important first; None: those that the
            warm-up reads most often (GNNLab's presampling).
        semantics: "access" or "batch", as for `simulate_cache`.
        warmup: first reads that are not counted: their number, or their share if it is a float.

    Returns:
        One entry per trace, policy and capacity, in this order.

    Raises:
        ValueError: no traces, an unknown policy or semantics, a capacity or `row_bytes` below 1, a warm-up that leaves
            no access, an id of `rows` that occurs twice, or a static cache without `rows` and without reads to choose
            them from.
        IndexError: an id of `rows` that is below 0.
    """
    check_type("traces", traces, Mapping, "pass a dictionary: name → wb.AccessTrace")
    check_choice("semantics", semantics, SEMANTICS)
    check_at_least("row_bytes", row_bytes, 1)
    for policy in policies:
        check_choice("a policy", policy, CACHE_POLICIES)
    for capacity in capacities:
        check_at_least("a capacity", capacity, 1)
    return [
        CacheCost(name, policy, capacity, per_read, rate, per_read * rate * row_bytes)
        for name, trace in traces.items()
        for per_read in [_rows_per_read(name, trace, warmup)]
        for policy in policies
        for capacity, rate in _miss_rates(trace, capacities, policy, rows, semantics, warmup)
    ]


def _rows_per_read(name: Hashable, trace: AccessTrace, warmup: int | float) -> float:
    """Mean number of accesses of the reads that are counted."""
    check_type(f"trace {name!r}", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    skipped = warmup_reads(warmup, len(trace))
    accesses = len(trace.ids) - int(trace.offsets[skipped])
    if not accesses:
        raise ValueError(f"trace {name!r} has no access after a warm-up of {warmup}; pass a longer trace")
    return accesses / (len(trace) - skipped)


def _miss_rates(
    trace: AccessTrace,
    capacities: Sequence[int],
    policy: str,
    rows: Tensor | None,
    semantics: str,
    warmup: int | float,
) -> Iterator[tuple[int, float]]:
    """Yield every capacity with its miss rate."""
    if policy == "lru" and semantics == "access":
        curve = miss_ratio_curve(trace, warmup=warmup)
        yield from ((capacity, float(curve[min(capacity, len(curve) - 1)])) for capacity in capacities)
        return
    cached = _static_rows(trace, rows, warmup) if policy == "static" else None
    for capacity in capacities:
        found = simulate_cache(trace, capacity, policy=policy, semantics=semantics, rows=cached, warmup=warmup)
        yield capacity, found.miss_rate


def _static_rows(trace: AccessTrace, rows: Tensor | None, warmup: int | float) -> Tensor:
    """The rows of a static cache, by default those that the warm-up reads, the most frequent first."""
    if rows is not None:
        return rows
    reads = warmup_reads(warmup, len(trace))
    before = AccessTrace(trace.ids[: int(trace.offsets[reads])], trace.offsets[: reads + 1])
    if not len(before.ids):
        raise ValueError(
            f"a static cache chooses its rows by the warm-up, but a warm-up of {warmup} reads none; pass a longer one, "
            "or rows=, such as wb.features.rank_by_degree(graph)"
        )
    return rank_by_frequency(before)[: len(before.ids.unique())]
