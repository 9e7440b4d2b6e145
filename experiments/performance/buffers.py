"""Forward and backward passes of models that reuse their buffers beside those of plain models.

Both sides have equal weights and run alternately on the same batches, on one thread, timed in CPU seconds of the
process (page faults included), from blocks without derived arrays, as a sampler delivers them. A round is one pass over
all batches; its ratio is the plain model's time over that of the other. Before, every batch has warmed both up.
"""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import summarized
from workbench.core.shared_storage import same_record
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.kernels.threads import get_num_threads
from workbench.meter.allocation_tracker import measure_allocated
from workbench.nn.gnn import GNN

IN_DIM, CLASSES, DROPOUT = 128, 40, 0.5
MOST_BYTES = 0.05


class Config(GraphPoint):
    """One kind of layer at one width; fanouts input layer first."""

    kind: Literal["sage-mean", "sage-gcn", "gcn", "gin"]
    fanouts: tuple[int, ...]
    batch_size: PositiveInt
    hidden_dim: PositiveInt
    num_batches: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, ids = config.load()
    sampler = wb.NeighborSampler(config.fanouts, seed=config.seed)
    loader = wb.batches(graph, ids, sampler=sampler, batch_size=config.batch_size, epoch=0)
    batches = [mb for _, mb in islice(loader, config.num_batches)]
    x = torch.randn(graph.num_nodes, IN_DIM, generator=torch.Generator().manual_seed(config.seed))
    inputs = [(mb, x[mb.node_ids]) for mb in batches]
    sizes: dict[str, Any] = {
        "in_dim": IN_DIM,
        "hidden_dim": config.hidden_dim,
        "out_dim": CLASSES,
        "num_layers": len(config.fanouts),
    }
    reusing, plain = (
        wb.build_model(config.kind, **sizes, dropout=DROPOUT, seed=config.seed, reuse_buffers=reuse)
        for reuse in (True, False)
    )
    ours, theirs = (_pass_over(model, inputs) for model in (reusing, plain))
    threads = torch.get_num_threads(), get_num_threads()
    _set_threads(1, 1)
    try:
        peak = wb.measure_peak(theirs)
        ours()
        allocated, plain_bytes = measure_allocated(ours), measure_allocated(theirs)
        rounds = [_round(ours, theirs, flipped=turn % 2 == 1) for turn in range(config.repeats)]
    finally:
        _set_threads(*threads)
    assert reusing.workspace is not None
    yield {
        "graph": config.graph,
        "num_inputs": max(mb.num_inputs for mb in batches),
        "allocated_bytes": allocated,
        "plain_bytes": plain_bytes,
        "bytes_share": allocated / plain_bytes,
        "buffer_bytes": reusing.workspace.nbytes,
        "plain_peak_bytes": peak,
        **{name.replace("theirs", "plain"): value for name, value in summarized(rounds).items()},
    }


def _set_threads(torch_threads: int, kernel_threads: int) -> None:
    torch.set_num_threads(torch_threads)
    wb.set_num_threads(kernel_threads)


def _pass_over(model: GNN, inputs: list[tuple[wb.MiniBatch, Tensor]]) -> Callable[[], None]:
    """Forward and backward passes over all batches, from a given gradient of the output: the layers alone."""
    grad = torch.randn(max(mb.num_seeds for mb, _ in inputs), CLASSES)

    def call() -> None:
        for mb, x in inputs:
            fresh = same_record(mb).to("cpu")
            model.zero_grad()
            model(fresh.blocks, x, node_ids=mb.node_ids, step=mb.step).backward(grad[: mb.num_seeds])

    return call


def _round(ours: Callable[[], None], theirs: Callable[[], None], *, flipped: bool) -> tuple[float, float]:
    if flipped:
        second = _seconds(theirs)
        return _seconds(ours), second
    return _seconds(ours), _seconds(theirs)


def _seconds(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """A dot per case: bytes allocated, as a share of the plain model's, over the ratio of times."""
    import plotly.graph_objects as go

    from workbench.plots.style import looks, titled

    figure = go.Figure()
    for name, look in looks(dict.fromkeys(table.kind)).items():
        rows: Any = table[table.kind == name]
        bars = {"array": rows.ratio_high - rows.ratio_median, "arrayminus": rows.ratio_median - rows.ratio_low}
        figure.add_scatter(
            x=(100 * rows.bytes_share).tolist(),
            y=rows.ratio_median.tolist(),
            error_y={end: values.tolist() for end, values in bars.items()} | {"thickness": 1, "width": 2},
            name=look.name,
            mode="markers",
            marker={"symbol": look.symbol, "size": 8, "color": look.color},
        )
    figure.update_xaxes(title_text="bytes allocated, % of the plain model's", rangemode="tozero")
    figure.update_yaxes(title_text="plain model's time ÷ that with buffers", rangemode="tozero")
    subtitle = "dots: medians; bars: quartiles over the rounds"
    return titled(figure, "Layers that reuse their buffers", subtitle=subtitle, height=440)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "kind", "hidden_dim", "batch_size"]
    return [
        claims.within(
            "few-bytes", "at most 5 % of the bytes", table, value="bytes_share", by=by, most=MOST_BYTES, form=".3f"
        ),
        claims.median_within(
            "not-slower",
            "not slower in the median case",
            table,
            value="ratio_median",
            by=by,
            least=1,
            form=".3f",
            timed=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of the times over all cases and by kind."""
    of = "plain layers' time over that of layers that reuse buffers"
    rows = table.assign(ratio_best=table.ratio_median)
    kinds = {f"{of}: {kind}": part for kind, part in rows.groupby("kind", sort=False)}
    return speedup.summary({of: rows, **kinds})
