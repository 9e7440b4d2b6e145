"""The policies beside their definitions in plain Python, in both semantics, and what holds for every policy."""

from functools import cache
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from tests.features.cache.replay import REFERENCES, replay
from tests.features.cache.traces import one_by_one, skewed_trace, traces
from workbench.core.trace import AccessTrace
from workbench.features.cache.machine import CacheMachine
from workbench.features.cache.policies import CACHE_POLICIES, make_machine
from workbench.features.cache.simulate import simulate_cache

NUM_ROWS = 40


def machine_of(policy: str, trace: AccessTrace, capacity: int, *, batches: bool) -> CacheMachine:
    future = trace if policy.startswith("belady") else None
    rows = torch.arange(NUM_ROWS) if policy == "static" else None
    return make_machine(policy, NUM_ROWS, capacity, batches=batches, rows=rows, trace=future)


def resident(machine: CacheMachine) -> set[int]:
    return {row for row, slot in enumerate(machine.query(torch.arange(NUM_ROWS).numpy()).tolist()) if slot >= 0}


def test_every_policy_but_static_has_a_reference() -> None:
    assert {*CACHE_POLICIES} == {*REFERENCES, "static"}


@pytest.mark.parametrize("batches", [False, True], ids=["access", "batch"])
@pytest.mark.parametrize("policy", REFERENCES)
@given(trace=traces(NUM_ROWS, max_reads=8, max_read=25), capacity=st.integers(1, 30))
def test_hits_and_rows_are_those_of_the_definition(
    policy: str, batches: bool, trace: AccessTrace, capacity: int
) -> None:
    machine, reference = machine_of(policy, trace, capacity, batches=batches), REFERENCES[policy](capacity)
    hits = machine.replay(trace.ids.numpy(), trace.offsets.numpy(), batches=batches)
    assert hits.tolist() == replay(trace, reference, batches=batches)
    if not policy.startswith("belady"):  # which keeps any of the rows that are never used again
        assert resident(machine) == reference.resident
    assert len(resident(machine)) == len(reference.resident) <= capacity


@pytest.mark.parametrize("policy", [policy for policy in REFERENCES if not policy.startswith("belady")])
def test_a_long_trace_in_which_all_queues_are_full(policy: str) -> None:
    trace = skewed_trace(12, 120, 300)
    for semantics in ("access", "batch"):
        found = simulate_cache(trace, 40, policy=policy, semantics=semantics)
        assert found.hits.tolist() == replay(trace, REFERENCES[policy](40), batches=semantics == "batch")
        assert 0 < found.num_hits < found.num_accesses


@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_an_access_hits_if_and_only_if_its_row_is_resident(policy: str) -> None:
    trace = one_by_one(skewed_trace(4, 100, NUM_ROWS, seed=1))
    machine = machine_of(policy, trace, 7, batches=False)
    for i, row in enumerate(trace.ids.tolist()):
        before = resident(machine)
        assert len(before) <= 7
        ids, ends = trace.ids[i : i + 1].numpy(), torch.tensor([0, 1]).numpy()
        machine.state.next_use[:1] = machine.state.next_use[i : i + 1]  # the position within this call
        assert machine.replay(ids, ends, batches=False).tolist() == [row in before]
        if policy not in ("static", "belady-bypass"):
            assert row in resident(machine), "forced insertion"


def test_the_rows_of_a_smaller_lru_cache_are_in_a_larger_one() -> None:
    trace = skewed_trace(5, 50, NUM_ROWS)
    contents = []
    for capacity in range(1, NUM_ROWS + 1):
        machine = machine_of("lru", trace, capacity, batches=False)
        machine.replay(trace.ids.numpy(), trace.offsets.numpy(), batches=False)
        contents.append(resident(machine))
    assert all(small <= large for small, large in pairwise(contents))
    assert [len(rows) for rows in contents] == [min(c, len(trace.ids.unique())) for c in range(1, NUM_ROWS + 1)]


@cache
def fewest_misses(ids: tuple[int, ...], rows: frozenset[int], capacity: int, bypass: bool) -> int:
    """The optimum over all decisions, in access semantics."""
    if not ids:
        return 0
    row, rest = ids[0], ids[1:]
    if row in rows:
        return fewest_misses(rest, rows, capacity, bypass)
    kept = [rows | {row}] if len(rows) < capacity else [rows - {out} | {row} for out in rows]
    return 1 + min(fewest_misses(rest, new, capacity, bypass) for new in [*kept, *([rows] if bypass else [])])


@pytest.mark.parametrize("policy", ["belady", "belady-bypass"])
@given(trace=traces(), capacity=st.integers(1, 4))
def test_belady_is_the_optimum_of_all_decisions(policy: str, trace: AccessTrace, capacity: int) -> None:
    least = fewest_misses(tuple(trace.ids.tolist()), frozenset(), capacity, policy == "belady-bypass")
    assert simulate_cache(trace, capacity, policy=policy).num_misses == least


def distinct(trace: AccessTrace) -> AccessTrace:
    """The trace with every id once per read, as in batches: several misses of a row in one read count several times."""
    return AccessTrace.of([ids.unique() for ids in trace])


@cache
def fewest_misses_of_batches(reads: tuple[frozenset[int], ...], rows: frozenset[int], capacity: int) -> int:
    """The optimum over all contents of the cache after each read, in batch semantics."""
    if not reads:
        return 0
    known = rows | reads[0]
    contents = map(frozenset, combinations(known, min(capacity, len(known))))
    return len(reads[0] - rows) + min(fewest_misses_of_batches(reads[1:], new, capacity) for new in contents)


@pytest.mark.parametrize("semantics", ["access", "batch"])
@given(trace=traces(NUM_ROWS, max_reads=6, max_read=30), capacity=st.integers(1, 30))
def test_no_policy_misses_less_than_belady(semantics: str, trace: AccessTrace, capacity: int) -> None:
    if semantics == "batch":
        trace = distinct(trace)

    def misses(policy: str) -> int:
        return simulate_cache(trace, capacity, policy=policy, semantics=semantics).num_misses

    forced = {policy: misses(policy) for policy in ("lru", "fifo", "clock", "sieve", "s3-fifo", "belady")}
    assert misses("belady-bypass") <= min(forced.values())
    if semantics == "access":  # in batch semantics the last row of a read is inserted even if it is useless
        assert forced["belady"] == min(forced.values())


@given(trace=traces(), capacity=st.integers(1, 4))
def test_belady_with_bypass_is_the_optimum_of_batch_semantics(trace: AccessTrace, capacity: int) -> None:
    trace = distinct(trace)
    reads = tuple(frozenset(ids.tolist()) for ids in trace)
    found = simulate_cache(trace, capacity, policy="belady-bypass", semantics="batch")
    assert found.num_misses == fewest_misses_of_batches(reads, frozenset(), capacity)


@pytest.mark.parametrize("semantics", ["access", "batch"])
def test_a_static_cache_never_changes(semantics: str) -> None:
    trace, rows = skewed_trace(5, 50, NUM_ROWS), torch.tensor([3, 39, 0, 7])
    found = simulate_cache(trace, 3, policy="static", rows=rows, semantics=semantics)
    assert found.hits.tolist() == [int(torch.isin(ids, rows[:3]).sum()) for ids in trace]
