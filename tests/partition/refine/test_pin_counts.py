"""Pin counts against sets and counters in plain Python, initially and after moves."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st

from tests.partition.refine.oracles import contracted_sources, part_bytes, partitioned, pins_by_part
from tests.strategies import random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.partition.refine import fm as module
from workbench.partition.refine.computation_graph import computation_graph, contract
from workbench.partition.refine.fm import PinCounts, add_pin, count_pins, pin_count, remove_pin

LIMIT = 1 << 30


def counted(mb: MiniBatch, part: torch.Tensor, num_parts: int) -> PinCounts:
    return count_pins(contract(computation_graph(mb)), part, num_parts, LIMIT)


def read(mb: MiniBatch, found: PinCounts) -> list[Counter[int]]:
    """Read the count of every node and part through the kernel."""
    nodes, arrays = range(mb.num_seeds, mb.num_seeds + len(found.row_starts) - 1), found.arrays()
    return [
        Counter({node: n for node in nodes if (n := int(pin_count(arrays, node, label)))})
        for label in range(found.num_parts)
    ]


@given(partitioned())
def test_counts_equal_those_of_sets(case: tuple[MiniBatch, torch.Tensor, int]) -> None:
    mb, part, num_parts = case
    found = counted(mb, part, num_parts)
    assert read(mb, found) == pins_by_part(mb, part.tolist(), num_parts)
    assert found.part_bytes.tolist() == part_bytes(mb, part, num_parts)


@pytest.mark.parametrize("num_parts", [1, 64, 512])
@pytest.mark.parametrize("fanouts", [(3,), (2, 2), (2, 2, 2)])
def test_many_parts(num_parts: int, fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(60, 300, seed=1), fanouts=fanouts, num_seeds=40)
    part = torch.arange(40) * 13 % num_parts
    assert read(mb, counted(mb, part, num_parts)) == pins_by_part(mb, part.tolist(), num_parts)


def move(sources: list[list[int]], pins: PinCounts, seed: int, home: int, other: int) -> None:
    """Move a seed with all nodes that leave or enter a part with it."""
    for label, change in ((home, remove_pin), (other, add_pin)):
        stack = [seed]
        while stack:
            for source in sources[stack.pop()]:
                if change(pins.arrays(), source, label) == (change is add_pin):  # the first pin, or none is left
                    stack.append(source)


@given(partitioned(), st.integers(0, 2**16))
def test_counts_after_moves_of_seeds(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    mb, part, num_parts = case
    found, sources, rng = counted(mb, part, num_parts), contracted_sources(mb), random.Random(seed)
    labels = part.tolist()
    for _ in range(8 * bool(labels)):
        moved, other = rng.randrange(len(labels)), rng.randrange(num_parts)
        if other != labels[moved]:
            move(sources, found, moved, labels[moved], other)
            labels[moved] = other
    assert read(mb, found) == pins_by_part(mb, labels, num_parts)


@given(partitioned(), st.integers(0, 2**16))
def test_counts_after_single_changes(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    """In any order, as long as no more parts contain a node than its row has room for."""
    mb, part, num_parts = case
    found, rng = counted(mb, part, num_parts), random.Random(seed)
    model, most = pins_by_part(mb, part.tolist(), num_parts), np.diff(found.row_starts)
    nodes = sorted({source for row in contracted_sources(mb) for source in row})
    for _ in range(40 * bool(nodes)):
        node, label = rng.choice(nodes), rng.randrange(num_parts)
        if rng.random() < 0.5 and model[label][node]:
            model[label][node] -= 1
            assert remove_pin(found.arrays(), node, label) == model[label][node]
        elif model[label][node] or sum(counts[node] > 0 for counts in model) < most[node - mb.num_seeds]:
            model[label][node] += 1
            assert add_pin(found.arrays(), node, label) == model[label][node]
    assert read(mb, found) == [+counts for counts in model]


@given(partitioned(max_parts=20))
def test_rows_have_room_for_every_part_that_may_contain_a_node(
    case: tuple[MiniBatch, torch.Tensor, int],
) -> None:
    mb, _, num_parts = case
    assume(mb.num_seeds)
    reached = pins_by_part(mb, range(mb.num_seeds), mb.num_seeds)  # every seed is a part of its own
    lengths = np.diff(counted(mb, torch.arange(mb.num_seeds) % num_parts, num_parts).row_starts)
    for node, length in enumerate(lengths.tolist(), start=mb.num_seeds):
        assert min(num_parts, sum(node in counts for counts in reached)) <= length <= num_parts


def test_threads_do_not_change_the_counts(num_threads: int) -> None:
    mb = random_minibatch(random_graph(300, 2000, seed=1), fanouts=(4, 4), num_seeds=150)
    part = torch.arange(150) % 11
    many = counted(mb, part, 11)
    before = get_num_threads()
    set_num_threads(1)
    try:
        one = counted(mb, part, 11)
    finally:
        set_num_threads(before)
    for name in ("row_starts", "rows", "part_bytes"):
        assert np.array_equal(getattr(many, name), getattr(one, name)), name


def test_capacity_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    mb, part = random_minibatch(fanouts=(3, 3)), torch.arange(5) % 2
    graph, found = contract(computation_graph(mb)), counted(mb, part, 2)
    readers = Counter(node for counts in pins_by_part(mb, range(mb.num_seeds), mb.num_seeds) for node in counts)
    most_entries = sum(min(2, count) for count in readers.values())
    required = found.row_starts.nbytes + found.rows.nbytes + 8 * most_entries
    count_pins(graph, part, 2, 2 * required)
    with pytest.raises(CapacityError, match=r"requires .*, more than the limit of .*: use fewer parts"):
        count_pins(graph, part, 2, required - 1)
    monkeypatch.setattr(module, "MAX_PARTS", 1)
    with pytest.raises(CapacityError, match=r"supports up to 1 parts, not 2:"):
        count_pins(graph, part, 2, LIMIT)
