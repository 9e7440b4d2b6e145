"""Aggregation, forward and backward, beside DGL's operators and layers.

The small block is timed with the sparse formats that both sides build lazily already there (`formats: cached`), and as
a block built anew for every call (`fresh`), as in training, where a batch is used once; the large block only fresh. A
fresh block starts as a sampler delivers it: rows (CSR) here, edge pairs in DGL. Ids are int32 on both sides. Inputs
require a gradient, as in every layer but the first. Every destination has an in-edge: DGL's maximum over none is −∞.

Reasons for the ratios: an operator's time consists of the page faults of its results (huge pages here, see
`workbench.kernels.segment`) and of random reads of rows (prefetched here); a layer's mostly of its dense products,
which are torch's on both sides and bound the ratio.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from experiments.performance import speedup
from experiments.performance.timing import beside_dgl, import_dgl
from workbench.core.block import Block
from workbench.experiment import claims
from workbench.experiment.config import PointConfig
from workbench.experiment.finding import Finding
from workbench.kernels.edge_softmax import edge_attention
from workbench.kernels.segment import segment_max, segment_mean, segment_sum
from workbench.nn.gat import GATLayer
from workbench.nn.sage import SAGELayer

HEADS = 4
BLOCKS = {"tiny": (3_000, 1_000, 9_500), "small": (60_000, 20_000, 190_000), "large": (433_000, 195_000, 1_900_000)}
"""Sources, destinations and edges."""
_SKEW = 1.5  # of the sources: those that appear first are drawn most often, as in a sampled block


class Config(PointConfig):
    """One block and one operation on it: a bare operator or a whole layer, of `width` inputs and outputs."""

    device: Literal["cpu"] = "cpu"
    block: Literal["tiny", "small", "large"]
    level: Literal["operator", "layer"]
    kind: Literal["mean", "pool", "gat"]
    width: PositiveInt
    formats: Literal["cached", "fresh"]
    repeats: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    torch.manual_seed(config.seed)
    block = sampled_like_block(*BLOCKS[config.block])
    sides = (_operators if config.level == "operator" else _layers)(config.kind, block, config.width)
    times = _compare(sides, block, fresh=config.formats == "fresh", repeats=config.repeats)
    yield {"num_edges": block.num_edges, **times}


def sampled_like_block(num_src: int, num_dst: int, num_edges: int, *, seed: int = 0) -> Block:
    """A block like a sampler's: bounded, uneven in-degrees, and sources by a power law.

    Args:
        num_src: number of sources.
        num_dst: number of destinations.
        num_edges: number of edges, approximately.
        seed: of torch's generator.
    """
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.randint(1, 2 * num_edges // num_dst, (num_dst,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    indices = (num_src * torch.rand(int(indptr[-1]), generator=generator) ** _SKEW).to(torch.int32)
    return Block(indptr, indices, num_src, num_dst)


class _Sides(NamedTuple):
    """Both sides of a comparison, called with their block, and the tensors that gradients are taken of."""

    ours: Callable[[Block], Tensor]
    dgl: Callable[[Any], Tensor]
    our_inputs: list[Tensor]
    dgl_inputs: list[Tensor]


def _operators(kind: str, block: Block, width: int) -> _Sides:
    """The bare aggregation, without dense layers."""
    dgl = import_dgl()
    x = torch.randn(block.num_src, width, requires_grad=True)
    if kind == "mean":
        return _Sides(lambda b: segment_mean(b, x), lambda g: dgl.ops.copy_u_mean(g, x), [x], [x])
    if kind == "pool":
        return _Sides(lambda b: segment_max(b, x), lambda g: dgl.ops.copy_u_max(g, x), [x], [x])
    values = x.detach().view(-1, HEADS, width // HEADS).requires_grad_()
    left = torch.randn(block.num_src, HEADS, requires_grad=True)
    right = torch.randn(block.num_dst, HEADS, requires_grad=True)

    def theirs(graph: Any) -> Tensor:
        scores = nn.functional.leaky_relu(dgl.ops.u_add_v(graph, left[..., None], right[..., None]), 0.2)
        return dgl.ops.u_mul_e_sum(graph, values, dgl.ops.edge_softmax(graph, scores))

    inputs = [values, left, right]
    return _Sides(lambda b: segment_sum(b, values, edge_attention(b, left, right)), theirs, inputs, inputs)


def _layers(kind: str, block: Block, width: int) -> _Sides:
    """Whole layers with the same weights."""
    conv = import_dgl().nn
    x = torch.randn(block.num_src, width, requires_grad=True)
    if kind == "gat":
        ours = GATLayer(width, width, heads=HEADS)
        theirs = conv.GATConv(width, width // HEADS, HEADS, allow_zero_in_degree=True)
    else:
        ours, theirs = SAGELayer(width, width, aggregator=kind), conv.SAGEConv(width, width, kind)
    ours.load_state_dict(theirs.state_dict())
    our_inputs, dgl_inputs = [x, *ours.parameters()], [x, *theirs.parameters()]
    return _Sides(lambda b: ours(b, x), lambda g: theirs(g, x).flatten(1), our_inputs, dgl_inputs)


def _compare(sides: _Sides, block: Block, *, fresh: bool, repeats: int) -> dict[str, float]:
    sources, destinations = block.indices, block.destinations

    def our_block() -> Block:
        return Block(block.indptr, block.indices, block.num_src, block.num_dst) if fresh else block

    def dgl_block() -> Any:
        sizes = {"num_src_nodes": block.num_src, "num_dst_nodes": block.num_dst}
        return import_dgl().create_block((sources, destinations), **sizes)

    kept = dgl_block().formats(["coo", "csr", "csc"])
    kept.create_formats_()
    out = sides.ours(our_block())
    torch.testing.assert_close(out, sides.dgl(kept), rtol=1e-3, atol=1e-3)
    grad = torch.randn(out.shape)
    del out
    return beside_dgl(
        lambda: torch.autograd.grad(sides.ours(our_block()), sides.our_inputs, grad),
        lambda: torch.autograd.grad(sides.dgl(dgl_block() if fresh else kept), sides.dgl_inputs, grad),
        repeats=repeats,
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = table.assign(panel=table.block + " block, " + table.level)
    title = "Aggregation, forward and backward"
    return speedup.draw_ratios(rows, panel="panel", case=["kind", "width"], group="formats", title=title)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    medians: Any = table.groupby("kind").ratio_best.median(skipna=False)
    gain = pd.DataFrame({"kind": ["gat"], "gain": [medians["gat"] / medians.drop("gat").max(skipna=False)]})
    return [
        *speedup.faster(table, by=["block", "level", "kind", "width", "formats"], least=0.9, median=1.5),
        claims.within(
            "attention-gains-most",
            "the median ratio is higher for GAT than for mean and max-pool",
            gain,
            value="gain",
            by=["kind"],
            least=claims.MORE,
            form=".2f",
            timed=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all cases, and by kind of aggregation."""
    of = "aggregation forward and backward"
    kinds = {f"{of}: {kind}": rows for kind, rows in table.groupby("kind", sort=False)}
    return speedup.summary({f"{of}: mean, max-pool, GAT; operators and whole layers": table, **kinds})
