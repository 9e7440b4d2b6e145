"""Drawing of a small batch: its layers, and the micro-batch of every node and edge."""

from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.plots.looks import PALETTE, SYMBOLS
from workbench.plots.style import FAINT, INK, titled

_LEVEL, _MARGINS = 130, 150  # pixels: between levels; title and legend
_WIDTH = 640  # pixels, divided among the nodes of a level
_LABELLED = 32  # nodes of a level whose ids all fit

Node = tuple[int, int]
"""Level (0: input nodes) and local id in the batch."""


def draw_micro_batches(
    mb: MiniBatch, micro: Sequence[MiniBatch], *, max_nodes: int = 80, title: str | None = None
) -> go.Figure:
    """Draw a batch as a layered graph, input nodes at the top, nodes and edges in the colour of their micro-batch.

    Redundant nodes, which several micro-batches load or compute, are black. A click on a legend entry hides its
    micro-batch.

    Args:
        mb: the batch, on the CPU.
        micro: its micro-batches, from `mb.split`; at most seven.
        max_nodes: limit on the input nodes of the batch.
        title: title of the figure; None for the number of redundant input nodes.

    Raises:
        ValueError: more input nodes than `max_nodes`, no or more than seven micro-batches, one without `parent`, or a
            batch with exchanges.
    """
    _check(mb, micro, max_nodes)
    owners = _owners(mb, micro)
    at = positions(mb, owners)
    figure = go.Figure()
    for part, m in enumerate(micro):
        figure.add_trace(_edges(m, part, at))
    for part in range(len(micro)):
        own = [node for node, parts in owners.items() if parts == [part]]
        figure.add_trace(node_markers(mb, own, owners, at, part_look(part)))
    shared = [node for node, parts in owners.items() if len(parts) > 1]
    if shared:
        figure.add_trace(node_markers(mb, shared, owners, at, _SHARED))
    _label_levels(figure, mb)
    title = title or _redundant(mb, owners)
    return titled(figure, title, height=_LEVEL * len(mb.blocks) + _MARGINS)


_SHARED = {"name": "in several parts", "marker": {"color": INK, "symbol": "hexagon"}, "textfont": {"color": "white"}}


def part_look(part: int) -> dict[str, Any]:
    line = {"color": PALETTE[part], "width": 2}
    marker = {"color": "white", "symbol": SYMBOLS[part], "line": line}
    return {"name": f"part {part}", "legendgroup": str(part), "marker": marker, "textfont": {"color": INK}}


def level_nodes(mb: MiniBatch, level: int) -> int:
    return mb.blocks[level].num_src if level < len(mb.blocks) else mb.num_seeds


def _owners(mb: MiniBatch, micro: Sequence[MiniBatch]) -> dict[Node, list[int]]:
    """Node → the parts that contain it, in ascending order."""
    owners: dict[Node, list[int]] = {}
    for level in range(len(mb.blocks) + 1):
        for part, m in enumerate(micro):
            for local in _parents(m)[: level_nodes(m, level)]:
                owners.setdefault((level, local), []).append(part)
    return owners


def _parents(m: MiniBatch) -> list[int]:
    assert m.parent is not None
    return m.parent.tolist()


def positions(mb: MiniBatch, owners: dict[Node, list[int]]) -> dict[Node, tuple[float, float]]:
    """Sort seeds by part and every other level by the mean position of a node's destinations, for short edges."""
    at: dict[Node, tuple[float, float]] = {}
    for level in reversed(range(len(mb.blocks) + 1)):
        nodes = [(level, local) for local in range(level_nodes(mb, level))]
        below = _destinations(mb, level) if level < len(mb.blocks) else {}
        middle = {
            node: [at[level + 1, d][0] for d in below.get(node[1], ())] or [float(_part_place(node, owners))]
            for node in nodes
        }
        order = sorted(nodes, key=lambda node: (sum(middle[node]) / len(middle[node]), node))
        for place, node in enumerate(order):
            at[node] = (place + 1) / (len(order) + 1), -float(level)
    return at


def _part_place(node: Node, owners: dict[Node, list[int]]) -> int:
    return owners[node][0] if node in owners else len(owners)


def _destinations(mb: MiniBatch, level: int) -> dict[int, list[int]]:
    """Source → its destinations in a block, including itself if it is a destination."""
    found: dict[int, list[int]] = {local: [local] for local in range(mb.blocks[level].num_dst)}
    for src, dst in pairs(mb, level):
        found.setdefault(src, []).append(dst)
    return found


def pairs(mb: MiniBatch, level: int) -> Iterator[tuple[int, int]]:
    block = mb.blocks[level]
    return zip(block.indices.tolist(), block.destinations.tolist(), strict=True)


def _edges(m: MiniBatch, part: int, at: dict[Node, tuple[float, float]]) -> go.Scatter:
    parents = _parents(m)
    ends = [
        (at[level, parents[src]], at[level + 1, parents[dst]])
        for level in range(len(m.blocks))
        for src, dst in pairs(m, level)
    ]
    return go.Scatter(
        x=[x for (source, destination) in ends for x in (source[0], destination[0], None)],
        y=[y for (source, destination) in ends for y in (source[1], destination[1], None)],
        mode="lines",
        line={"color": PALETTE[part], "width": 1.2},
        opacity=0.6,
        hoverinfo="skip",
        legendgroup=str(part),
        showlegend=False,
    )


def node_markers(
    mb: MiniBatch,
    nodes: Sequence[Node],
    owners: dict[Node, list[int]],
    at: dict[Node, tuple[float, float]],
    look: dict[str, Any],
) -> go.Scatter:
    ids = mb.node_ids.tolist()
    widths = [level_nodes(mb, level) for level, _ in nodes]
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
    counts = [level_nodes(mb, level) for level in range(levels + 1)]
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


def _redundant(mb: MiniBatch, owners: dict[Node, list[int]]) -> str:
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
