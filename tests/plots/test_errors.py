"""Dots of errors: where they stand, what is left out, the band."""

from typing import Any

import pandas as pd
import pytest

from workbench.plots.errors import error_dots

ROWS = [
    {"data": data, "layer": layer, "by": by, "error": error}
    for data in ("x", "y")
    for layer, by, error in (
        ("mean", "ours", 0.01),
        ("mean", "theirs", -0.4),
        ("gat", "ours", -0.02),
        ("gat", "theirs", None),
    )
]


def drawn(rows: Any = ROWS, **options: Any) -> Any:
    return error_dots(rows, x="layer", group="by", facet="data", **options)


def test_a_dot_a_row_above_its_name_beside_the_other_group() -> None:
    figure = drawn(title="Small")
    assert [trace.name for trace in figure.data] == ["ours", "theirs"] * 2
    ours, theirs = figure.data[:2]
    assert ours.y == (0.01, -0.02) and theirs.y == (-0.4,)
    assert [round(x) for x in ours.x] == [0, 1] and ours.x[0] < 0 < theirs.x[0]
    assert figure.layout.xaxis.ticktext == ("mean", "gat")
    assert [trace.showlegend for trace in figure.data] == [True, True, False, False]
    assert ours.marker.symbol != theirs.marker.symbol and ours.marker.color != theirs.marker.color


def test_the_band_is_drawn_in_every_panel() -> None:
    bands = [shape for shape in drawn(within=0.07).layout.shapes if shape.type == "rect"]
    assert [(band.y0, band.y1) for band in bands] == [(-0.07, 0.07)] * 2


def test_nothing_measured() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        drawn(pd.DataFrame(ROWS).assign(error=None))
