"""Pictures of orders: a row per state, a column per partition, on the same axes."""

from typing import Any

import pytest

import workbench as wb
from workbench.plots.sequence import draw_sequences


def test_cells_are_absent_kept_or_loaded() -> None:
    figure: Any = draw_sequences([("BETA", wb.outofcore.beta_order(3, 2))], title="t")
    drawn = figure.data[0]
    assert [list(line) for line in drawn.z] == [[2, 2, 0], [1, 0, 2], [0, 2, 1]]
    assert [line[0] for line in drawn.customdata] == [4, 3, 2], "buckets that a state trains"
    assert {trace.name for trace in figure.data[1:]} == {"in the buffer", "loaded"}


def test_panels_share_their_axes() -> None:
    figure: Any = draw_sequences(
        [("a", wb.outofcore.beta_order(3, 2)), ("b", wb.outofcore.beta_order(8, 2))], title=None
    )
    states = wb.outofcore.beta_order(8, 2).num_states
    for axis in ("yaxis", "yaxis2"):
        assert list(figure.layout[axis].range) == [states - 0.5, -0.5]
    for axis in ("xaxis", "xaxis2"):
        assert list(figure.layout[axis].range) == [-0.5, 7.5]
    assert [note.text for note in figure.layout.annotations] == ["<b>a</b>", "<b>b</b>"]


def test_no_orders() -> None:
    with pytest.raises(ValueError, match="no order to draw"):
        draw_sequences([], title="t")
