"""Layout of panels: equal heights, no overlap, facets in bands of at most three."""

from itertools import pairwise

import pytest

from workbench.plots.layout import PanelGrid


@pytest.mark.parametrize(("facets", "columns", "bands"), [(1, 1, 1), (3, 3, 1), (4, 2, 2), (5, 3, 2), (7, 3, 3)])
@pytest.mark.parametrize("stacked", [1, 2])
def test_panels_have_one_height_and_do_not_overlap(facets: int, columns: int, bands: int, stacked: int) -> None:
    grid = PanelGrid(tuple(map(str, range(facets))), stacked)
    assert (grid.columns, grid.bands) == (columns, bands)
    figure = grid.figure()
    axes = [(tuple(y.domain), y) for y in figure.select_yaxes()]
    assert len(axes) == facets * stacked
    heights = [round(high - low, 6) for (low, high), _ in axes]
    assert len(set(heights)) == 1
    ends = sorted({domain for domain, _ in axes})
    assert all(below[1] < above[0] for below, above in pairwise(ends))
    assert [a.text for a in figure.layout.annotations] == [f"<b>{name}</b>" for name in range(facets)]  # pyright: ignore[reportAttributeAccessIssue]
