"""Draws the README's picture from a recorded table: `python docs/pictures.py` (needs chromium)."""

import io
from pathlib import Path

import plotly.graph_objects as go
from PIL import Image

import workbench as wb
from workbench.experiment.recorded import recorded
from workbench.plots.lines import lines

IMAGES = Path(__file__).parent / "images"
METHODS = ["random", "metis", "reg", "star_refined"]
WIDTH, HEIGHT, SCALE, COLOURS = 800, 360, 1.5, 64


def peak_memory() -> go.Figure:
    """Figure 11 of Betty on ogbn-arxiv: four of the partitioners."""
    experiment = wb.load_experiment("betty/fig11")
    (real,) = [kept.table for kept in recorded("betty/fig11") if kept.size == "real"]
    rows = experiment.shown(real)
    rows = rows[(rows.dataset == "ogbn-arxiv") & rows.method.isin(METHODS)]
    title = "Peak memory of one training step, split into K micro-batches"
    figure = lines(rows, x="num_parts", log_x=True, y="peak_bytes", group="method", facet="dataset", title=title)
    return figure.update_layout(width=WIDTH, height=HEIGHT, margin_t=70)


def write(figure: go.Figure, file: Path) -> None:
    """Writes a PNG in few colours, a fifth of the size of one in all colours."""
    image = Image.open(io.BytesIO(figure.to_image("png", scale=SCALE))).convert("RGB")
    file.parent.mkdir(exist_ok=True)
    image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    write(peak_memory(), IMAGES / "peak_memory.png")
