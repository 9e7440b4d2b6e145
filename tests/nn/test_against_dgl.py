"""Outputs and gradients equal those of DGL's layers with the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.covering import pairwise
from tests.nn.blocks import NUM_TYPES, random_block, random_rows
from workbench.core.block import Block
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCN_NORMS, GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGE_AGGREGATORS, SAGELayer

dgl = pytest.importorskip("dgl")
TOLERANCE = 1e-10
IN = 6


def _dgl_block(block: Block) -> Any:
    ends = (block.indices.long(), block.destinations.long())
    return dgl.create_block(ends, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)


def _our_name(name: str) -> str:
    return name.replace("apply_func", "mlp")  # DGL's GINConv receives its MLP from the caller


def _result_and_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    coefficients = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * coefficients).sum(), inputs)]


def _compare(ours: nn.Module, theirs: nn.Module, block: Block) -> None:
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict({_our_name(name): value for name, value in theirs.state_dict().items()})
    h = random_rows(block.num_src, IN)
    weights = [] if block.edge_weight is None else [block.edge_weight]
    names = [name for name, _ in theirs.named_parameters()]
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    out = theirs(_dgl_block(block), h, edge_weight=block.edge_weight)
    expected = _result_and_gradients(out.flatten(1), [h, *weights, *(other[n] for n in names)])
    got = _result_and_gradients(ours(block, h), [h, *weights, *(mine[_our_name(n)] for n in names)])
    largest = max(b.norm() for b in expected)
    for a, b in zip(got, expected, strict=True):  # may be zero: softmax ignores a shift of all scores
        assert (a - b).norm() <= TOLERANCE * max(b.norm(), 1e-3 * largest)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def weighted(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=range(3))
def block(request: pytest.FixtureRequest, weighted: bool) -> Block:
    """Random blocks; the last destination has no in-edge."""
    made = random_block(
        30, 17, 90, seed=request.param, weight=torch.float64 if weighted else None, learn_weight=weighted
    )
    assert int(made.in_degrees()[-1]) == 0
    return made


@pytest.mark.parametrize(
    ("aggregator", "out_dim", "weighted", "block"),
    pairwise(SAGE_AGGREGATORS, [4, 9], [False, True], range(3)),
    indirect=["weighted", "block"],
)
def test_sage(aggregator: str, out_dim: int, block: Block) -> None:
    theirs = dgl.nn.SAGEConv(IN, out_dim, aggregator).double()
    _compare(SAGELayer(IN, out_dim, aggregator=aggregator).double(), theirs, block)


@pytest.mark.parametrize("out_dim", [4, 9])
@pytest.mark.parametrize("norm", GCN_NORMS)
def test_gcn(norm: str, out_dim: int, block: Block) -> None:
    theirs = dgl.nn.GraphConv(IN, out_dim, norm=norm, allow_zero_in_degree=True).double()
    _compare(GCNLayer(IN, out_dim, norm=norm).double(), theirs, block)


@pytest.mark.parametrize("learn_eps", [False, True])
def test_gin(learn_eps: bool, block: Block) -> None:
    ours = GINLayer(IN, 4, hidden_dim=5, eps=0.25, learn_eps=learn_eps).double()
    mlp = nn.Sequential(nn.Linear(IN, 5), nn.ReLU(), nn.Linear(5, 4))
    theirs = dgl.nn.GINConv(mlp, "sum", init_eps=0.25, learn_eps=learn_eps).double()
    _compare(ours, theirs, block)


@pytest.mark.parametrize("heads", [1, 3])
def test_gat(heads: int, block: Block) -> None:
    theirs = dgl.nn.GATConv(IN, 4, heads, allow_zero_in_degree=True).double()
    _compare(GATLayer(IN, 4 * heads, heads=heads).double(), theirs, block)


def test_gat_averages_heads(block: Block) -> None:
    theirs = dgl.nn.GATConv(IN, 4, 3, allow_zero_in_degree=True).double()
    ours = GATLayer(IN, 4, heads=3, concat=False).double()
    ours.load_state_dict(theirs.state_dict())
    h = random_rows(block.num_src, IN)
    expected = theirs(_dgl_block(block), h, edge_weight=block.edge_weight).mean(1)
    torch.testing.assert_close(ours(block, h), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_gat_attends_to_the_node_itself(block: Block) -> None:
    """As DGL's layer does on a block to which edges from every destination to itself were added, of weight 1."""
    ours = GATLayer(IN, 12, heads=3, self_attention=True).double()
    theirs = dgl.nn.GATConv(IN, 4, 3).double()
    ours.load_state_dict(theirs.state_dict())
    h, own = random_rows(block.num_src, IN), torch.arange(block.num_dst)
    ends = torch.cat([block.indices.long(), own]), torch.cat([block.destinations.long(), own])
    looped = dgl.create_block(ends, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    weight = None if block.edge_weight is None else torch.cat([block.edge_weight, block.edge_weight.new_ones(len(own))])
    variables = [h] if block.edge_weight is None else [h, block.edge_weight]
    expected = _result_and_gradients(theirs(looped, h, edge_weight=weight).flatten(1), variables)
    for mine, other in zip(_result_and_gradients(ours(block, h), variables), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=TOLERANCE, atol=TOLERANCE)


def _relation_norm(block: Block) -> Tensor:
    """Return 1 / |N_r| per edge, counted one edge at a time; DGL expects it from its caller."""
    assert block.edge_type is not None
    keys = list(zip(block.destinations.tolist(), block.edge_type.tolist(), strict=True))
    return torch.tensor([1 / keys.count(key) for key in keys], dtype=torch.float64)


@pytest.mark.parametrize(
    ("bases", "out_dim", "norm", "weighted", "block"),
    pairwise([("basis", 2), ("basis", None), ("bdd", 2)], [4, 8], ["none", "relation"], [False, True], range(3)),
    indirect=["weighted", "block"],
)
def test_rgcn(bases: tuple[str, int | None], out_dim: int, norm: str, block: Block) -> None:
    regularizer, num_bases = bases
    theirs = dgl.nn.RelGraphConv(IN, out_dim, NUM_TYPES, regularizer, num_bases).double()
    ours = RGCNLayer(
        IN, out_dim, num_relations=NUM_TYPES, regularizer=regularizer, num_bases=num_bases, norm=norm
    ).double()

    class WithNorm(nn.Module):
        """Passes DGL's layer its edge weights: ours, and the normalization."""

        def forward(self, graph: Any, h: Tensor, edge_weight: Tensor | None) -> Tensor:
            weight = torch.ones(block.num_edges, dtype=h.dtype) if norm == "none" else _relation_norm(block)
            weight = weight if edge_weight is None else weight * edge_weight
            return theirs(graph, h, block.edge_type, weight[:, None])

        named_parameters, parameters, state_dict = theirs.named_parameters, theirs.parameters, theirs.state_dict

    _compare(ours, WithNorm(), block)
