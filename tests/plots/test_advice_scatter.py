"""The picture of advice: every priced configuration at its place, marked by what it is and whether it fits."""

from dataclasses import replace
from typing import Any

import pytest

import workbench as wb
from tests.advisor.test_advise import GPU, advised, arxiv as arxiv, model_of, reduced
from workbench.advisor.configuration import INEXACT, SAME, Configuration
from workbench.advisor.prices import Priced
from workbench.plots.advice_scatter import FAMILIES, advice_scatter, family
from workbench.plots.scatter import pareto_front

UNITS = {"KiB": 2**10, "MiB": 2**20, "ms": 1e-3, "s": 1.0}


@pytest.fixture(scope="module")
def advice(arxiv: wb.Dataset) -> Any:
    """On two GPUs, whose memory suffices for a few rows."""
    memory = round(1.05 * advised(arxiv, machine=GPU).plain.peak_bytes)
    return advised(arxiv, machine=GPU, devices=2, memory=memory)


@pytest.fixture(scope="module")
def on_disk(arxiv: wb.Dataset) -> Any:
    """On a host whose memory does not suffice for plain training."""
    return advised(arxiv, host_memory=reduced(arxiv))


def points(figure: Any) -> list[Any]:
    """The traces of configurations; others are entries of the legend, and the front."""
    return [trace for trace in figure.data if trace.customdata is not None]


def unit_of(axis: Any) -> float:
    return UNITS[axis.title.text.rpartition("(")[2][:-1]]


def markers(figure: Any) -> dict[str, tuple[float, float, float, str]]:
    """By configuration: bytes, seconds, seconds of error, and symbol."""
    width, height = unit_of(figure.layout.xaxis), unit_of(figure.layout.yaxis)
    return {
        hover.partition("</b>")[0].removeprefix("<b>"): (x * width, y * height, error * height, symbol)
        for trace in points(figure)
        for x, y, error, symbol, hover in zip(
            trace.x, trace.y, trace.error_y.array, trace.marker.symbol, trace.customdata, strict=True
        )
    }


@pytest.mark.parametrize("name", ["advice", "on_disk"])
def test_every_configuration_is_a_marker_at_its_price(request: pytest.FixtureRequest, name: str):
    advice = request.getfixturevalue(name)
    drawn = markers(advice_scatter(advice))
    priced = {str(one.configuration): one for one in advice.priced if one.can_be_priced}
    assert drawn.keys() == priced.keys()
    assert {one.fits for one in priced.values()} == ({True, False} if name == "on_disk" else {True})
    for name, (peak, seconds, error, symbol) in drawn.items():
        one = priced[name]
        assert (peak, seconds) == pytest.approx((one.peak_bytes, one.epoch_seconds))
        assert error == pytest.approx(one.error * one.epoch_seconds)
        assert symbol.endswith("-open") == (not one.fits)
        assert symbol.startswith("diamond") == one.configuration.changes_samples


def test_what_changes_the_gradient_has_a_symbol_of_its_own(advice: Any):
    priced = list(advice.priced)
    at = next(i for i, one in enumerate(priced) if one.result == SAME)
    priced[at] = replace(priced[at], is_exact=False)
    figure: Any = advice_scatter(replace(advice, priced=tuple(priced)))
    assert markers(figure)[str(priced[at].configuration)][-1].startswith("square")
    assert "square" in {trace.marker.symbol for trace in figure.data if trace.name == INEXACT}


def test_a_family_has_one_colour(advice: Any):
    figure: Any = advice_scatter(advice)
    traces = points(figure)
    assert len({trace.marker.color for trace in traces}) == len(traces)
    assert {trace.name for trace in traces} == {*FAMILIES} - {"disk"}
    entries = {trace.name: trace.marker.symbol for trace in figure.data if trace.showlegend and trace.mode == "markers"}
    assert entries == {trace.name: "circle" for trace in traces} | {"changes the samples": "diamond"}
    assert {family(Configuration(reading="packed", labor=True)), family(Configuration(labor=True))} == {"disk", "plain"}
    assert {family(Configuration(spread="placement")), family(Configuration(cache="lru"))} < set(FAMILIES)


def test_the_front_is_of_those_that_fit(advice: Any):
    figure: Any = advice_scatter(advice)
    (line,) = [trace for trace in figure.data if trace.mode == "lines"]
    fitting = [one for one in advice.priced if one.fits]
    assert len(line.x) == len(pareto_front((one.peak_bytes, one.epoch_seconds) for one in fitting))
    fastest = min(one.epoch_seconds for one in fitting)
    assert line.y[-1] * unit_of(figure.layout.yaxis) == pytest.approx(fastest)


def test_the_budget_is_a_line_unless_it_is_far_away(arxiv: wb.Dataset, advice: Any):
    near: Any = advice_scatter(advice)
    (line,) = near.layout.shapes
    assert line.x0 == line.x1 == pytest.approx(advice.pricer.memory_bytes / unit_of(near.layout.xaxis))
    far: Any = advice_scatter(advised(arxiv, memory="64GiB"))
    assert not far.layout.shapes
    assert "64.00 GiB per device" in far.layout.meta["title"]


def test_the_title_says_the_finding(arxiv: wb.Dataset, advice: Any, on_disk: Any):
    figure: Any = advice_scatter(advice)
    ratio = advice.plain.epoch_seconds / advice.best.epoch_seconds
    expected = f"{advice.best.configuration}: {ratio:.2f} times as fast as the plain program"
    assert figure.layout.meta["title"].startswith(expected if advice.best is not advice.plain else "Advised: plain")
    figure = advice_scatter(on_disk)
    assert figure.layout.meta["title"].startswith(f"Advised: {on_disk.best.configuration}; the plain program does not")
    none: Any = advice_scatter(advised(arxiv, host_memory=1000))
    assert none.layout.meta["title"].startswith("Nothing fits: needs")
    assert {symbol for _, _, _, symbol in markers(none).values()} == {"circle-open", "diamond-open"}


def test_hover_texts_tell_memory_of_the_host_and_why_not(on_disk: Any):
    figure: Any = advice_scatter(on_disk)
    texts = [text for trace in points(figure) for text in trace.customdata]
    one: Priced = next(one for one in on_disk.priced if not one.fits and one.can_be_priced)
    (text,) = [text for text in texts if text.startswith(f"<b>{one.configuration}</b>")]
    assert f"host: {wb.format_bytes(one.host_bytes)}" in text
    assert text.endswith(one.why)


def test_nothing_that_could_be_priced_is_an_error(arxiv: wb.Dataset):
    tiny = 2 * sum(parameter.nbytes for parameter in model_of(arxiv).parameters()) + 1
    advice = advised(arxiv, memory=tiny)
    if any(one.can_be_priced for one in advice.priced):
        assert advice_scatter(advice).data
    else:
        with pytest.raises(ValueError, match="no configuration has a price to draw"):
            advice_scatter(advice)
