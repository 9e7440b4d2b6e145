"""Counts against sets and counters of plain Python, at once and after outputs have come and gone."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partition.refine.oracles import children, firsts, part_bytes, partitioned, presence
from tests.strategies import random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.partition.refine import presence as module
from workbench.partition.refine.presence import Presence, add_parent, count_in, count_presence, drop_parent
from workbench.partition.refine.trees import computation_trees

LIMIT = 1 << 30


def counted(mb: MiniBatch, part: torch.Tensor, num_parts: int) -> Presence:
    return count_presence(computation_trees(mb), part, num_parts, LIMIT)


def read(mb: MiniBatch, found: Presence) -> list[Counter[int]]:
    """What the kernels say of every node and part."""
    nodes, arrays = range(mb.num_seeds, firsts(mb)[-1]), found.arrays()
    return [
        Counter({node: n for node in nodes if (n := int(count_in(arrays, node, label)))})
        for label in range(found.num_parts)
    ]


@given(partitioned())
def test_counts_are_those_of_sets(case: tuple[MiniBatch, torch.Tensor, int]) -> None:
    mb, part, num_parts = case
    found = counted(mb, part, num_parts)
    assert read(mb, found) == presence(mb, part.tolist(), num_parts)
    assert found.part_bytes.tolist() == part_bytes(mb, part, num_parts)
    assert int(found.filled[0]) == np.count_nonzero(found.table) < len(found.table)


@pytest.mark.parametrize("num_parts", [1, 64, 512])
@pytest.mark.parametrize("fanouts", [(3,), (2, 2), (2, 2, 2)])
def test_many_parts(num_parts: int, fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(60, 300, seed=1), fanouts=fanouts, num_seeds=40)
    part = torch.arange(40) * 13 % num_parts
    assert read(mb, counted(mb, part, num_parts)) == presence(mb, part.tolist(), num_parts)


def move(below: list[list[int]], found: Presence, output: int, home: int, other: int) -> None:
    """An output with all that turns with it."""
    for label, change in ((home, drop_parent), (other, add_parent)):
        waiting = [output]
        while waiting:
            for child in below[waiting.pop()]:
                if change(found.arrays(), child, label) and child < len(below):
                    waiting.append(child)


@settings(max_examples=60)
@given(partitioned(), st.integers(0, 2**16))
def test_outputs_come_and_go(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    mb, part, num_parts = case
    found, below, rng = counted(mb, part, num_parts), children(mb), random.Random(seed)
    labels = part.tolist()
    room = len(found.table) - firsts(mb)[-1]
    for _ in range(8 * bool(labels)):
        if int(found.filled[0]) >= room:  # else the next one might find no free place
            break
        output, other = rng.randrange(len(labels)), rng.randrange(num_parts)
        if other != labels[output]:
            move(below, found, output, labels[output], other)
            labels[output] = other
    assert read(mb, found) == presence(mb, labels, num_parts)
    assert int(found.filled[0]) == np.count_nonzero(found.table)


@settings(max_examples=60)
@given(partitioned(), st.integers(0, 2**16))
def test_parents_come_and_go(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    """In any order, as long as a node has no more parents than edges lead to it."""
    mb, part, num_parts = case
    found, rng = counted(mb, part, num_parts), random.Random(seed)
    model, most = presence(mb, part.tolist(), num_parts), Counter(c for row in children(mb) for c in row)
    nodes = sorted(most)
    for _ in range(40 * bool(nodes)):
        node, label = rng.choice(nodes), rng.randrange(num_parts)
        if rng.random() < 0.5 and model[label][node]:
            model[label][node] -= 1
            assert drop_parent(found.arrays(), node, label) == (model[label][node] == 0)
        elif sum(counts[node] for counts in model) < most[node] and found.filled[0] < len(found.table) - 1:
            model[label][node] += 1
            assert add_parent(found.arrays(), node, label) == (model[label][node] == 1)
    assert read(mb, found) == [+counts for counts in model]


def test_every_place_of_the_table_can_be_taken() -> None:
    mb = random_minibatch(random_graph(60, 300, seed=1), fanouts=(3, 3), num_seeds=10)
    found = counted(mb, torch.arange(10) % 5, 64)
    before, deep = read(mb, found), firsts(mb)[2]
    added = Counter()
    for label in range(5, 64):
        for node in range(deep, firsts(mb)[-1]):
            if found.filled[0] < len(found.table) - 1:
                assert add_parent(found.arrays(), node, label)
                added[label, node] += 1
    assert found.filled[0] == len(found.table) - 1 == np.count_nonzero(found.table)
    after = read(mb, found)
    assert after[:5] == before[:5]
    assert {(label, node): n for label in range(5, 64) for node, n in after[label].items()} == added


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
    for name in ("start", "slots", "table", "filled", "part_bytes"):
        assert np.array_equal(getattr(many, name), getattr(one, name)), name


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mb, part = random_minibatch(fanouts=(3, 3)), torch.arange(5) % 2
    trees, found = computation_trees(mb), counted(mb, part, 2)
    needed = found.table.nbytes + found.slots.nbytes + 8 * sum(map(len, presence(mb, part.tolist(), 2)))
    count_presence(trees, part, 2, needed)
    with pytest.raises(CapacityError, match=r"would take .*, more than the .* it may: use fewer parts"):
        count_presence(trees, part, 2, needed - 1)
    monkeypatch.setattr(module, "_COUNT_MASK", 1)
    with pytest.raises(CapacityError, match=r"counts up to 65,536 parts.*and 1 parents of a node"):
        count_presence(trees, part, 2, LIMIT)
    monkeypatch.undo()
    monkeypatch.setattr(module, "MOST_PARTS", 1)
    with pytest.raises(CapacityError, match=r"counts up to 1 parts.*not 2,"):
        count_presence(trees, part, 2, LIMIT)
