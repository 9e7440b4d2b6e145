"""Nets against sets built in plain Python, and their connectivity against the redundancy of splits."""

from collections import Counter

import pytest
import torch
from hypothesis import given, strategies as st

from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.hypergraph import BYTES_PER_PIN, Hypergraph, batch_hypergraph
from workbench.partition.redundancy import redundancy


def needed_by(mb: MiniBatch, hops: int) -> list[set[int]]:
    """Return the seeds that need each source of the block `hops` layers from the output."""
    needs = [{seed} for seed in range(mb.num_seeds)]
    for block in mb.blocks[len(mb.blocks) - hops :][::-1]:
        sources: list[set[int]] = [set(needs[i]) if i < block.num_dst else set() for i in range(block.num_src)]
        for source, destination in zip(block.indices.tolist(), block.destinations.tolist(), strict=True):
            sources[source] |= needs[destination]
        needs = sources
    return needs


def as_counter(hypergraph: Hypergraph) -> Counter[frozenset[int]]:
    nets = [frozenset(net.tolist()) for net in hypergraph.pins.split(hypergraph.indptr.diff().tolist())]
    assert len(nets) == len(set(nets)) == len(hypergraph.weights)
    assert sum(map(len, nets)) == len(hypergraph.pins)
    return Counter(dict(zip(nets, hypergraph.weights.tolist(), strict=True)))


@given(minibatches(), st.integers(1, 3))
def test_nets_contain_the_seeds_that_need_a_node(mb: MiniBatch, hops: int) -> None:
    num_hops = min(hops, len(mb.blocks))
    expected = Counter(frozenset(seeds) for seeds in needed_by(mb, num_hops) if len(seeds) > 1)
    assert as_counter(batch_hypergraph(mb, hops=hops)) == expected
    if num_hops == len(mb.blocks):
        assert as_counter(batch_hypergraph(mb)) == expected


def connectivity(hypergraph: Hypergraph, part: torch.Tensor) -> int:
    touched = [len(set(part[n.long()].tolist())) for n in hypergraph.pins.split(hypergraph.indptr.diff().tolist())]
    return sum((parts - 1) * weight for parts, weight in zip(touched, hypergraph.weights.tolist(), strict=True))


@given(minibatches(), st.integers(0, 2**16))
def test_connectivity_is_the_redundancy(mb: MiniBatch, seed: int) -> None:
    part = torch.randint(3, (mb.num_seeds,), generator=torch.Generator().manual_seed(seed))
    found = redundancy(mb.split(part), mb)
    if mb.num_seeds:
        assert connectivity(batch_hypergraph(mb), part) == found.total_inputs - found.full_inputs


def test_threads_do_not_change_the_nets(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mb = random_minibatch(random_graph(300, 2000, seed=1), fanouts=(4, 6), num_seeds=150, seed=1)
    expected = batch_hypergraph(mb)
    monkeypatch.setattr("workbench.kernels.threads.num_chunks", lambda rows, min_rows=1: min(num_threads, max(1, rows)))
    found = batch_hypergraph(mb)
    for name in ("indptr", "pins", "weights"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


def test_a_batch_without_layers_has_no_nets() -> None:
    assert not len(batch_hypergraph(MiniBatch(torch.arange(4), ())).weights)
    assert not len(batch_hypergraph(MiniBatch(torch.arange(4), ()), hops=1).weights)


def test_max_bytes_is_checked_before_allocating() -> None:
    mb = random_minibatch(random_graph(200, 1500, seed=1), fanouts=(4, 6), num_seeds=100, seed=1)
    stored = sum(map(len, {frozenset(seeds) for seeds in needed_by(mb, 2)}))
    required = max(stored, sum(map(len, {frozenset(seeds) for seeds in needed_by(mb, 1)}))) * BYTES_PER_PIN
    assert len(batch_hypergraph(mb, max_bytes=required).weights)
    with pytest.raises(CapacityError, match=rf"has {stored:,} pins and requires .*, more than .*'star_refined'"):
        batch_hypergraph(mb, max_bytes=required - 1)
