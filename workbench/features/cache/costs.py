"""`cache_costs`: the bytes that reads take from a store behind caches of several policies and sizes."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache.policies import CACHE_POLICIES
from workbench.features.cache.simulate import SEMANTICS, simulate_cache, warmup_reads
from workbench.features.cache.stack_distance import miss_ratio_curve
from workbench.features.cache.static import rank_by_frequency


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
            no access, or a static cache without `rows` and without reads to choose them from.
        IndexError: an id of `rows` that occurs twice or is below 0.
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
            "or rows=, such as wb.rank_by_degree(graph)"
        )
    return rank_by_frequency(before)[: len(before.ids.unique())]
