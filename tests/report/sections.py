"""Example sections: two papers, four figures, most statuses."""

from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.experiment.finding import Finding
from workbench.report.sections import Section

BETTY = "Betty (ASPLOS 2023)"
PARTS = [1, 2, 4, 8, 16, 32, 64]
MICRO = [1829066, 2277172, 2964874, 4061037, 4980601, 6335635, 7820693]
MINI = [1829275, 3318923, 5810587, 9665382, 14997172, 21424398, 27988444]
HERE = {"device": "cpu (2 cores)", "data": "synthetic-products, 2,449 nodes, 61,859 edges, 3f9c1a0be2d4",
        "versions": "workbench 0.1.0, torch 2.13.0", "commit": "bf48518", "date": "2025-11-21 00:12 UTC",
        "points": "28 of 28, 41.2 s"}  # fmt: skip
RECORDED = {**HERE, "device": "NVIDIA H200", "data": "ogbn-products, 2,449,029 nodes, 123,718,280 edges, 77ab01c2"}


def memory(size: str = "smoke") -> Section:
    figure = go.Figure()
    for offset, method in enumerate(("reg", "metis", "random", "range")):
        peak = [8 / k**0.8 * (1 + 0.06 * offset) for k in PARTS]
        figure.add_bar(name=method, x=[str(k) for k in PARTS], y=peak)
    figure.update_layout(title_text="Peak memory of the largest micro-batch<br><sup>products, SAGE-mean</sup>")
    figure.update_xaxes(title_text="micro-batches K")
    figure.update_yaxes(title_text="largest peak of a micro-batch (GiB)")
    return Section(
        name="betty/fig11",
        title="Figure 11 · Peak memory by partitioner and K",
        paper=BETTY,
        claim="Redundancy-embedded partitioning needs less memory than METIS, range and random for every K.",
        source="Section 6.2, Figure 11",
        size=size,
        figure=figure,
        findings=(
            Finding("reg-least", "REG needs the least memory for K ≥ 4.", True, "REG 1.91 GiB at K = 4, METIS 2.02"),
            Finding("memory-falls", "Memory falls as K grows.", True, "8.00 GiB → 0.29 GiB"),
        ),
        comparison=pd.DataFrame(
            {
                "K": PARTS,
                "method": "reg",
                "paper_peak_bytes": [int(6.38e9 / k**0.74) for k in PARTS],
                "here_peak_bytes": [2**33 / k**0.8 for k in PARTS],
                "here_epoch_seconds": [0.49 + 0.01 * k for k in PARTS],
            }
        ),
        provenance=HERE,
        notebook="../notebooks/betty/fig11.ipynb",
    )


def inputs() -> Section:
    """Two subplots, recorded; a timed finding, a documented deviation, a missing value."""
    figure = make_subplots(cols=2, subplot_titles=("first-layer inputs", "epoch"), horizontal_spacing=0.12)
    for column, (micro, mini) in enumerate([(MICRO, MINI), (PARTS, PARTS)], start=1):
        shared = {"row": 1, "col": column, "x": PARTS, "mode": "lines+markers", "showlegend": column == 1}
        figure.add_scatter(name="micro-batch", y=micro, line_color="#0072b2", **shared)
        figure.add_scatter(name="mini-batch", y=mini, line_color="#d55e00", line_dash="dash", **shared)
    figure.update_xaxes(title_text="K", type="log")
    figure.update_yaxes(title_text="input nodes", col=1)
    figure.update_yaxes(title_text="seconds", col=2)
    return Section(
        name="betty/table6",
        title="Table 6 · Micro-batches against mini-batches",
        paper=BETTY,
        claim="At the same K, micro-batches read fewer nodes, take less memory and less time than mini-batches.",
        source="Table 6",
        size="paper",
        figure=figure,
        findings=(
            Finding("fewer-inputs", "Micro-batches read fewer inputs for K ≥ 2.", True, "4.28× against 15.3×"),
            Finding("faster", "A micro-batch epoch is faster for K ≥ 4.", False, "0.63 s against 0.61 s", timed=True),
            Finding("memory", "Memory at K = 64 is below a twelfth of the batch's.", False, "1/9.3 of the batch"),
        ),
        deviations={"memory": "Parameters and Adam's state are a larger share of memory on this small graph."},
        comparison=pd.DataFrame(
            {
                "K": PARTS,
                "paper_micro_inputs": MICRO,
                "here_micro_inputs": MICRO[::-1],
                "paper_mini_inputs": MINI,
                "here_mini_inputs": [*MINI[:-1], float("nan")],
            }
        ),
        provenance=RECORDED,
        recorded=True,
    )


def failed() -> Section:
    return Section(
        name="betty/fig16",
        title="Figure 16 · Redundant input nodes",
        paper=BETTY,
        claim="REG repeats fewer input nodes than the other partitioners.",
        source="Figure 16",
        size="paper",
        provenance={"device": "NVIDIA H200"},
        problems=(
            "K = 8, reg: CapacityError: 4.7 GB of METIS input exceed 2.0 GB; raise capacity_bytes",
            "K = 16, reg: killed after 600 s",
        ),
    )


def not_held() -> Section:
    figure = go.Figure(go.Scatter(x=[1, 4, 16, 64], y=[0.61, 0.55, 0.49, 0.45], name="miss rate", mode="lines+markers"))
    figure.update_xaxes(title_text="dependence κ").update_yaxes(title_text="cache miss rate")
    return Section(
        name="batchgnn/fig5",
        title="Figure 5 · Cache misses under dependent batches",
        paper="Cooperative minibatching (2023)",
        claim="The miss rate falls at least threefold as κ grows to 64.",
        source="Figure 5",
        size="smoke",
        figure=figure,
        findings=(Finding("threefold", "The miss rate falls at least threefold.", False, "0.61 → 0.45"),),
        provenance={**HERE, "modelled": "transfer times, from bytes over 64 GB/s"},
    )


def not_run() -> Section:
    return replace(not_held(), size="real", figure=None, findings=(), provenance={})


def everything() -> list[Section]:
    """All of them, deliberately not in the order of the page."""
    real = replace(memory("real"), recorded=True, provenance=RECORDED)
    smoke = replace(inputs(), size="smoke", recorded=False, provenance=HERE)
    return [real, memory(), not_held(), inputs(), failed(), smoke, not_run()]
