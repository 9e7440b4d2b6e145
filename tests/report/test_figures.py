"""Figures as parts of a page."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tests.report.sections import memory
from workbench.report.figures import caption, embed, least_width, plotly_js


def test_a_caption_is_plain_text() -> None:
    assert caption(memory().figure) == "Peak memory of the largest micro-batch · products, SAGE-mean"
    assert caption(go.Figure().update_layout(title_text="K &lt; 3")) == "K < 3"
    assert caption(go.Figure()) == ""


def test_columns_of_subplots_keep_room() -> None:
    assert least_width(go.Figure()) == 300
    assert least_width(make_subplots(rows=2, cols=1)) == 300
    assert least_width(make_subplots(rows=2, cols=3)) == 900


def test_embedding_leaves_the_figure_alone() -> None:
    figure = memory().figure.update_layout(width=900)
    before = figure.to_json()
    text = embed(figure, "here")
    assert figure.to_json() == before
    assert 'id="here"' in text and '"width":900' not in text and "SAGE-mean" not in text


def test_an_author_keeps_margins_and_height() -> None:
    text = embed(go.Figure().update_layout(height=777, margin_t=99), "here")
    assert '"height":777' in text and '"t":99' in text


def test_a_template_keeps_margins_and_font() -> None:
    template = go.layout.Template(layout={"margin": {"b": 99}, "font": {"family": "Iosevka"}})
    text = embed(go.Figure().update_layout(template=template), "here")
    assert '"margin":{"b":99}' in text and '"family":"Iosevka"' in text and '"l":64' in text
    assert '"b":56' not in text and "system-ui" not in text


def test_a_name_can_not_leave_the_script() -> None:
    text = embed(go.Figure(go.Bar(x=[1], y=[2], name="</script><script>alert(1)</script>")), "here")
    assert text.count("<script>") == text.count("</script>") == 1


def test_plotly_js_may_stand_in_a_page() -> None:
    assert "</script" not in plotly_js() and len(plotly_js()) > 10**6
