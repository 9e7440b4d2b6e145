"""Interactive figures of runs, and the library that they share."""

import json
import re

import plotly.graph_objects as go

from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.summary import log_summary, tracked_page


def test_figures_share_one_copy_of_the_library(toys, store, tmp_path):
    experiments = [load_experiment(f"toys/fig{number}") for number in (1, 2)]
    runs = experiments[0].runs(store=store)
    for experiment in experiments:
        log_summary(experiment, "smoke", runs, store)
    pages = list(tmp_path.rglob("figure.html"))
    (library,) = tmp_path.rglob("plotly.min.mjs")
    assert len(pages) == 2 and all(page.stat().st_size < 20_000 for page in pages)
    for page in pages:
        places = re.search(r"FROM_FOLDER = (\[.*?\]);", page.read_text())
        assert places and library in [(page.parent / place).resolve() for place in json.loads(places[1])]


def test_names_cannot_break_out_of_the_script():
    page = tracked_page(go.Figure(go.Bar(x=[1], y=[2], name="</script><script>alert(1)</script>")), "id")
    assert page.count("<script") == page.count("</script") == 1 and "run_uuid=id" in page
