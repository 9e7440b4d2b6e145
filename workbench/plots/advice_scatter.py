"""The configurations of `wb.advise` as points: seconds per epoch against the memory of a device."""

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from workbench.advisor.advice import Advice
from workbench.advisor.configuration import CHANGES, INEXACT, SAME, Configuration
from workbench.advisor.prices import Priced
from workbench.core.units import format_bytes
from workbench.plots.axes import bold, log_axis, unit_of, with_unit
from workbench.plots.scatter import pareto_front
from workbench.plots.style import FAINT, INK, PALETTE, titled

FAMILIES = ("plain", "cache on the device", "disk", "placement", "cooperation", "rows of owners")
"""Families of ideas, by where rows come from; each has a colour."""

_SYMBOLS = {SAME: "circle", CHANGES: "diamond", INEXACT: "square"}
_NEAR = 8  # times the largest peak; the line of a larger budget would squeeze the points together


def family(configuration: Configuration) -> str:
    """The family of ideas that a configuration belongs to.

    Args:
        configuration: any.
    """
    if configuration.spread != "alone":
        return "rows of owners" if configuration.spread == "owned" else configuration.spread
    if configuration.cache:
        return "cache on the device"
    return "plain" if configuration.reading == "memory" else "disk"


def advice_scatter(advice: Advice) -> go.Figure:
    """Draw each configuration at its peak memory and its seconds per epoch, with their error, and the Pareto front.

    Colours are families of ideas; diamonds change the samples, hollow markers exceed a budget, and hover texts have the
    bytes by link. Both axes are logarithmic; the dashed line is a device's budget, unless it is far beyond all peaks.

    Args:
        advice: result of `workbench.advise`.

    Raises:
        ValueError: no configuration could be priced.
    """
    shown = [one for one in advice.priced if one.can_be_priced]
    if not shown:
        raise ValueError(f"no configuration has a price to draw: {advice.priced[0].why}")
    budget, most = advice.pricer.memory_bytes, max(one.peak_bytes for one in shown)
    near = budget <= _NEAR * most
    unit, size = unit_of("peak_bytes", most)
    time, seconds = unit_of("epoch_seconds", max(one.epoch_seconds for one in shown))
    figure = go.Figure(_front([one for one in shown if one.fits], size, seconds))
    for place, name in enumerate(FAMILIES):
        if members := [one for one in shown if family(one.configuration) == name]:
            figure.add_trace(_entry(name, PALETTE[place], _SYMBOLS[SAME]))
            figure.add_trace(_markers(members, name, PALETTE[place], size, seconds))
    for result in (CHANGES, INEXACT):
        if any(one.result == result for one in shown):
            figure.add_trace(_entry(result, FAINT, _SYMBOLS[result]))
    if not all(one.fits for one in shown):
        figure.add_trace(_entry("does not fit", FAINT, f"{_SYMBOLS[SAME]}-open"))
    if near:
        figure.add_vline(budget / size, line={"color": INK, "dash": "dash", "width": 1})
    peaks = [one.peak_bytes / size for one in shown] + [budget / size] * near
    ends = [value * (1 + side * one.error) / seconds for one in shown for side, value in _sides(one)]
    figure.update_xaxes(log_axis(peaks) | {"title_text": with_unit("peak memory of a device", unit)})
    figure.update_yaxes(log_axis(ends) | {"title_text": with_unit("epoch", time)})
    return titled(figure, _finding(advice), height=440, subtitle=_about(advice))


def _sides(one: Priced) -> tuple[tuple[int, float], ...]:
    return ((1, one.epoch_seconds), *(((-1, one.epoch_seconds),) if one.error < 1 else ()))


def _finding(advice: Advice) -> str:
    if not advice.priced[0].fits:
        return f"Nothing fits: {advice.priced[0].why}"
    best, plain = advice.best, advice.plain
    if plain is None or not plain.fits or plain is best:
        needed = "" if plain is best else "; the plain program does not fit"
        return f"Advised: {best.configuration}{needed}"
    return f"{best.configuration}: {plain.epoch_seconds / best.epoch_seconds:.2f} times as fast as the plain program"


def _about(advice: Advice) -> str:
    pricer = advice.pricer
    return (
        f"{pricer.counts.data.name}, {pricer.machine.name or 'machine'} × {pricer.devices}: "
        f"{format_bytes(pricer.memory_bytes)} per device, {format_bytes(pricer.host_bytes)} of the host"
    )


def _front(fitting: Sequence[Priced], size: float, seconds: float) -> list[go.Scatter]:
    """The fitting configurations that none beats in both memory and time."""
    places = pareto_front((one.peak_bytes / size, one.epoch_seconds / seconds) for one in fitting)
    if not places:
        return []
    return [
        go.Scatter(
            x=[fitting[place].peak_bytes / size for place in places],
            y=[fitting[place].epoch_seconds / seconds for place in places],
            name="Pareto front",
            mode="lines",
            line={"shape": "hv", "color": FAINT, "width": 1.5},
            hoverinfo="skip",
            legendrank=2000,
            showlegend=True,
        )
    ]


def _entry(name: str, color: str, symbol: str) -> go.Scatter:
    """An entry of the legend; markers of a trace differ, so none of them can stand for it."""
    marker = {"symbol": symbol, "size": 10, "color": color, "line": {"width": 1.5, "color": color}}
    return go.Scatter(x=[None], y=[None], name=name, legendgroup=name, mode="markers", marker=marker, showlegend=True)


def _markers(members: Sequence[Priced], name: str, color: str, size: float, seconds: float) -> go.Scatter:
    return go.Scatter(
        x=[one.peak_bytes / size for one in members],
        y=[one.epoch_seconds / seconds for one in members],
        error_y={
            "array": [one.error * one.epoch_seconds / seconds for one in members],
            "color": color,
            "thickness": 1,
            "width": 3,
        },
        name=name,
        mode="markers",
        marker={
            "symbol": [*map(_symbol, members)],
            "size": 10,
            "color": color,
            "line": {"width": 1.5, "color": color},
        },
        customdata=[*map(_hover, members)],
        hovertemplate="%{customdata}<extra></extra>",
        legendgroup=name,
        showlegend=False,
    )


def _symbol(one: Priced) -> str:
    return _SYMBOLS[one.result] + ("" if one.fits else "-open")


def _hover(one: Priced) -> str:
    lines = [
        f"{one.epoch_seconds:.3g} s per epoch, ± {one.error:.0%}",
        f"peak of a device: {format_bytes(one.peak_bytes)}",
        f"host: {format_bytes(one.host_bytes)}",
        *_moved(one.link_bytes.items()),
        *([one.why] if one.why else []),
    ]
    return "<br>".join([bold(str(one.configuration)), *lines])


def _moved(links: Iterable[tuple[str, float]]) -> list[str]:
    return [f"rows from {link}: {format_bytes(round(nbytes))} per epoch" for link, nbytes in links]
