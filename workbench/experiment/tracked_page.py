"""The interactive figure as an artifact of a run, which shares one copy of plotly.js with all figures of its paper."""

import json
from typing import Any

from workbench.files import digest
from workbench.tracking.store import Store

_LIBRARY = "plotly.min.mjs"  # MLflow serves .js as plain text, which browsers refuse to run

# MLflow shows the page in a frame whose address is that of the UI after "blob:"; opened from a folder, the page finds
# the library beside its own run's.
_SCRIPT = """
const places = location.protocol === "blob:" || location.protocol === "http:" || location.protocol === "https:"
  ? ["", "/mlflow"].map((base) => new URL(location.href.replace(/^blob:/, "")).origin + base + FROM_SERVER)
  : FROM_FOLDER;
function load(place) {
  const script = document.createElement("script");
  script.src = place;
  script.onload = () => Plotly.newPlot("figure", FIGURE.data, FIGURE.layout, {responsive: true, displaylogo: false});
  script.onerror = () => places.length ? load(places.shift()) : document.getElementById("figure").append(MISSING);
  document.head.append(script);
}
load(places.shift());
"""
_MISSING = "plotly.js was not found; `workbench report` writes a page that has it."


def log_library(paper: str, store: Store) -> str:
    """Stores plotly.js once per paper and version; returns the run id.

    Args:
        paper: name of the paper's folder.
        store: keeps the figures.
    """
    from plotly.offline import get_plotlyjs

    source, name = get_plotlyjs(), f"{paper}/plotly"
    tags = {"claim": "The library that draws the figures of this experiment in a browser."}
    return store.log_summary(name, name, "smoke", digest(_LIBRARY, source), {_LIBRARY: source}, tags)


def tracked_page(figure: Any, library: str) -> str:
    """Returns a page of a few kilobytes that draws a figure.

    Args:
        figure: a plotly Figure.
        library: run id that `log_library` returned.
    """
    texts = {
        "FROM_SERVER": f"/get-artifact?path={_LIBRARY}&run_uuid={library}",
        "FROM_FOLDER": [f"../../{library}/artifacts/{_LIBRARY}", f"../../../../{library}/{_LIBRARY}"],
        "MISSING": _MISSING,
    }
    constants = "".join(f"const {name} = {json.dumps(text)};" for name, text in texts.items())
    data = figure.to_json().replace("<", "\\u003c")
    script = f"{constants}const FIGURE = {data};{_SCRIPT}"
    return f'<!doctype html><meta charset="utf-8"><div id="figure"></div><script>{script}</script>'
