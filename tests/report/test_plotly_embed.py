"""Plotly figures embedded in a page."""

import json

import plotly.graph_objects as go
from bs4 import BeautifulSoup
from plotly.subplots import make_subplots

from tests.report.sections import memory
from workbench.report.plotly_embed import caption, embed, least_width, plotly_js


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
