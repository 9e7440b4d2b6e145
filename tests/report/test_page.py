"""The HTML report: structure, self-containedness, and the content of every section."""

import json
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from bs4 import BeautifulSoup, Tag
from plotly.subplots import make_subplots

from tests.report.sections import everything, failed, inputs, memory, not_held, not_run
from workbench.experiment.finding import Finding
from workbench.report import page
from workbench.report.page import caption, embed, least_width, plotly_js
from workbench.report.sections import Section

FACTS = {"title": "Report", "made_at": "2025-11-21 00:12 UTC"}
EVIL = "<script>alert('&')</script>"


def parsed(sections: list[Section], **summary: str) -> BeautifulSoup:
    """The parsed page without plotly.js, which takes seconds to parse and has its own test."""
    text = page.render(sections, summary=summary, **FACTS)
    return BeautifulSoup(text.replace(plotly_js(), ""), "html.parser")


@pytest.fixture(scope="module")
def whole() -> BeautifulSoup:
    return parsed(everything(), Machine="2 cores")


def texts(found: Tag | BeautifulSoup, selector: str) -> list[str]:
    return [" ".join(tag.get_text(" ").split()) for tag in found.select(selector)]


def test_structure(whole: BeautifulSoup) -> None:
    assert whole.html is not None and whole.html["lang"] == "en"
    assert texts(whole, "title") == texts(whole, "h1") == ["Report"]
    assert whole.select_one('meta[name="viewport"]')
    assert all(len(whole.select(landmark)) == 1 for landmark in ("header", "nav", "main", "footer"))
    assert "Machine" in texts(whole, "header dt") and "2 cores" in texts(whole, "header dd")
    assert all(head.get("scope") for head in whole.select("th"))
    assert all(figure.get("aria-label") for figure in whole.select("figure"))


def test_ids_are_unique_and_internal_links_resolve(whole: BeautifulSoup) -> None:
    ids = [tag["id"] for tag in whole.select("[id]")]
    assert len(ids) == len(set(ids))
    inside = [str(tag["href"])[1:] for tag in whole.select('a[href^="#"]')]
    assert inside and set(inside) <= set(ids)
    assert {str(tag["aria-labelledby"]) for tag in whole.select("[aria-labelledby]")} <= set(ids)


def test_heading_levels_are_consecutive(whole: BeautifulSoup) -> None:
    levels = [int(tag.name[1]) for tag in whole.select("h1, h2, h3, h4")]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))


def test_the_page_loads_no_external_resource(whole: BeautifulSoup) -> None:
    addresses = [str(tag.get(key)) for tag in whole.select("[src], [href]") for key in ("src", "href") if tag.get(key)]
    assert not [address for address in addresses if re.match(r"\s*(\w+:)?//", address)]  # no runs, no link to them
    assert not whole.select("[src], iframe, object, embed")
    assert not any(word in style.get_text() for style in whole.select("style") for word in ("@import", "url("))
    policy = whole.select_one('meta[http-equiv="Content-Security-Policy"]')
    assert policy and "default-src 'none'" in str(policy["content"]) and "http" not in str(policy["content"])


def test_plotly_js_is_included_once() -> None:
    text = page.render(everything(), summary={}, **FACTS)
    assert text.count(plotly_js()) == 1
    assert len(text) - len(plotly_js()) < 110_000
    assert text.startswith("<!doctype html>")


def test_pages_without_figures_omit_plotly_js() -> None:
    assert len(page.render([failed(), not_run()], summary={}, **FACTS)) < 30_000


def test_overview_has_a_row_per_size(whole: BeautifulSoup) -> None:
    assert texts(whole, ".overview tr.paper") == ["Betty (ASPLOS 2023)", "Cooperative minibatching (2023)"]
    rows = [" ".join(row.get_text(" ").split()) for row in whole.select(".overview tbody tr:not(.paper)")]
    assert len(rows) == len(everything())
    assert "smoke run here ✓ held cpu (2 cores)" in rows[0] and "real recorded ✓ held NVIDIA H200" in rows[1]
    assert rows[4].endswith(failed().claim) and "! failed 2 problems" in rows[4]
    assert "real ○ not run –" in rows[6] and "run here" not in rows[6]
    assert "◐ held in part did not hold: Memory at K" in rows[2]
    assert "seconds not measured: A micro-batch epoch is faster for K ≥ 4." in rows[2], "at size smoke"


def test_counts_of_statuses(whole: BeautifulSoup) -> None:
    counts = ["✓ 2 held", "◐ 2 held in part", "✗ 1 did not hold", "○ 1 not run", "! 1 failed"]
    assert texts(whole, ".counts label") == counts


def test_sizes_of_a_figure_share_a_heading(whole: BeautifulSoup) -> None:
    assert len(whole.select("details.figure > summary > h2")) == 4
    heads = texts(whole, "details.figure:has(#betty-fig11) h3")
    assert heads == ["Size smoke ✓ held run here cpu (2 cores)", "Size real ✓ held recorded NVIDIA H200"]


def test_modelled_values_are_marked(whole: BeautifulSoup) -> None:
    badges = {str(tag["aria-labelledby"]) for tag in whole.select("article") if "modelled" in texts(tag, ".badge")}
    assert badges == {"batchgnn-fig5-smoke"}


def test_unknown_facts_are_omitted() -> None:
    found = parsed([replace(memory(), provenance={"device": "", "commit": "", "date": "today"})])
    assert texts(found, "dt") == ["date"]
    assert texts(found, ".overview .device") == ["–"] and texts(found, "h3 .badge") == ["run here"]


def test_findings() -> None:
    held, timed, documented = texts(parsed([inputs()]), ".findings li")
    assert held.startswith("✓ held: Micro-batches read fewer") and "4.28× against 15.3×" in held and "Why" not in held
    assert timed.startswith("◷ seconds differ:") and "not refute it" in timed and "Why" not in timed
    assert documented.startswith("✗ did not hold:") and "Why: Parameters and Adam's state" in documented
    assert "wall-clock" not in documented


def test_an_incomplete_grid_shows_its_progress() -> None:
    page = parsed([replace(memory(), points=(4, 12))])
    (row,) = [" ".join(row.get_text(" ").split()) for row in page.select(".overview tbody tr:not(.paper)")]
    assert "◌ incomplete 4 of 12 points" in row
    assert (
        "4 of 12 points have ended" in page.get_text() and "workbench run betty/fig11 --size smoke" in page.get_text()
    )


def test_a_documented_deviation_that_held_is_reported() -> None:
    (text,) = texts(
        parsed([replace(memory(), findings=memory().findings[:1], deviations={"reg-least": "ties"})]), ".findings li"
    )
    assert text.startswith("✓ held") and "It may fail elsewhere: ties" in text


def test_paper_and_here_side_by_side() -> None:
    found = parsed([memory()])
    assert texts(found, ".numbers thead th") == ["K", "method", "paper peak (GiB)", "here peak (GiB)", "here epoch (s)"]
    assert texts(found, ".numbers tbody tr")[2] == "4 reg 2.13 2.64 0.530"
    assert len(found.select(".beside:not(.alone)")) == 1


def test_wide_content_is_not_placed_side_by_side() -> None:
    wide = make_subplots(cols=3)
    many = pd.DataFrame([range(7)], columns=list("abcdefg"))
    sections = [replace(memory(), **{key: value}) for key, value in
                (("comparison", None), ("comparison", many), ("figure", wide), ("figure", None))]  # fmt: skip
    found = parsed(sections)
    assert len(found.select(".beside.alone")) == len(found.select(".beside")) == 4


def test_failed_points_and_the_command_to_run(whole: BeautifulSoup) -> None:
    assert texts(whole, ".problems li") == list(failed().problems)
    assert "workbench run batchgnn/fig5 --size real" in texts(whole, "article code")


def test_sizes_without_findings() -> None:
    assert "No part of the claim is checked" in parsed([replace(memory(), findings=())]).get_text()


def test_undecided_findings_need_no_reason() -> None:
    found = parsed([replace(memory(), findings=(Finding("open", "it may grow", False, "1 ± 2", decided=False),))])
    assert texts(found, ".findings .verdict.none") == ["undecided:"]
    assert not found.select(".findings .reason") and texts(found, ".overview .note")[-1] == "undecided: it may grow"


def test_the_notebook_is_linked(whole: BeautifulSoup) -> None:
    assert [tag["href"] for tag in whole.find_all("a", string="notebook")] == ["../notebooks/betty/fig11.ipynb"]


def test_one_size_on_two_devices() -> None:
    found = parsed([memory(), replace(memory(), recorded=True)])
    assert [tag["id"] for tag in found.select("article h3")] == ["betty-fig11-smoke-1", "betty-fig11-smoke-2"]


def test_texts_are_escaped() -> None:
    finding = replace(not_held().findings[0], statement=EVIL, evidence=EVIL)
    table = pd.DataFrame({EVIL: [EVIL]})
    section = replace(
        not_held(), title=EVIL, paper=EVIL, claim=EVIL, source=EVIL, findings=(finding,), comparison=table,
        deviations={"threefold": EVIL}, provenance={"device": EVIL, EVIL: EVIL}, problems=(EVIL,), notebook=f'"{EVIL}',
    )  # fmt: skip
    found = parsed([section], **{EVIL: EVIL})
    scripts = len(parsed([replace(not_held(), comparison=pd.DataFrame({"a": ["b"]}))]).select("script"))
    assert len(found.select("script")) == scripts
    assert found.get_text().count(EVIL) >= 14


def test_plots_wait_as_data_until_they_are_scrolled_to(whole: BeautifulSoup) -> None:
    plots = whole.select(".plot")
    assert len(plots) == 5 and all("height" in str(plot["style"]) and not plot.contents for plot in plots)
    for plot in plots:
        (data,) = whole.select(f"#{plot['id']}-data")
        assert data["type"] == "application/json" and {"data", "layout", "config"} == set(json.loads(data.get_text()))
    (source,) = whole.select("#plotly-js")
    assert source["type"] == "text/plain", "compiled with the first plot"


def test_the_gallery_has_a_sketch_and_the_verdicts_of_every_figure(whole: BeautifulSoup) -> None:
    cards = whole.select(".card")
    assert [tag["href"] for tag in whole.select(".card a")] == [
        f"#{tag['id']}" for tag in whole.select("h2[id*='-f'], h2[id*='-t']")
    ]
    assert [len(card.select("svg")) for card in cards] == [1, 1, 0, 1] and "✗ smoke: did not hold" in texts(
        cards[3], ".status"
    )
    assert texts(cards[2], ".status") == ["! paper: failed"]


def test_what_did_not_hold_is_said_in_words(whole: BeautifulSoup) -> None:
    told = texts(whole, ".missed li")
    assert len(told) == 3
    assert "Cooperative minibatching (2023) · Figure 5" in told[0], (
        "the paper is named; nothing of it held, so it is first"
    )
    assert "Memory at K = 64 is below a twelfth of the batch's. Why Parameters and Adam's state" in told[1]
    badges = {str(tag["value"]): tag.parent for tag in whole.select(".filter input[type=checkbox]")}
    shown = [int(re.findall(r"\d+", str(badges[status].get_text()))[0]) for status in ("did-not-hold", "held-in-part")]  # pyright: ignore[reportOptionalMemberAccess]
    assert sum(shown) == len(told), "the counts agree with the badges"
    assert not any("A micro-batch epoch is faster" in one for one in told), "seconds do not count"
    assert not parsed([memory()]).select(".missed")


def test_the_filter_knows_papers_sizes_and_statuses(whole: BeautifulSoup) -> None:
    kinds = {str(tag["value"]) for tag in whole.select(".filter input[type=checkbox]")}
    assert texts(whole, "#size option") == ["all sizes", "smoke", "real", "paper"]
    assert {str(tag["data-paper"]) for tag in whole.select("[data-paper]")} == {
        str(tag["value"]) for tag in whole.select("#paper option") if tag["value"]
    }
    for part in whole.select("[data-kinds]"):
        assert {kind.partition("/")[0] for kind in str(part["data-kinds"]).split()} <= kinds
        assert str(part["data-text"]) == str(part["data-text"]).lower()


def test_a_figure_can_be_saved(whole: BeautifulSoup) -> None:
    (buttons,) = whole.select('.export[data-plot="betty-fig11-smoke-figure"]')
    assert texts(buttons, "button") == ["SVG", "PDF", "CSV", "LaTeX"]
    assert "workbench figure betty/fig11 --size smoke" in buttons.get_text()
    (table,) = whole.select("#betty-fig11-smoke-figure-tex")
    assert r"K & method & paper peak (GiB) & here peak (GiB) & here epoch (s) \\" in table.get_text()
    assert not whole.select("#batchgnn-fig5-smoke-figure-tex"), "no table"


def test_the_runs_are_linked() -> None:
    link = "http://127.0.0.1:5000/#/experiments/1"
    found = parsed([replace(memory(), runs_link=link)])
    assert [tag["href"] for tag in found.find_all("a", string="runs in MLflow")] == [link]


def test_a_page_without_sections() -> None:
    found = parsed([])
    assert "No runs yet" in texts(found, "h2")
    assert "make reproduce" in texts(found, "code")
    assert not found.select("table")


def test_write_creates_folders_and_replaces_atomically(tmp_path: Path) -> None:
    path = page.write(tmp_path / "a" / "b" / "report.html", [], summary={}, **FACTS)
    assert path.read_text(encoding="utf-8") == page.render([], summary={}, **FACTS)
    with path.open(encoding="utf-8") as reader:
        page.write(str(path), [failed()], summary={}, **FACTS)
        assert "No runs yet" in reader.read()
    assert failed().claim in path.read_text(encoding="utf-8")
    assert os.listdir(path.parent) == ["report.html"]


@contextmanager
def full_disk() -> Iterator[None]:
    """Limits files to 1,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_write_keeps_the_previous_file(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "report.html"
    if existing:
        path.write_text("old")
    with pytest.raises(OSError, match="too large"), full_disk():
        page.write(path, [], summary={}, **FACTS)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == ([("report.html", "old")] * existing)


def test_a_caption_is_plain_text() -> None:
    assert caption(memory().figure) == "Peak memory of the largest micro-batch · products, SAGE-mean"
    assert caption(go.Figure().update_layout(title_text="K &lt; 3")) == "K < 3"
    assert caption(go.Figure()) == ""


def test_minimum_width_grows_with_columns_of_subplots() -> None:
    assert least_width(go.Figure()) == 300
    assert least_width(make_subplots(rows=2, cols=1)) == 300
    assert least_width(make_subplots(rows=2, cols=3)) == 900


def test_embedding_does_not_modify_the_figure() -> None:
    figure = memory().figure.update_layout(width=900)
    before = figure.to_json()
    text = embed(figure, "here")
    assert figure.to_json() == before
    assert 'id="here"' in text and '"width":900' not in text and "SAGE-mean" not in text


def test_explicit_margins_and_height_are_kept() -> None:
    text = embed(go.Figure().update_layout(height=777, margin_t=99), "here")
    assert '"height":777' in text and '"t":99' in text


def test_margins_and_font_of_the_template_are_kept() -> None:
    template = go.layout.Template(layout={"margin": {"b": 99}, "font": {"family": "Iosevka"}})
    text = embed(go.Figure().update_layout(template=template), "here")
    assert '"margin":{"b":99}' in text and '"family":"Iosevka"' in text and '"l":64' in text
    assert '"b":56' not in text and "system-ui" not in text


def test_trace_names_cannot_break_out_of_the_script() -> None:
    text = embed(go.Figure(go.Bar(x=[1], y=[2], name="</script><script>alert(1)</script>")), "here")
    assert text.count("<script") == text.count("</script>") == 1
    assert json.loads(BeautifulSoup(text, "html.parser").select("script")[0].get_text())["data"][0]["name"].startswith(
        "</script>"
    )


def test_plotly_js_can_be_inlined() -> None:
    assert "</script" not in plotly_js() and len(plotly_js()) > 10**6
