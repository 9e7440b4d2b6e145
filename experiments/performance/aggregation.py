"""Aggregation, forward and backward, against DGL's operators and layers.

A case of the small block runs twice: with the sparse formats that both sides build lazily already there
(`formats="cached"`), and on a block made anew for every call (`"fresh"`), as in training, where a batch is used once;
the large block runs as in training only. A fresh block starts as samplers deliver it: rows (CSR) here, edge pairs in
`to_block`. Ids are int32 on both sides. Inputs require a gradient, as in every layer but the first. Every destination
has an in-edge: DGL's bare maximum over none is −∞.

What explains the ratios: an operator's time is the page faults of its results (huge pages here, see
`workbench.kernels.buffers`) and the rows it reads at random (prefetched here); a layer's is mostly its dense products,
which are torch's on both sides and bound the ratio.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from experiments.performance.timing import interleaved
from workbench.core.block import Block
from workbench.kernels.edge_softmax import edge_attention
from workbench.kernels.segment_max import segment_max
from workbench.kernels.segment_sum import segment_mean, segment_sum
from workbench.kernels.threads import get_num_threads
from workbench.nn.gat import GATLayer
from workbench.nn.sage import SAGELayer

KINDS = ("mean", "pool", "gat")
WIDTHS = (64, 128, 256)
HEADS = 4
SIZES = {"small": (60_000, 20_000, 190_000), "large": (433_000, 195_000, 1_900_000)}  # sources, destinations, edges
_SKEW = 1.5  # of the sources: those that appear first are drawn most, as in a sampled block


def _dgl() -> Any:
    """DGL, imported when a comparison runs; its modules are attributes that type checkers don't see."""
    return import_module("dgl")


class _Case(NamedTuple):
    """Both sides of one comparison: called with a block (ours or DGL's), they give what is differentiated."""

    ours: Callable[[Block], Tensor]
    dgl: Callable[[Any], Tensor]
    our_inputs: list[Tensor]
    dgl_inputs: list[Tensor]


def sampled_like_block(num_src: int, num_dst: int, num_edges: int, seed: int = 0) -> Block:
    """A block like a sampler's: in-degrees bounded and uneven, sources by a power law.

    Args:
        num_src: sources.
        num_dst: destinations.
        num_edges: edges, approximately.
        seed: of torch's generator.
    """
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.randint(1, 2 * num_edges // num_dst, (num_dst,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    indices = (num_src * torch.rand(int(indptr[-1]), generator=generator) ** _SKEW).to(torch.int32)
    return Block(indptr, indices, num_src, num_dst)


def _operators(kind: str, block: Block, width: int) -> _Case:
    """The bare aggregation, without dense layers."""
    dgl = _dgl()
    x = torch.randn(block.num_src, width, requires_grad=True)
    if kind == "mean":
        return _Case(lambda b: segment_mean(b, x), lambda g: dgl.ops.copy_u_mean(g, x), [x], [x])
    if kind == "pool":
        return _Case(lambda b: segment_max(b, x), lambda g: dgl.ops.copy_u_max(g, x), [x], [x])
    values = x.detach().view(-1, HEADS, width // HEADS).requires_grad_()
    left = torch.randn(block.num_src, HEADS, requires_grad=True)
    right = torch.randn(block.num_dst, HEADS, requires_grad=True)

    def theirs(graph: Any) -> Tensor:
        scores = nn.functional.leaky_relu(dgl.ops.u_add_v(graph, left[..., None], right[..., None]), 0.2)
        return dgl.ops.u_mul_e_sum(graph, values, dgl.ops.edge_softmax(graph, scores))

    inputs = [values, left, right]
    return _Case(lambda b: segment_sum(b, values, edge_attention(b, left, right)), theirs, inputs, inputs)


def _layers(kind: str, block: Block, width: int) -> _Case:
    """Whole layers with the same weights, as users run them."""
    dgl = _dgl()
    x = torch.randn(block.num_src, width, requires_grad=True)
    if kind == "gat":
        ours, theirs = (
            GATLayer(width, width, heads=HEADS),
            dgl.nn.GATConv(width, width // HEADS, HEADS, allow_zero_in_degree=True),
        )
    else:
        ours, theirs = SAGELayer(width, width, aggregator=kind), dgl.nn.SAGEConv(width, width, kind)
    ours.load_state_dict(theirs.state_dict())
    return _Case(
        lambda b: ours(b, x),
        lambda g: theirs(g, x).flatten(1),
        [x, *ours.parameters()],
        [x, *theirs.parameters()],
    )


def _compare(case: _Case, block: Block, *, fresh: bool, repeats: int) -> dict[str, float]:
    dgl = _dgl()
    sources, destinations = block.indices, block.destinations

    def our_block() -> Block:
        return Block(block.indptr, block.indices, block.num_src, block.num_dst) if fresh else block

    def dgl_block() -> Any:
        sizes = {"num_src_nodes": block.num_src, "num_dst_nodes": block.num_dst}
        return dgl.create_block((sources, destinations), **sizes)

    kept = dgl_block().formats(["coo", "csr", "csc"])
    kept.create_formats_()
    out = case.ours(our_block())
    torch.testing.assert_close(out, case.dgl(kept), rtol=1e-3, atol=1e-3)
    grad = torch.randn(out.shape)
    del out
    timed = interleaved(
        lambda: torch.autograd.grad(case.ours(our_block()), case.our_inputs, grad),
        lambda: torch.autograd.grad(case.dgl(dgl_block() if fresh else kept), case.dgl_inputs, grad),
        repeats=repeats,
    )
    return {name.replace("theirs", "dgl"): value for name, value in timed.items()}


def cases(quick: bool = False) -> Iterator[dict[str, Any]]:
    """The grid: size, level (bare operator or layer), kind, width, formats."""
    for size in ("small",) if quick else tuple(SIZES):
        for level in ("operator", "layer"):
            for kind in KINDS:
                for width in WIDTHS[:1] if quick else WIDTHS:
                    for formats in ("fresh",) if size == "large" else ("cached", "fresh"):
                        yield {"size": size, "level": level, "kind": kind, "width": width, "formats": formats}


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Measure every case.

    Args:
        quick: only the small block at the smallest width, with fewer rounds.

    Returns:
        One flat row a case: its axes, `num_edges`, `num_threads`, `ours_seconds`, `dgl_seconds`, `ratio_best`,
        `ratio_median`, `ratio_low`, `ratio_high` (dgl / ours; see `interleaved`).
    """
    rows = []
    for axes in cases(quick):
        torch.manual_seed(0)
        block = sampled_like_block(*SIZES[axes["size"]])
        build = _operators if axes["level"] == "operator" else _layers
        case = build(axes["kind"], block, axes["width"])
        timed = _compare(
            case, block, fresh=axes["formats"] == "fresh", repeats=3 if quick or axes["size"] == "large" else 7
        )
        rows.append({**axes, "num_edges": block.num_edges, "num_threads": get_num_threads(), **timed})
    return rows
