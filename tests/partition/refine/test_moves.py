"""What a move saves and adds, and what a sweep leaves behind, against splits of the batch and fresh counts."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.partition.refine.oracles import part_bytes, partitioned
from tests.partition.refine.test_presence import LIMIT, read
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition import refine
from workbench.partition.refine import OBJECTIVES, refine_parts
from workbench.partition.refine.moves import _added, _saved, sweep
from workbench.partition.refine.presence import Presence, count_presence
from workbench.partition.refine.trees import Trees, computation_trees

Case = tuple[MiniBatch, torch.Tensor, int]


def prepared(case: Case) -> tuple[Trees, Presence, tuple[Any, ...]]:
    mb, part, num_parts = case
    trees = computation_trees(mb)
    return trees, count_presence(trees, part, num_parts, LIMIT), refine._scratch(trees)


def moved(part: torch.Tensor, output: int, label: int) -> torch.Tensor:
    part = part.clone()
    part[output] = label
    return part


@settings(max_examples=60)
@given(partitioned(), st.data())
def test_what_a_move_saves_and_adds_is_what_splits_say(case: Case, data: st.DataObject) -> None:
    mb, part, num_parts = case
    assume(mb.num_seeds and num_parts > 1)
    trees, presence, (stack, stamp, drops, _, _, clock) = prepared(case)
    before = part_bytes(mb, part, num_parts)
    for _ in range(4):  # what one leaves in scratch does not disturb the next
        output = data.draw(st.integers(0, mb.num_seeds - 1))
        home = int(part[output])
        other = data.draw(st.integers(0, num_parts - 1).filter(lambda label, home=home: label != home))
        after = part_bytes(mb, moved(part, output, other), num_parts)
        counted = trees.arrays(), presence.arrays(), output
        assert _saved(*counted, home, stack, stamp, drops, clock) == before[home] - after[home]
        added, _ = _added(*counted, other, float("inf"), stack, stamp, clock)
        assert added == after[other] - before[other]
        limit = data.draw(st.integers(0, max(0, int(added) - 1)))
        assert added == 0 or _added(*counted, other, float(limit), stack, stamp, clock)[0] > limit


@settings(max_examples=60)
@given(partitioned(), st.sampled_from(OBJECTIVES), st.booleans())
def test_a_sweep_leaves_what_a_fresh_count_finds(case: Case, objective: str, weighted: bool) -> None:
    mb, part, num_parts = case
    assume(mb.num_seeds)
    trees, presence, scratch = prepared(case)
    weights = (torch.arange(mb.num_seeds) % 3 + 1).double() if weighted else None
    state = refine._state(part, presence, weights)
    rule = refine._rule(presence, state, objective, weights)
    moves, done = sweep(trees.arrays(), presence.arrays(), state, rule, scratch, 0)
    found, found_bytes, _, load, members = state
    assert done == mb.num_seeds and (moves > 0) >= (found != part.numpy()).any()
    now = torch.from_numpy(found)
    assert found_bytes.tolist() == part_bytes(mb, now, num_parts)
    assert members.tolist() == torch.bincount(now, minlength=num_parts).tolist()
    expected = torch.bincount(now, weights=weights, minlength=num_parts) if weighted else torch.zeros(num_parts)
    assert load.tolist() == expected.tolist()
    assert read(mb, presence) == read(mb, count_presence(trees, now, num_parts, LIMIT))


def far_batch(*far: int) -> MiniBatch:
    """Three outputs, each with a source of its own with `far` in-neighbours; the first and the last share a source."""
    out = Block(torch.tensor([0, 2, 3, 5]), torch.tensor([3, 6, 4, 5, 6], dtype=torch.int32), 7, 3)
    indptr = torch.tensor([0, 0, 0, 0, *far, 0]).cumsum(0)
    inner = Block(indptr, torch.arange(7, 7 + sum(far), dtype=torch.int32), 7 + sum(far), 7)
    return MiniBatch(torch.arange(7 + sum(far)), (inner, out))


@pytest.mark.parametrize("far", [(440, 110, 60), (449, 110, 60), (220, 60, 20)])
def test_one_output_with_most_of_the_batch_behind_it(far: tuple[int, ...]) -> None:
    """Its move takes more entries than the table of presence had room for when most of it was in use."""
    assert refine_parts(far_batch(*far), torch.tensor([0, 0, 1])).tolist() == [1, 0, 1]


def test_the_table_is_made_anew_for_a_move_that_it_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found, real = [], refine.count_presence

    def nearly_full_at_first(*arguments: Any) -> Presence:
        found.append(real(*arguments))
        if len(found) == 1:
            found[0].filled[0] = int(0.8 * len(found[0].table))
        return found[-1]

    monkeypatch.setattr(refine, "count_presence", nearly_full_at_first)
    assert refine_parts(far_batch(440, 110, 60), torch.tensor([0, 0, 1])).tolist() == [1, 0, 1]
    assert len(found) == 2 and int(found[0].filled[0]) < len(found[0].table)
