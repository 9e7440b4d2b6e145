"""Where panels lie in a figure, and ticks of their logarithmic axes."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log2, log10

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.plots.style import traces_of

_PANEL, _GAP, _BAND_GAP = 230, 36, 24  # pixels: height of a panel, between stacked ones, more between bands of facets
_AROUND = 150  # pixels: title above; axis title and legend below
_MOST_COLUMNS = 3
_MOST_TICKS = 9


@dataclass(frozen=True)
class Grid:
    """Facets side by side, at most three, in bands; each a stack of panels.

    Args:
        names: of the facets; "" for the only one.
        stacked: panels of a facet.
    """

    names: tuple[str, ...]
    stacked: int

    @property
    def bands(self) -> int:
        return ceil(len(self.names) / _MOST_COLUMNS)

    @property
    def columns(self) -> int:
        """Four facets are two by two, five and six three by two."""
        return ceil(len(self.names) / self.bands)

    @property
    def height(self) -> int:
        """Of the figure, in pixels."""
        return self._inner_height + _AROUND

    @property
    def _inner_height(self) -> int:
        heights = self._row_heights
        return sum(heights) + (len(heights) - 1) * _GAP

    @property
    def _row_heights(self) -> list[int]:
        """Bands have an empty row between them, for the axis title above and the facet's name below it."""
        band = [_PANEL] * self.stacked
        return band + [height for _ in range(self.bands - 1) for height in (_BAND_GAP, *band)]

    def places(self, facet: int) -> list[tuple[int, int]]:
        """Row and column, from 1, of a facet's panels, top to bottom."""
        band, column = divmod(facet, self.columns)
        return [(band * (self.stacked + 1) + down + 1, column + 1) for down in range(self.stacked)]

    def figure(self) -> go.Figure:
        """The panels, empty, each facet named above its first."""
        heights = self._row_heights
        places = {self.places(facet)[0]: f"<b>{name}</b>" for facet, name in enumerate(self.names) if name}
        used = {place for facet in range(len(self.names)) for place in self.places(facet)}
        cells = [[(row + 1, column + 1) for column in range(self.columns)] for row in range(len(heights))]
        figure = make_subplots(
            len(heights),
            self.columns,
            row_heights=heights,
            specs=[[{} if cell in used else None for cell in row] for row in cells],
            subplot_titles=[places.get(cell, "") for row in cells for cell in row if cell in used],
            vertical_spacing=_GAP / self._inner_height if len(heights) > 1 else None,
            horizontal_spacing=(0.13, 0.11)[self.columns - 2] if self.columns > 1 else None,
        )
        return figure.update_annotations(font_size=13)


def binary_ticks(figure: go.Figure, values: Iterable[float]) -> None:
    """Logarithmic x axes with a tick at each of the values."""
    ticks = sorted(values)
    ends = log2(ticks[0]) - 0.3, log2(ticks[-1]) + 0.3
    span = [end * log10(2) for end in ends]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks], range=span)


def decimal_ticks(figure: go.Figure) -> None:
    """Logarithmic y axes with ticks at 1, 2 and 5 times powers of ten, or at powers alone where those are many."""
    for axis in figure.select_yaxes():
        name = axis.plotly_name.replace("axis", "")
        values = [v for trace in traces_of(figure) if trace.yaxis == name for v in trace.y if v > 0]
        if not values:
            continue
        low, high = min(values) / 1.25, max(values) * 1.25
        powers = [10.0**power for power in range(int(log10(low)) - 1, int(log10(high)) + 2)]
        ticks = [t for power in powers for t in (power, 2 * power, 5 * power) if low <= t <= high]
        if len(ticks) > _MOST_TICKS:
            ticks = [power for power in powers if low <= power <= high]
        axis.update(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks], range=[log10(low), log10(high)])
