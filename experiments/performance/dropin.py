"""Peak memory of micro-batches in training loops of DGL and PyG, beside the whole batch and the library's own step.

The models are those of DGL's node classification example (three SAGE layers with fanout 10; two GAT layers with eight
heads) and of PyG's neighbour loader example, called as these examples call them. Features are outside of the graph, in
the graph, or gathered for the whole batch by the loader (prefetched). A peak is that of one step, from the batch's
blocks, as the loader yields them, to the optimizer step; the native step runs the same model on the same parts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import pandas as pd
import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

import workbench as wb
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import import_dgl
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl

CLASSES, FANOUT, HEADS = 10, 10, 8
METHOD = "random"  # needs no METIS
MOST_OF_WHOLE = 1.001  # a few kilobytes of seed positions
MOST_OF_NATIVE = 1.1


class Config(GraphPoint):
    """One training loop, where its features are, and the number of micro-batches."""

    loop: Literal["dgl-sage", "dgl-gat", "pyg-sage"]
    features: Literal["outside", "graph", "prefetched"]
    num_parts: PositiveInt
    batch_size: PositiveInt
    width: PositiveInt
    hidden: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    """`of_whole`, `of_native`: the drop-in peak relative to that of the whole batch and of the native step."""
    graph, seeds = config.load()
    torch.manual_seed(config.seed)
    x, y = torch.randn(graph.num_nodes, config.width), torch.randint(CLASSES, (graph.num_nodes,))
    sampler = wb.NeighborSampler([FANOUT] * (2 if config.loop == "dgl-gat" else 3), seed=config.seed)
    mb = sampler.sample(graph, seeds[: config.batch_size])
    loop_of = _PygLoop if config.loop == "pyg-sage" else _DglLoop
    loop = loop_of(config, mb, x, y)
    loop.step([loop.batch()])  # warm up
    whole = wb.measure_peak(lambda: loop.step([loop.batch()]))
    dropin = wb.measure_peak(lambda: loop.step(wb.micro_batches(loop.batch(), config.num_parts, method=METHOD)))
    native = wb.measure_peak(lambda: _native_step(loop.model, loop.optimizer, config.num_parts, mb, x, y))
    peaks = {"whole_bytes": whole, "dropin_bytes": dropin, "native_bytes": native}
    yield {"graph": config.graph, **peaks, "of_whole": dropin / whole, "of_native": dropin / native}


def _native_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, num_parts: int, mb: MiniBatch, x: Tensor, y: Tensor
) -> None:
    micro = mb.split(wb.partition_batch(mb, num_parts, method=METHOD))
    wb.train_step(model, micro, x, y, F.cross_entropy, optimizer)


class _DglLoop:
    """DGL's node classification example, with the batch's structure given.

    Args:
        config: the point.
        mb: the batch.
        x: features of all nodes.
        y: labels of all nodes.
    """

    def __init__(self, config: Config, mb: MiniBatch, x: Tensor, y: Tensor) -> None:
        self._graph = graph_to_dgl(config.load()[0])
        self._features, self._mb, self._x, self._y = config.features, mb, x, y
        if config.features != "outside":
            self._graph.ndata.update({"feat": x, "label": y})
        self.model = (_Sage if config.loop == "dgl-sage" else _Gat)(config.width, config.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def batch(self) -> list[Any]:
        """The batch as DGL's DataLoader yields it: columns of the graph refer to it until they are read."""
        dgl = import_dgl()
        blocks = self._mb.to_dgl()
        for block in blocks:
            for frame in block._node_frames:
                for name, column in self._graph._node_frames[0].subframe(frame[dgl.NID])._columns.items():
                    frame.update_column(name, column)
        if self._features == "prefetched":
            blocks[0].srcdata["feat"] = self._x[self._mb.node_ids]
            blocks[-1].dstdata["label"] = self._y[self._mb.seeds]
        return blocks

    def step(self, parts: Sequence[Any]) -> None:
        """The loop's step over the parts of a batch."""
        dgl = import_dgl()
        self.optimizer.zero_grad()
        for blocks in parts:
            if self._features == "outside":
                x, y = self._x[blocks[0].srcdata[dgl.NID]], self._y[blocks[-1].dstdata[dgl.NID]]
            else:
                x, y = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
            loss = F.cross_entropy(self.model(blocks, x), y, reduction="sum") / self._mb.num_seeds
            loss.backward()
        self.optimizer.step()


class _PygLoop:
    """PyG's neighbour loader example, per layer; the loader has gathered `batch.x` if features are prefetched.

    Args:
        config: the point.
        mb: the batch.
        x: features of all nodes.
        y: labels of all nodes.
    """

    def __init__(self, config: Config, mb: MiniBatch, x: Tensor, y: Tensor) -> None:
        self._features, self._mb, self._x, self._y = config.features, mb, x, y
        self.model = _PygSage(config.width, config.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def batch(self) -> Any:
        """The batch as a loader yields it."""
        batch = self._mb.to_pyg()
        if self._features != "outside":
            batch.x, batch.y = self._x[self._mb.node_ids], self._y[self._mb.node_ids]
        return batch

    def step(self, parts: Sequence[Any]) -> None:
        """The loop's step over the parts of a batch."""
        self.optimizer.zero_grad()
        for part in parts:
            outside = self._features == "outside"
            x, y = (self._x[part.n_id], self._y[part.n_id]) if outside else (part.x, part.y)
            out = self.model(x, part.adjs)
            (F.cross_entropy(out, y[: part.batch_size], reduction="sum") / self._mb.num_seeds).backward()
        self.optimizer.step()


class _Sage(nn.Module):
    """Three SAGE layers of DGL."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        conv: Callable[..., nn.Module] = import_dgl().nn.SAGEConv
        dims = ((width, hidden), (hidden, hidden), (hidden, CLASSES))
        self.layers = nn.ModuleList([conv(*pair, "mean") for pair in dims])
        self.dropout = nn.Dropout(0.5)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        for position, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            x = self.dropout(F.relu(x)) if position + 1 < len(self.layers) else x
        return x


class _Gat(nn.Module):
    """Two GAT layers of DGL."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        conv: Callable[..., nn.Module] = import_dgl().nn.GATConv
        drop = {"feat_drop": 0.6, "attn_drop": 0.6, "allow_zero_in_degree": True}
        first = conv(width, hidden // HEADS, HEADS, activation=F.elu, **drop)
        self.layers = nn.ModuleList([first, conv(hidden // HEADS * HEADS, CLASSES, 1, **drop)])

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return self.layers[1](blocks[1], self.layers[0](blocks[0], x).flatten(1)).mean(1)


class _PygSage(nn.Module):
    """Three SAGE layers of PyG."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv  # pyright: ignore[reportMissingImports]

        dims = ((width, hidden), (hidden, hidden), (hidden, CLASSES))
        self.layers = nn.ModuleList([SAGEConv((i, i), o) for i, o in dims])

    def forward(self, x: Tensor, adjs: list[Any]) -> Tensor:
        for position, (layer, (edge_index, _, (_, count))) in enumerate(zip(self.layers, adjs, strict=True)):
            x = layer((x, x[:count]), edge_index)
            x = F.dropout(x.relu(), 0.5, self.training) if position + 1 < len(self.layers) else x
        return x


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    largest = format_bytes(table.whole_bytes.max())
    return interval_dots(
        table.assign(half=0.0, case=table.loop + ", " + table.features),
        x="num_parts",
        y="of_whole",
        group="case",
        half_width="half",
        title="Drop-in micro-batches",
        subtitle=f"peak memory relative to the whole batch's, which is up to {largest}",
    ).update_yaxes(title_text="of the whole batch's peak", tickformat=".0%", rangemode="tozero")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "loop", "features", "num_parts"]
    return [
        claims.within(
            "never-more-than-the-whole-batch",
            "micro-batches need no more memory than the whole batch",
            table,
            value="of_whole",
            by=by,
            most=MOST_OF_WHOLE,
        ),
        claims.within(
            "within-10-percent-of-native",
            "drop-in micro-batches need at most 10 % more memory than the library's own step",
            table,
            value="of_native",
            by=by,
            most=MOST_OF_NATIVE,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Peaks relative to the whole batch's over all cases, and by loop."""
    name = "drop-in micro-batches, peak relative to the whole batch's"
    groups = {name: table, **{f"{name}: {loop}": rows for loop, rows in table.groupby("loop", sort=False)}}
    return pd.DataFrame([_summary(group, rows) for group, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    ends = {"from": rows.of_whole.min(), "to": rows.of_whole.max(), "of_native": rows.of_native.max()}
    return {"measured": name, "cases": len(rows), "median": rows.of_whole.median(), **ends}
