"""Axes and panels: titles, units, ticks of logarithmic axes, and the grid of a figure's panels."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.plots.style import FACET_LINE, traces_of

_LABELS = {
    "num_ranks": "ranks P",
    "owned_3": "input nodes per PE, |S³|",
    "needed_3": "ids before exchange, |S̃³|",
    "halo_3": "ids of other PEs, c|S̃³|",
    "edges_3": "input-layer edges",
    "num_parts": "micro-batches K",
    "num_layers": "layers",
    "num_edges": "edges",
    "num_inputs": "input nodes",
    "method": "partitioner",
    "peak_bytes": "peak memory",
    "of_reg": "peak memory ÷ REG's",
    "epoch_seconds": "epoch time",
    "fastest_seconds": "fastest sample",
    "fastest_epoch_seconds": "epoch time, fastest run",
    "relative": "nodes per second ÷ whole batch",
    "inputs_ratio": "input nodes, parts ÷ batch",
    "largest_ratio": "input nodes, largest part ÷ batch",
    "total_inputs": "input nodes",
    "full_inputs": "input nodes of the batch",
    "largest_inputs": "input nodes of the largest part",
    "hidden_dim": "hidden width",
    "batch_size": "batch size",
    "inputs_per_seed": "input nodes per seed",
    "node_inputs_per_seed": "nodes: inputs per seed",
    "edge_inputs_per_seed": "edges: inputs per seed",
    "node_inputs": "nodes: inputs",
    "edge_inputs": "edges: inputs",
    "density": "edges per node",
    "share": "share of the nodes",
    "num_pes": "processing elements (GPUs)",
    "num_logical": "logical groups l",
    "num_partitions": "physical partitions p",
    "partition_bias": "bias B, partitions",
    "hub_bias": "bias B, hubs",
    "rows_read": "times all rows are read",
    "modelled_io_seconds": "modelled I/O",
    "kappa": "batches per group κ",
    "cpu_seconds": "CPU time",
    "cache_seconds": "building the cache",
    "miss_rate": "share of reads that miss",
}
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_UNITS = {
    "_bytes": {unit: 1024.0**power for power, unit in enumerate(_BYTES)},
    "_seconds": {"ms": 1e-3, "s": 1.0, "min": 60.0},
}
_MIN_TICKS, _MAX_TICKS = 3, 7
_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))  # ticks per decade, coarsest first
_WIDTH, _GLYPH = 620, 7  # pixels: all panels of a picture of 700; a character of a tick
_NARROW = 4  # high ÷ low below which evenly spaced ticks read better


def label(column: str, unit: str = "") -> str:
    """The axis title of a table's column.

    Args:
        column: name of the column.
        unit: appended in parentheses; "" for none.

    >>> label("num_parts"), label("peak_bytes", "GiB"), label("forward_seconds", "s")
    ('micro-batches K', 'peak memory (GiB)', 'forward (s)')
    """
    suffix = next((s for s in _UNITS if column.endswith(s)), "")
    return with_unit(_LABELS.get(column, column.removesuffix(suffix).replace("_", " ")), unit)


def with_unit(text: str, unit: str) -> str:
    """Append a unit in parentheses.

    Args:
        text: title of an axis.
        unit: "" for none.
    """
    return f"{text} ({unit})" if unit else text


def unit_of(column: str, largest: float, unit: str | None = None) -> tuple[str, float]:
    """The unit to show a column in, and its size: by default the largest unit in which `largest` is at least 1.

    Args:
        column: ends in `_bytes` or `_seconds`; other columns have no unit.
        largest: largest value of the column, in bytes or seconds.
        unit: overrides the default: B, KiB, MiB, GiB, TiB; ms, s, min.

    Returns:
        The unit ("" for none) and the bytes or seconds to divide values by.

    Raises:
        ValueError: the column has no such unit.

    >>> unit_of("peak_bytes", 3 * 2**20)
    ('MiB', 1048576.0)
    """
    units = next((units for suffix, units in _UNITS.items() if column.endswith(suffix)), {"": 1.0})
    if unit is None:
        unit = max((u for u in units if units[u] <= largest), key=lambda u: units[u], default=next(iter(units)))
    if unit not in units:
        raise ValueError(
            f"{column} can't be shown in {unit!r}; choose from {', '.join(u for u in units if u) or 'none'}"
        )
    return unit, units[unit]


def exact_bytes(count: int) -> str:
    """Bytes for a hover text, rounded and exact.

    Args:
        count: bytes.

    >>> exact_bytes(1536)
    '1.50 KiB (1,536 bytes)'
    """
    return f"{format_bytes(count)} ({count:,} bytes)"


def log2_x_axes(figure: go.Figure, values: Iterable[float]) -> None:
    """Make all x axes logarithmic, with one tick per value, but for values whose texts would overlap.

    Args:
        figure: changed in place.
        values: positive.
    """
    given = sorted(values)
    ends = log2(given[0]) - 0.3, log2(given[-1]) + 0.3
    for axis in figure.select_xaxes():
        left, right = axis.domain or (0, 1)
        pixels = _WIDTH * (right - left) / (ends[1] - ends[0])
        ticks = given[:1]
        for value in given[1:]:
            if pixels * log2(value / ticks[-1]) >= _GLYPH * (1 + len(_tick(ticks[-1]) + _tick(value)) / 2):
                ticks.append(value)
        span = [end * log10(2) for end in ends]
        axis.update(type="log", tickvals=ticks, ticktext=[_tick(tick) for tick in ticks], range=span)


def log_y_axes(figure: go.Figure) -> None:
    """Make every y axis logarithmic, with ticks and range by the positive values of its traces.

    Args:
        figure: changed in place.
    """
    for axis in figure.select_yaxes():
        name = axis.plotly_name.replace("axis", "")
        axis.update(log_axis(v for trace in traces_of(figure) if trace.yaxis == name for v in trace.y if v > 0))


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """Plotly properties of a logarithmic axis: range with a margin around the values, and round ticks.

    Args:
        values: positive.
    """
    given = list(values)
    if not given:
        return {"type": "log"}
    margin = (max(given) / min(given)) ** 0.08 * 1.05
    low, high = min(given) / margin, max(given) * margin
    ticks = _log_ticks(low, high)
    text = [_tick(tick) for tick in ticks]
    return {"type": "log", "range": [log10(low), log10(high)], "tickvals": ticks, "ticktext": text}


def _tick(value: float) -> str:
    """A short text, as narrow panels have no room for long ones: thousands as k, millions as M, 2^-n as 1/2^n.

    >>> [_tick(value) for value in (0.3, 64, 2000, 16384, 200000, 1500000, 0.00195312)]
    ['0.3', '64', '2000', '16k', '200k', '1.5M', '1/512']
    """
    power = round(log2(value))
    if power <= -3 and abs(value / 2.0**power - 1) < 1e-5:  # recorded tables have six digits
        return f"1/{2**-power}"
    if value >= 1000 and log2(value).is_integer():
        return f"{value / 1024:g}k"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


def _log_ticks(low: float, high: float) -> list[float]:
    """Evenly spaced ticks on a narrow range, else the coarsest steps per decade that give enough ticks."""
    if high / low < _NARROW:
        return _even_ticks(low, high)
    powers = range(int(log10(low)) - 2, int(log10(high)) + 2)
    ticks = []
    for steps in _STEPS:
        ticks = [float(f"{step * 10.0**power:.3g}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _MIN_TICKS:
            break
    return ticks[:: -(-len(ticks) // _MAX_TICKS) or 1]


def _even_ticks(low: float, high: float) -> list[float]:
    power = 10.0 ** floor(log10((high - low) / _MIN_TICKS))
    step = next(size for size in (5 * power, 2 * power, power) if (high - low) / size >= _MIN_TICKS)
    return [float(f"{n * step:.6g}") for n in range(ceil(low / step), floor(high / step) + 1)]


_PANEL, _GAP, _BAND_GAP = 230, 36, 24  # pixels: panel height, gap between panels, extra gap between bands of facets
_MARGINS = 150  # pixels: figure title, axis title and legend
_MAX_COLUMNS = 3
_FIXED = "\N{NO-BREAK SPACE}"
_CHARACTERS = (80, 42, 28)  # of a facet's title, by the number of columns, in a picture of 700 pixels


@dataclass(frozen=True)
class PanelGrid:
    """Facets side by side, at most three per band; bands one below the other; each facet a stack of panels.

    Args:
        names: title of each facet; "" for none.
        stacked: panels per facet; or of each facet, if some have fewer.
    """

    names: tuple[str, ...]
    stacked: int | tuple[int, ...] = 1

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
        gap = _BAND_GAP + FACET_LINE * (max(map(len, self._lines), default=1) - 1)
        first, *others = self._rows_of_bands
        return [_PANEL] * first + [height for rows in others for height in (gap, *[_PANEL] * rows)]

    @property
    def _stacks(self) -> tuple[int, ...]:
        return (self.stacked,) * len(self.names) if isinstance(self.stacked, int) else self.stacked

    @property
    def _rows_of_bands(self) -> list[int]:
        """The rows of panels of each band, as many as its tallest facet has."""
        starts = range(0, len(self.names), self.columns)
        return [max(self._stacks[start : start + self.columns]) for start in starts]

    @property
    def _lines(self) -> list[list[str]]:
        """The lines of each title, broken between its parts: those of neighbours would run into each other."""
        parts = [re.sub(r"(?<![·,]) ", _FIXED, name) for name in self.names]
        width = _CHARACTERS[self.columns - 1]
        wrapped = [textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False) for name in parts]
        return [[line.replace(_FIXED, " ") for line in lines] for lines in wrapped]

    def cells(self, facet: int) -> list[tuple[int, int]]:
        """Row and column, from 1, of a facet's panels, top to bottom.

        Args:
            facet: its position in `names`.
        """
        band, column = divmod(facet, self.columns)
        above = sum(self._rows_of_bands[:band]) + band
        return [(above + down + 1, column + 1) for down in range(self._stacks[facet])]

    def figure(self) -> go.Figure:
        """An empty figure with these panels, each facet's title above its first panel."""
        heights = self._row_heights
        titles = {self.cells(facet)[0]: bold("<br>".join(lines)) for facet, lines in enumerate(self._lines)}
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
