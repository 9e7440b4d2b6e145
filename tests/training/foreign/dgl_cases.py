"""Every module of DGL: how micro-batches of it are exact, or why not."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.training.foreign.cases import EDGE_WIDTH, NUM_TYPES, WIDTH, Case

D = WIDTH
ZERO: dict[str, Any] = {"allow_zero_in_degree": True}
WHOLE: dict[str, Any] = {"merged": True}

OTHER_MODULES = {
    "explain": "explains a trained model",
    "factory": "builds graphs from points",
    "glob": "reads out whole graphs",
    "gt": "transformers over all pairs of nodes of whole graphs",
    "hetero": "takes several node and edge types",
    "linear": "linear maps of rows",
    "link": "scores pairs",
    "network_emb": "embeds walks",
    "sparse_emb": "embeds node ids",
    "utils": "combines modules, or propagates over whole graphs",
}
"""Why the modules of the other packages of `dgl.nn` have no cases."""


class Reversible(nn.Module):
    """A reversible layer after a projection: it frees the storage of its input, which must be no one else's."""

    def __init__(self, dgl_nn: Any) -> None:
        super().__init__()
        self.first = nn.Linear(D, D)
        self.layer = dgl_nn.GroupRevRes(dgl_nn.SAGEConv(D // 2, D // 2, "mean"), 2)

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        return self.layer(graph, self.first(h))


def linear() -> nn.Module:
    return nn.Linear(D, D)


def with_edge_attr(layer, view, h):
    return layer(view.graph, h, view.edge_attr)


def with_types(layer, view, h):
    return layer(view.graph, h, view.edge_type)


def with_weight(layer, view, h):
    return layer(view.graph, h, edge_weight=view.edge_weight)


def cases(dgl_nn) -> dict[str, list[Case]]:
    """Cases by the name of the class; layers that don't take blocks are called on a graph of all edges."""
    n = dgl_nn
    dense = "reads a dense adjacency matrix of the whole graph"
    cugraph = "needs cuGraph, on CUDA"
    return {
        "AGNNConv": [Case("exact", lambda: n.AGNNConv(**ZERO))],
        "APPNPConv": [Case("warned", lambda: n.APPNPConv(1, 0.1), **WHOLE, dtype=torch.float32)],
        "AtomicConv": [
            Case(
                "exact",
                lambda: n.AtomicConv(*torch.ones(3, D)),
                lambda layer, v, h: layer(v.graph, h[:, :1], v.edge_attr[:, :1].abs()),
                **WHOLE,
            )
        ],
        "CFConv": [Case("exact", lambda: n.CFConv(D, EDGE_WIDTH, D, D), with_edge_attr)],
        "ChebConv": [
            Case("warned", lambda: n.ChebConv(D, D, 2), lambda layer, v, h: layer(v.graph, h, [2.0]), **WHOLE)
        ],
        "CuGraphGATConv": [Case(cugraph)],
        "CuGraphRelGraphConv": [Case(cugraph)],
        "CuGraphSAGEConv": [Case(cugraph)],
        "DGNConv": [
            Case(
                "warned",
                lambda: n.DGNConv(D, D, ["mean", "dir1-av"], ["identity"], 2.5),
                lambda layer, v, h: layer(v.graph, h, eig_vec=v.eigenvectors),
                **WHOLE,
                named="BatchNorm1d",
            )
        ],
        "DenseChebConv": [Case(dense)],
        "DenseGraphConv": [Case(dense)],
        "DenseSAGEConv": [Case(dense)],
        "DotGatConv": [Case("exact", lambda: n.DotGatConv(D, D // 2, 2, **ZERO))],
        "EGATConv": [
            Case(
                "exact",
                lambda: n.EGATConv(D, EDGE_WIDTH, D // 2, 2, 2),
                lambda layer, v, h: layer(v.graph, v.pair(h), v.edge_attr),
            )
        ],
        "EGNNConv": [
            Case(
                "exact",
                lambda: n.EGNNConv(D, D, D, EDGE_WIDTH),
                lambda layer, v, h: layer(v.graph, h, h[:, :3], v.edge_attr),
                **WHOLE,
            )
        ],
        "EdgeConv": [
            Case("exact", lambda: n.EdgeConv(D, D, **ZERO)),
            Case(
                "warned",
                lambda: n.EdgeConv(D, D, batch_norm=True, **ZERO),
                None,
                "batch_norm=True",
                named="BatchNorm1d",
            ),
        ],
        "EdgeGATConv": [Case("exact", lambda: n.EdgeGATConv(D, EDGE_WIDTH, D // 2, 2, **ZERO), with_edge_attr)],
        "EdgeWeightNorm": [Case("computes edge weights; call it on the whole batch and split these")],
        "GATConv": [Case("exact", lambda: n.GATConv(D, D // 2, 2, **ZERO))],
        "GATv2Conv": [Case("exact", lambda: n.GATv2Conv(D, D // 2, 2, **ZERO))],
        "GCN2Conv": [
            Case("warned", lambda: n.GCN2Conv(D, 1, **ZERO), lambda layer, v, h: layer(v.graph, h, h), **WHOLE)
        ],
        "GINConv": [
            Case("exact", lambda a=a: n.GINConv(linear(), a), options=f'aggregator_type="{a}"')
            for a in ("sum", "mean", "max")
        ],
        "GINEConv": [
            Case(
                "exact",
                lambda: n.GINEConv(linear()),
                lambda layer, v, h: layer(v.graph, h, v.edge_attr[:, :1].expand(-1, D)),
            )
        ],
        "GMMConv": [Case("exact", lambda: n.GMMConv(D, D, EDGE_WIDTH, 2, **ZERO), with_edge_attr)],
        "GatedGraphConv": [Case("exact", lambda: n.GatedGraphConv(D, D, 1, NUM_TYPES), with_types, **WHOLE)],
        "GraphConv": [
            Case("warned", lambda: n.GraphConv(D, D, **ZERO), options='norm="both"'),
            Case("exact", lambda: n.GraphConv(D, D, "right", **ZERO), options='norm="right"'),
            Case("exact", lambda: n.GraphConv(D, D, "none", **ZERO), with_weight, options='norm="none"'),
            Case("warned", lambda: n.GraphConv(D, D, "left", **ZERO), options='norm="left"'),
        ],
        "GroupRevRes": [Case("warned", lambda: Reversible(n), options="a hop per group", **WHOLE)],
        "HGTConv": [
            Case(
                "exact",
                lambda: n.HGTConv(D, D // 2, 2, 2, NUM_TYPES),
                lambda layer, v, h: layer(v.graph, h, v.node_type[: len(h)], v.edge_type),
            )
        ],
        "NNConv": [Case("exact", lambda: n.NNConv(D, D, nn.Linear(EDGE_WIDTH, D * D), "mean"), with_edge_attr)],
        "PNAConv": [
            Case(
                "warned",
                lambda: n.PNAConv(D, D, ["mean", "max"], ["identity"], 2.5, edge_feat_size=EDGE_WIDTH),
                with_edge_attr,
                **WHOLE,
                named="BatchNorm1d",
            )
        ],
        "RelGraphConv": [Case("exact", lambda: n.RelGraphConv(D, D, NUM_TYPES, "basis", 2), with_types)],
        "SAGEConv": [
            Case("exact", lambda a=a: n.SAGEConv(D, D, a), options=f'aggregator_type="{a}"')
            for a in ("mean", "gcn", "pool", "lstm")
        ],
        "SGConv": [Case("warned", lambda: n.SGConv(D, D, 1, **ZERO), **WHOLE)],
        "TAGConv": [Case("warned", lambda: n.TAGConv(D, D, 1), **WHOLE)],
        "TWIRLSConv": [
            Case(
                "warned",
                lambda: n.TWIRLSConv(D, D, D, 1),
                **WHOLE,
                dtype=torch.float32,
                named="TWIRLSUnfoldingAndAttention",
            )
        ],
        "TWIRLSUnfoldingAndAttention": [
            Case(
                "warned",
                lambda: n.TWIRLSUnfoldingAndAttention(D, 1.0, 1.0, 1),
                lambda layer, v, h: layer(v.graph.remove_self_loop().add_self_loop(), h),
                **WHOLE,
                dtype=torch.float32,
            )
        ],
    }
