"""Drawings of a small batch, layer by layer: its micro-batches, and what independent and cooperating ranks compute."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.plots.axes import bold
from workbench.plots.style import FAINT, INK, PALETTE, SYMBOLS, merge_legend, titled

_LEVEL, _MARGINS = 130, 150  # pixels: between levels; title and legend
_WIDTH = 640  # pixels, divided among the nodes of a level
_LABELLED = 32  # nodes of a level whose ids all fit

_Node = tuple[int, int]
"""Level (0: input nodes) and local id in the batch."""

_Place = tuple[float, float]


def draw_micro_batches(mb: MiniBatch, micro: Sequence[MiniBatch], *, max_nodes: int = 80) -> go.Figure:
    """Draw a batch as a layered graph, input nodes at the top, nodes and edges in the colour of their micro-batch.

    Redundant nodes, which several micro-batches load or compute, are black. A click on a legend entry hides its
    micro-batch.

    Args:
        mb: the batch, on the CPU.
        micro: its micro-batches, from `mb.split`; at most seven.
        max_nodes: limit on the input nodes of the batch.

    Raises:
        ValueError: more input nodes than `max_nodes`, no or more than seven micro-batches, one without `parent`, or a
            batch with exchanges.
    """
    _check(mb, micro, max_nodes)
    owners = _owners(mb, micro)
    at = _positions(mb, owners)
    figure = go.Figure()
    for part, m in enumerate(micro):
        local = _parents(m)
        ends = [(at[n, local[s]], at[n + 1, local[d]]) for n in range(len(m.blocks)) for s, d in _pairs(m, n)]
        figure.add_trace(_edges(ends, PALETTE[part], opacity=0.6, legendgroup=str(part)))
    for part in range(len(micro)):
        own = [node for node, parts in owners.items() if parts == [part]]
        figure.add_trace(_node_markers(mb, own, owners, at, _part_look(part)))
    shared = [node for node, parts in owners.items() if len(parts) > 1]
    if shared:
        figure.add_trace(_node_markers(mb, shared, owners, at, _SHARED))
    _label_levels(figure, mb)
    return titled(figure, _redundant(mb, owners), height=_LEVEL * len(mb.blocks) + _MARGINS)


_SHARED = {"name": "in several parts", "marker": {"color": INK, "symbol": "hexagon"}, "textfont": {"color": "white"}}


def _part_look(part: int) -> dict[str, Any]:
    line = {"color": PALETTE[part], "width": 2}
    marker = {"color": "white", "symbol": SYMBOLS[part], "line": line}
    return {"name": f"part {part}", "legendgroup": str(part), "marker": marker, "textfont": {"color": INK}}


def _level_nodes(mb: MiniBatch, level: int) -> int:
    return mb.blocks[level].num_src if level < len(mb.blocks) else mb.num_seeds


def _owners(mb: MiniBatch, micro: Sequence[MiniBatch]) -> dict[_Node, list[int]]:
    """_Node → the parts that contain it, in ascending order."""
    owners: dict[_Node, list[int]] = {}
    for level in range(len(mb.blocks) + 1):
        for part, m in enumerate(micro):
            for local in _parents(m)[: _level_nodes(m, level)]:
                owners.setdefault((level, local), []).append(part)
    return owners


def _parents(m: MiniBatch) -> list[int]:
    assert m.parent is not None
    return m.parent.tolist()


def _positions(mb: MiniBatch, owners: dict[_Node, list[int]]) -> dict[_Node, _Place]:
    """Sort seeds by part and every other level by the mean position of a node's destinations, for short edges."""
    at: dict[_Node, _Place] = {}
    for level in reversed(range(len(mb.blocks) + 1)):
        nodes = [(level, local) for local in range(_level_nodes(mb, level))]
        below = _destinations(mb, level) if level < len(mb.blocks) else {}
        middle = {
            node: [at[level + 1, d][0] for d in below.get(node[1], ())] or [float(_part_place(node, owners))]
            for node in nodes
        }
        order = sorted(nodes, key=lambda node: (sum(middle[node]) / len(middle[node]), node))
        for place, node in enumerate(order):
            at[node] = (place + 1) / (len(order) + 1), -float(level)
    return at


def _part_place(node: _Node, owners: dict[_Node, list[int]]) -> int:
    return owners[node][0] if node in owners else len(owners)


def _destinations(mb: MiniBatch, level: int) -> dict[int, list[int]]:
    """Source → its destinations in a block, including itself if it is a destination."""
    found: dict[int, list[int]] = {local: [local] for local in range(mb.blocks[level].num_dst)}
    for src, dst in _pairs(mb, level):
        found.setdefault(src, []).append(dst)
    return found


def _pairs(mb: MiniBatch, level: int) -> Iterator[tuple[int, int]]:
    block = mb.blocks[level]
    return zip(block.indices.tolist(), block.destinations.tolist(), strict=True)


def _edges(ends: Sequence[tuple[_Place, _Place]], color: str, *, dash: str | None = None, **look: Any) -> go.Scatter:
    return go.Scatter(
        x=[x for source, destination in ends for x in (source[0], destination[0], None)],
        y=[y for source, destination in ends for y in (source[1], destination[1], None)],
        mode="lines",
        line={"color": color, "width": 1.2, "dash": dash},
        hoverinfo="skip",
        showlegend=False,
        **look,
    )


def _node_markers(
    mb: MiniBatch,
    nodes: Sequence[_Node],
    owners: dict[_Node, list[int]],
    at: dict[_Node, _Place],
    look: dict[str, Any],
) -> go.Scatter:
    ids = mb.node_ids.tolist()
    widths = [_level_nodes(mb, level) for level, _ in nodes]
    hover = [f"node {ids[local]}<br>in part {', '.join(map(str, owners[level, local]))}" for level, local in nodes]
    trace = go.Scatter(
        x=[at[node][0] for node in nodes],
        y=[at[node][1] for node in nodes],
        mode="markers+text",
        text=[str(ids[local]) if width <= _LABELLED else "" for (_, local), width in zip(nodes, widths, strict=True)],
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        **look,
    )
    return trace.update(marker_size=[min(22, _WIDTH / width) for width in widths], marker_opacity=1, textfont_size=12)


def _label_levels(figure: go.Figure, mb: MiniBatch) -> None:
    levels = len(mb.blocks)
    names = ["inputs", *(f"after layer {level}" for level in range(1, levels)), "seeds"]
    counts = [_level_nodes(mb, level) for level in range(levels + 1)]
    text = [f"{name}<br>{count} nodes" for name, count in zip(names, counts, strict=True)]
    figure.update_xaxes(visible=False, range=[0, 1])
    figure.update_yaxes(
        tickvals=[-level for level in range(levels + 1)],
        ticktext=text,
        range=[-levels - 0.35, 0.35],
        showline=False,
        gridcolor=FAINT,
        griddash="dot",
        ticks="",
    )


def _redundant(mb: MiniBatch, owners: dict[_Node, list[int]]) -> str:
    shared = sum(len(owners.get((0, local), ())) > 1 for local in range(mb.num_inputs))
    return f"{shared} of {mb.num_inputs} input nodes are loaded by several micro-batches"


def _check(mb: MiniBatch, micro: Sequence[MiniBatch], max_nodes: int) -> None:
    for batch in (mb, *micro):
        refuse_halo(batch.exchanges, "drawn")
    if mb.num_inputs > max_nodes:
        raise ValueError(
            f"the batch has {mb.num_inputs} input nodes, but max_nodes is {max_nodes}; sample fewer seeds or neighbours"
        )
    if not 1 <= len(micro) <= len(PALETTE):
        raise ValueError(f"there are {len(micro)} micro-batches; pass 1 to {len(PALETTE)}, one per colour")
    if any(m.parent is None for m in micro):
        raise ValueError("a micro-batch has no parent; pass the result of mb.split(part)")


_PICTURE, _PANELS, _COOPERATION_MARGINS = 360, 260, 190  # pixels

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
    return titled(figure, title, height=_PICTURE + _PANELS + _COOPERATION_MARGINS, subtitle=subtitle)


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
    owners = {(level, v): [of[v]] for level in range(len(mb.blocks) + 1) for v in range(_level_nodes(mb, level))}
    at = _positions(mb, owners)
    traces = [_rank_edges(mb, of, rank, at, crosses=crosses) for rank in sorted(set(of)) for crosses in (False, True)]
    for rank in sorted(set(of)):
        own = [node for node, ranks in owners.items() if ranks == [rank]]
        traces.append(_node_markers(mb, own, owners, at, _look(rank)))
    return traces


def _look(rank: int) -> dict[str, object]:
    return {**_part_look(rank), "name": f"PE {rank}", "legendgroup": f"PE {rank}"}


def _rank_edges(
    mb: MiniBatch, of: Sequence[int], rank: int, at: Mapping[_Node, _Place], *, crosses: bool
) -> go.Scatter:
    """The edges that a rank computes, its destinations', from its own nodes or from those of others."""
    ends = [
        (at[level, src], at[level + 1, dst])
        for level in range(len(mb.blocks))
        for src, dst in _pairs(mb, level)
        if of[dst] == rank and (of[src] != rank) == crosses
    ]
    return _edges(ends, PALETTE[rank], dash="dot" if crosses else "solid", opacity=0.8)


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
