"""Layout of figures with several panels: facets side by side, each a stack of panels."""

from dataclasses import dataclass
from math import ceil

import plotly.graph_objects as go
from plotly.subplots import make_subplots

_PANEL, _GAP, _BAND_GAP = 230, 36, 24  # pixels: panel height, gap between panels, extra gap between bands of facets
_MARGINS = 150  # pixels: figure title, axis title and legend
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class PanelGrid:
    """Facets side by side, at most three per band; bands one below the other; each facet a stack of panels.

    Args:
        names: title of each facet; "" for none.
        stacked: panels per facet.
    """

    names: tuple[str, ...]
    stacked: int = 1

    @property
    def bands(self) -> int:
        """Number of bands."""
        return ceil(len(self.names) / _MAX_COLUMNS)

    @property
    def columns(self) -> int:
        """Facets per band: four facets are two by two, five and six are three by two."""
        return ceil(len(self.names) / self.bands)

    @property
    def height(self) -> int:
        """Height of the figure in pixels."""
        return self._inner_height + _MARGINS

    @property
    def _inner_height(self) -> int:
        heights = self._row_heights
        return sum(heights) + (len(heights) - 1) * _GAP

    @property
    def _row_heights(self) -> list[int]:
        """An empty row separates bands: it makes room for axis titles above and facet titles below it."""
        band = [_PANEL] * self.stacked
        return band + [height for _ in range(self.bands - 1) for height in (_BAND_GAP, *band)]

    def cells(self, facet: int) -> list[tuple[int, int]]:
        """Row and column, from 1, of a facet's panels, top to bottom.

        Args:
            facet: its position in `names`.
        """
        band, column = divmod(facet, self.columns)
        return [(band * (self.stacked + 1) + down + 1, column + 1) for down in range(self.stacked)]

    def figure(self) -> go.Figure:
        """An empty figure with these panels, each facet's title above its first panel."""
        heights = self._row_heights
        titles = {self.cells(facet)[0]: bold(name) for facet, name in enumerate(self.names)}
        used = {cell for facet in range(len(self.names)) for cell in self.cells(facet)}
        cells = [[(row + 1, column + 1) for column in range(self.columns)] for row in range(len(heights))]
        figure = make_subplots(
            len(heights),
            self.columns,
            row_heights=heights,
            specs=[[{} if cell in used else None for cell in row] for row in cells],
            subplot_titles=[titles.get(cell, "") for row in cells for cell in row if cell in used],
            vertical_spacing=_GAP / self._inner_height if len(heights) > 1 else None,
            horizontal_spacing=(0.13, 0.11)[self.columns - 2] if self.columns > 1 else None,
        )
        return figure.update_annotations(font_size=13)


def bold(title: str) -> str:
    """A panel's title in bold type.

    Args:
        title: "" remains "".

    >>> bold("cora"), bold("")
    ('<b>cora</b>', '')
    """
    return f"<b>{title}</b>" if title else ""
