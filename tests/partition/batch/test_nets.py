"""Nets against sets built in plain Python, and their connectivity against the redundancy of real splits."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.nets import BYTES_PER_PIN, Nets, batch_nets
from workbench.partition.redundancy import redundancy


def needed_by(mb: MiniBatch, hops: int) -> list[set[int]]:
    """For every node of the first of the last `hops` layers the outputs that need it."""
    needs = [{output} for output in range(mb.num_seeds)]
    for block in mb.blocks[len(mb.blocks) - hops :][::-1]:
        sources: list[set[int]] = [set(needs[i]) if i < block.num_dst else set() for i in range(block.num_src)]
        for source, destination in zip(block.indices.tolist(), block.destinations.tolist(), strict=True):
            sources[source] |= needs[destination]
        needs = sources
    return needs


def as_counter(nets: Nets) -> Counter[frozenset[int]]:
    pins = [frozenset(net.tolist()) for net in nets.pins.split(nets.indptr.diff().tolist())]
    assert len(pins) == len(set(pins)) == len(nets.weights)
    assert sum(map(len, pins)) == len(nets.pins)
    return Counter(dict(zip(pins, nets.weights.tolist(), strict=True)))


@given(minibatches(), st.integers(1, 3))
def test_nets_are_the_outputs_that_need_a_node(mb: MiniBatch, hops: int) -> None:
    there = min(hops, len(mb.blocks))
    wanted = Counter(frozenset(outputs) for outputs in needed_by(mb, there) if len(outputs) > 1)
    assert as_counter(batch_nets(mb, hops=hops)) == wanted
    if there == len(mb.blocks):
        assert as_counter(batch_nets(mb)) == wanted


def connectivity(nets: Nets, part: torch.Tensor) -> int:
    touched = [len(set(part[net.long()].tolist())) for net in nets.pins.split(nets.indptr.diff().tolist())]
    return sum((parts - 1) * weight for parts, weight in zip(touched, nets.weights.tolist(), strict=True))


@given(minibatches(), st.integers(0, 2**16))
def test_connectivity_is_the_redundancy(mb: MiniBatch, seed: int) -> None:
    part = torch.randint(3, (mb.num_seeds,), generator=torch.Generator().manual_seed(seed))
    found = redundancy(mb.split(part), mb)
    if mb.num_seeds:
        assert connectivity(batch_nets(mb), part) == found.total_inputs - found.full_inputs


def test_threads_do_not_change_the_nets(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mb = random_minibatch(random_graph(300, 2000, seed=1), fanouts=(4, 6), num_seeds=150, seed=1)
    wanted = batch_nets(mb)
    monkeypatch.setattr("workbench.kernels.threads.num_chunks", lambda rows, min_rows=1: min(num_threads, max(1, rows)))
    found = batch_nets(mb)
    for name in ("indptr", "pins", "weights"):
        assert torch.equal(getattr(found, name), getattr(wanted, name))


def test_a_batch_without_layers_has_no_nets() -> None:
    assert not len(batch_nets(MiniBatch(torch.arange(4), ())).weights)
    assert not len(batch_nets(MiniBatch(torch.arange(4), ()), hops=1).weights)


def test_what_does_not_fit_is_refused_before_it_is_built() -> None:
    mb = random_minibatch(random_graph(200, 1500, seed=1), fanouts=(4, 6), num_seeds=100, seed=1)
    stored = sum(map(len, {frozenset(outputs) for outputs in needed_by(mb, 2)}))
    needed = max(stored, sum(map(len, {frozenset(outputs) for outputs in needed_by(mb, 1)}))) * BYTES_PER_PIN
    assert len(batch_nets(mb, max_bytes=needed).weights)
    with pytest.raises(CapacityError, match=rf"has {stored:,} pins and takes .*, more than .*'star_refined'"):
        batch_nets(mb, max_bytes=needed - 1)
