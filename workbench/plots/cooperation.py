"""Drawing of the work of several ranks, independent and cooperating: who computes what, what is read, what crosses."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.plots.batch_drawing import (
    Node,
    draw_micro_batches,
    level_nodes,
    node_markers,
    pairs,
    part_look,
    positions,
)
from workbench.plots.layout import bold
from workbench.plots.looks import PALETTE
from workbench.plots.style import FAINT, INK, merge_legend, titled

_PICTURE, _PANELS, _MARGINS = 360, 260, 190  # pixels
_MARKER = 15
_MAX_NODES = 120


def draw_cooperation(
    mb: MiniBatch,
    owner: Tensor,
    *,
    read: Mapping[str, Sequence[int]],
    again: Mapping[str, Sequence[int]],
    link_bytes: Tensor,
    title: str,
    subtitle: str = "",
) -> go.Figure:
    """Draw a small batch as independent and as cooperating ranks compute it, above the counts of a larger one.

    Args:
        mb: the small batch, of a sampler that draws every row independently, on the CPU.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        read: input rows by rank, for each way to sample.
        again: those of them that the rank has read for the batch before.
        link_bytes: int64 [ranks, ranks], bytes that rank p receives from q, as `CooperativeWork.link_bytes`.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: a batch with exchanges or too many input nodes, or more than seven ranks.
    """
    refuse_halo(mb.exchanges, "drawn")
    ranks = len(link_bytes)
    if not 1 <= ranks <= len(PALETTE):
        raise ValueError(f"there are {ranks} ranks; pass 1 to {len(PALETTE)}, one per colour")
    independent, cooperative = _independent(mb, owner), _cooperative(mb, owner)
    names = ["independent: black is repeated", "cooperating: dotted edges cross"]
    figure = make_subplots(
        2,
        2,
        row_heights=[_PICTURE, _PANELS],
        subplot_titles=[bold(name) for name in (*names, "input rows per PE", "rows received in a forward pass")],
        vertical_spacing=0.14,
        horizontal_spacing=0.14,
    )
    for column, picture in enumerate((independent, cooperative), 1):
        for trace in picture:
            if trace.mode == "markers+text":
                trace.update(marker_size=_MARKER, textfont_size=10)
            figure.add_trace(trace, 1, column)
        figure.update_xaxes(visible=False, range=[0, 1], row=1, col=column)
        figure.update_yaxes(visible=False, range=[-len(mb.blocks) - 0.35, 0.35], row=1, col=column)
    names = ["inputs", *(f"layer {level}" for level in range(1, len(mb.blocks))), "seeds"]
    ticks = {"tickvals": [-level for level in range(len(names))], "ticktext": names, "ticks": ""}
    figure.update_yaxes(visible=True, showgrid=False, showline=False, **ticks, row=1, col=1)
    for trace in _bars(read, again):
        figure.add_trace(trace, 2, 1)
    figure.add_trace(_links(link_bytes), 2, 2)
    figure.update_xaxes(title_text="from PE", dtick=1, row=2, col=2)
    figure.update_yaxes(title_text="to PE", dtick=1, autorange="reversed", row=2, col=2)
    figure.update_layout(barmode="stack").update_annotations(font_size=13)
    merge_legend(figure)
    return titled(figure, title, height=_PICTURE + _PANELS + _MARGINS, subtitle=subtitle)


def _independent(mb: MiniBatch, owner: Tensor) -> list[go.Scatter]:
    """Every rank computes all of its seeds' neighbourhoods: the micro-batches by the seeds' owners."""
    owners = owner[mb.seeds].long()
    drawn = draw_micro_batches(mb, mb.split(owners), max_nodes=_MAX_NODES)
    names = {f"part {part}": rank for part, rank in enumerate(owners.unique().tolist())}
    traces: list[Any] = list(drawn.data)  # pyright: ignore[reportArgumentType, reportCallIssue]
    for trace in traces:
        if trace.name in names:
            trace.update(_look(names[trace.name]))
        elif trace.mode == "lines":
            trace.line.color = PALETTE[list(names.values())[int(trace.legendgroup)]]
            trace.legendgroup = None
        else:
            trace.name = "computed by several PEs"
    return traces


def _cooperative(mb: MiniBatch, owner: Tensor) -> list[go.Scatter]:
    of = owner[mb.node_ids].tolist()
    owners = {(level, v): [of[v]] for level in range(len(mb.blocks) + 1) for v in range(level_nodes(mb, level))}
    at = positions(mb, owners)
    traces = [_edges(mb, of, rank, at, crosses=crosses) for rank in sorted(set(of)) for crosses in (False, True)]
    for rank in sorted(set(of)):
        own = [node for node, ranks in owners.items() if ranks == [rank]]
        traces.append(node_markers(mb, own, owners, at, _look(rank)))
    return traces


def _look(rank: int) -> dict[str, object]:
    return {**part_look(rank), "name": f"PE {rank}", "legendgroup": f"PE {rank}"}


def _edges(
    mb: MiniBatch, of: Sequence[int], rank: int, at: Mapping[Node, tuple[float, float]], *, crosses: bool
) -> go.Scatter:
    """The edges that a rank computes, its destinations', from its own nodes or from those of others."""
    ends = [
        (at[level, src], at[level + 1, dst])
        for level in range(len(mb.blocks))
        for src, dst in pairs(mb, level)
        if of[dst] == rank and (of[src] != rank) == crosses
    ]
    return go.Scatter(
        x=[x for source, destination in ends for x in (source[0], destination[0], None)],
        y=[y for source, destination in ends for y in (source[1], destination[1], None)],
        mode="lines",
        line={"color": PALETTE[rank], "width": 1.2, "dash": "dot" if crosses else "solid"},
        opacity=0.8,
        hoverinfo="skip",
        showlegend=False,
    )


def _bars(read: Mapping[str, Sequence[int]], again: Mapping[str, Sequence[int]]) -> list[go.Bar]:
    """Rows that a rank reads anew, and above them those that it has read for the batch before."""
    ways = [name for name, counts in read.items() for _ in counts]
    ranks = [f"PE {rank}" for counts in read.values() for rank in range(len(counts))]
    repeated = [count for name in read for count in again[name]]
    fresh = [count - old for count, old in zip((c for counts in read.values() for c in counts), repeated, strict=True)]
    return [
        go.Bar(x=[ways, ranks], y=fresh, name="new rows", marker_color=INK),
        go.Bar(x=[ways, ranks], y=repeated, name="read for the batch before, too", marker_color=FAINT),
    ]


def _links(link_bytes: Tensor) -> go.Heatmap:
    return go.Heatmap(
        z=link_bytes.tolist(),
        text=[[format_bytes(count) if count else "" for count in row] for row in link_bytes.tolist()],
        texttemplate="%{text}",
        colorscale=[[0, "white"], [1, PALETTE[0]]],
        zmin=0,
        showscale=False,
        hovertemplate="PE %{y} receives %{z:,} bytes from PE %{x}<extra></extra>",
    )
