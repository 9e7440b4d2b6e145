"""Style: distinguishable looks that are the same in all figures, legend entries, template."""

import re
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from workbench.memory.estimate import TERMS
from workbench.partition.batch import PARTITION_METHODS
from workbench.plots.style import TEMPLATE, TERM_LOOKS, looks, merge_legend, titled
from workbench.report.page import caption


def test_every_partitioner_has_a_colour_of_its_own_in_all_figures() -> None:
    together = looks(PARTITION_METHODS)
    assert set(together) == set(PARTITION_METHODS)
    found = together.values()
    for part in ("name", "symbol", "color"):
        assert len({getattr(look, part) for look in found}) == len(PARTITION_METHODS), part
    assert all(looks([method])[method] == together[method] for method in PARTITION_METHODS)


def test_a_method_has_one_colour_however_it_is_written() -> None:
    assert looks(["METIS"])["METIS"].color == looks(["metis"])["metis"].color
    found = looks(["reg (largest)", "reg (total)", "reg"])
    assert len({look.color for look in found.values()}) == 1
    assert (found["reg (largest)"].symbol, found["reg (total)"].symbol) == ("circle-open", "circle")
    assert found["reg (largest)"].name == "REG (largest)"


def test_order_does_not_depend_on_the_table() -> None:
    assert (
        list(looks(["random", "reg", "range"])) == list(looks(["range", "random", "reg"])) == ["reg", "range", "random"]
    )


def test_unknown_groups_get_the_remaining_colours() -> None:
    found = looks(["reg", "mine", 7])
    assert found["mine"].name == "mine" and found[7].name == "7"
    assert len({look.color for look in found.values()}) == 3
    assert len(looks(range(20))) == 20


def test_every_memory_term_has_a_look_of_its_own() -> None:
    assert tuple(TERM_LOOKS) == TERMS
    marks = [(look.color, look.hatch) for look in TERM_LOOKS.values()]
    assert len(set(marks)) == len({look.name for look in TERM_LOOKS.values()}) == len(TERMS)
    models = [TERM_LOOKS[term].color for term in ("parameters", "optimizer", "gradients")]
    assert len(set(models)) == 3, "shades of grey, not three blacks"


def test_traces_of_one_name_share_a_legend_entry() -> None:
    names = ["a", "b", "a", "", None]
    figure = go.Figure([go.Scatter(name="a", showlegend=False), *(go.Scatter(name=name) for name in names)])
    merge_legend(figure)
    traces: Any = figure.data
    assert [trace.showlegend for trace in traces] == [False, True, True, False, False, False]
    assert [trace.legendgroup for trace in traces][:4] == ["a", "a", "b", "a"]


def test_template_is_registered_and_readable() -> None:
    assert pio.templates["workbench"] == TEMPLATE
    layout: Any = TEMPLATE.layout
    sizes = [layout.font.size, layout.xaxis.title.font.size, layout.hoverlabel.font.size]
    assert min(sizes) >= 12


def test_long_titles_are_wrapped_and_make_room() -> None:
    short = titled(go.Figure(), "REG needs the least memory", height=400, subtitle="K = 8")
    long = titled(go.Figure(), "REG needs the least memory of all partitioners " * 3, height=400, subtitle="word " * 30)
    assert short.layout.title.text.count("<br>") == 1 and short.layout.height == 400
    lines = re.sub("<span[^>]*>|</span>", "", long.layout.title.text).split("<br>")
    assert len(lines) == 5 and max(map(len, lines[:3])) <= 68 and max(map(len, lines[3:])) <= 84
    assert long.layout.height - short.layout.height == long.layout.margin.t - short.layout.margin.t == 60
    assert long.layout.title.pad.t == short.layout.title.pad.t, "else the last line runs into the panels' titles"
    assert caption(long).startswith("REG needs the least memory of all partitioners REG") and "<" not in caption(long)
    assert titled(go.Figure(), None, height=400).layout.title.text is None
