"""FIFO, CLOCK, SIEVE, S3-FIFO, LRU and Belady beside libcachesim, access by access: the same hits, not only as many."""

import numpy as np
import pytest
import torch

from tests.features.cache.traces import one_by_one, skewed_trace
from workbench.core.trace import AccessTrace
from workbench.features.cache.simulate import simulate_cache

peer = pytest.importorskip("libcachesim")

# Ids from 1, all of size 1 without metadata. CLOCK: one bit, 0 on insertion, as here. Belady reads next uses.
PEERS = {
    "lru": peer.LRU,
    "fifo": peer.FIFO,
    "clock": peer.Clock,
    "sieve": peer.Sieve,
    "s3-fifo": peer.S3FIFO,
    "belady": peer.Belady,
}
TRACES = {
    "skewed": skewed_trace(),
    "uniform": AccessTrace.of(list(torch.from_numpy(np.random.default_rng(1).integers(300, size=(20, 200))))),
    "loop": AccessTrace.of([torch.arange(120)] * 30),
    "each twice": AccessTrace.of([torch.arange(2000).repeat_interleave(2)]),
}


def next_uses(ids: list[int]) -> list[int]:
    found, upcoming = [], {}
    for position in range(len(ids) - 1, -1, -1):
        found.append(upcoming.get(ids[position], 2**63 - 1))
        upcoming[ids[position]] = position
    return found[::-1]


def peer_hits(policy: str, trace: AccessTrace, capacity: int) -> list[int]:
    cache, hits = PEERS[policy](capacity, hashpower=12), []
    ids = trace.ids.tolist()
    for row, next_use in zip(ids, next_uses(ids), strict=True):
        request = peer.Request(obj_id=row + 1, obj_size=1, next_access_vtime=next_use)
        hits.append(int(cache.get(request)))
    return hits


@pytest.mark.parametrize("capacity", [20, 57, 100])
@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("policy", [policy for policy in PEERS if policy != "belady"])
def test_the_same_accesses_hit(policy: str, name: str, capacity: int) -> None:
    trace = one_by_one(TRACES[name])
    assert simulate_cache(trace, capacity, policy=policy).hits.tolist() == peer_hits(policy, trace, capacity)


@pytest.mark.parametrize("capacity", [20, 100])
@pytest.mark.parametrize("name", TRACES)
def test_belady_has_as_many_hits(name: str, capacity: int) -> None:
    """Which of the rows that are never used again is evicted is not defined, and does not change the number."""
    trace = one_by_one(TRACES[name])
    assert simulate_cache(trace, capacity, policy="belady").num_hits == sum(peer_hits("belady", trace, capacity))


@pytest.mark.parametrize("policy", [policy for policy in PEERS if policy not in ("belady", "s3-fifo")])
@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_tiny_caches_too(policy: str, capacity: int) -> None:
    trace = one_by_one(TRACES["uniform"])
    assert simulate_cache(trace, capacity, policy=policy).hits.tolist() == peer_hits(policy, trace, capacity)
