"""Drawing of micro-batches: each node once per level, in the colour of its part, edges between the right nodes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.plots.batch_drawing import draw_micro_batches


def batch() -> MiniBatch:
    """Seeds 10, 11, 12; 10 and 11 read 20, 12 reads 30; 20 reads 40."""
    last = Block(torch.tensor([0, 1, 2, 3]), torch.tensor([3, 3, 4], dtype=torch.int32), 5, 3)
    first = Block(torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([5], dtype=torch.int32), 6, 5)
    return MiniBatch(torch.tensor([10, 11, 12, 20, 30, 40]), (first, last))


def nodes_of(figure: Any, name: str) -> dict[tuple[str, float], str]:
    """(Raw id, level) → hover text."""
    trace = next(t for t in figure.data if t.name == name)
    return {(text, -y): about for text, y, about in zip(trace.text, trace.y, trace.customdata, strict=True)}


def drawn(part: list[int]) -> Any:
    mb = batch()
    return draw_micro_batches(mb, mb.split(torch.tensor(part)))


def test_nodes_have_the_colour_of_the_parts_that_contain_them() -> None:
    figure = drawn([0, 1, 1])
    assert set(nodes_of(figure, "part 0")) == {("10", 0), ("10", 1), ("10", 2)}
    ones = {(seed, level) for seed in ("11", "12") for level in (0, 1, 2)} | {("30", 0), ("30", 1)}
    assert set(nodes_of(figure, "part 1")) == ones
    assert set(nodes_of(figure, "in several parts")) == {("20", 0), ("20", 1), ("40", 0)}
    assert nodes_of(figure, "in several parts")["40", 0] == "node 40<br>in part 0, 1"
    assert figure.layout.title.text == "2 of 6 input nodes are loaded by several micro-batches"


def test_edges_connect_source_and_destination_in_every_part_that_contains_them() -> None:
    figure = drawn([0, 1, 1])
    at = {(x, y): text for t in figure.data if t.text for x, y, text in zip(t.x, t.y, t.text, strict=True)}
    found = []
    for trace in (t for t in figure.data if t.mode == "lines"):
        ends = list(zip(trace.x, trace.y, strict=True))
        assert all(gap == (None, None) for gap in ends[2::3])
        found.append({(at[s], at[d], -s[1]) for s, d in zip(ends[::3], ends[1::3], strict=True)})
    assert found == [{("40", "20", 0), ("20", "10", 1)}, {("40", "20", 0), ("20", "11", 1), ("30", "12", 1)}]


def test_nodes_do_not_overlap() -> None:
    figure = drawn([0, 1, 0])
    places = [(x, y) for t in figure.data if t.mode != "lines" for x, y in zip(t.x, t.y, strict=True)]
    assert len(set(places)) == len(places) == 6 + 5 + 3


def test_level_names_and_counts() -> None:
    axis = drawn([0, 0, 0]).layout.yaxis
    assert dict(zip(axis.tickvals, axis.ticktext, strict=True)) == {
        0: "inputs<br>6 nodes",
        -1: "after layer 1<br>5 nodes",
        -2: "seeds<br>3 nodes",
    }


def test_no_legend_entry_for_shared_nodes_if_there_are_none() -> None:
    assert [t.name for t in drawn([0, 0, 1]).data if t.name] == ["part 0", "part 1"]
    assert drawn([0, 0, 0]).layout.title.text.startswith("0 of 6 input nodes")


def test_invalid_batches() -> None:
    mb = batch()
    micro = mb.split(torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match="6 input nodes, but max_nodes is 5; sample fewer"):
        draw_micro_batches(mb, micro, max_nodes=5)
    with pytest.raises(ValueError, match="8 micro-batches; pass 1 to 7"):
        draw_micro_batches(mb, micro * 4)
    with pytest.raises(ValueError, match=r"pass the result of mb.split\(part\)"):
        draw_micro_batches(mb, [replace(micro[0], parent=None)])
