"""Every convolution and normalization of PyG: how micro-batches of it are exact, or why not."""

import torch
from torch import nn

from tests.training.foreign.cases import EDGE_WIDTH, NUM_TYPES, WIDTH, Case

D, E, T = WIDTH, EDGE_WIDTH, NUM_TYPES


def linear(in_dim: int = D, out_dim: int = D) -> nn.Module:
    return nn.Linear(in_dim, out_dim)


def with_attr(layer, view, h):
    return layer(h, view.graph, edge_attr=view.edge_attr)


def with_types(layer, view, h):
    return layer(h, view.graph, view.edge_type)


def with_weight(layer, view, h):
    return layer(h, view.graph, view.edge_weight)


def initial(layer, view, h):
    return layer(h, h, view.graph)


def norm(layer, view, h):
    return layer(h)


def cases(n) -> dict[str, list[Case]]:
    """Cases by the name of the class."""
    cugraph, hetero = "needs cuGraph, on CUDA", "takes dictionaries of node and edge types; batches have one edge_index"
    points = "takes positions and builds its own edges (torch-cluster), so there are none to sample"
    sparse = "needs torch-sparse"
    return {
        "AGNNConv": [Case("exact", n.AGNNConv)],
        "APPNP": [
            Case("warned", lambda: n.APPNP(1, 0.1)),
            Case(
                "exact",
                lambda: n.APPNP(1, 0.1, add_self_loops=False, normalize=False),
                with_weight,
                options="normalize=False",
            ),
        ],
        "ARMAConv": [Case("warned", lambda: n.ARMAConv(D, D))],
        "AntiSymmetricConv": [
            Case("warned", lambda: n.AntiSymmetricConv(D), named="GCNConv"),
            Case("exact", lambda: n.AntiSymmetricConv(D, n.SAGEConv(D, D)), options="phi=SAGEConv(…)"),
        ],
        "CGConv": [
            Case("exact", lambda: n.CGConv(D, E), with_attr),
            Case("warned", lambda: n.CGConv(D, E, batch_norm=True), with_attr, "batch_norm=True", named="BatchNorm1d"),
        ],
        "ChebConv": [Case("warned", lambda: n.ChebConv(D, D, 2))],
        "ClusterGCNConv": [Case("exact", lambda: n.ClusterGCNConv(D, D))],
        "CuGraphGATConv": [Case(cugraph)],
        "CuGraphRGCNConv": [Case(cugraph)],
        "CuGraphSAGEConv": [Case(cugraph)],
        "DNAConv": [Case("warned", lambda: n.DNAConv(D), lambda layer, v, h: layer(h[:, None], v.graph))],
        "DirGNNConv": [Case("warned", lambda: n.DirGNNConv(n.SAGEConv(D, D)))],
        "DynamicEdgeConv": [Case(points)],
        "EGConv": [
            Case("warned", lambda: n.EGConv(D, D, num_heads=2, num_bases=2), options='aggregators="symnorm"'),
            Case("exact", lambda: n.EGConv(D, D, ["mean", "max"], 2, 2), options='aggregators=["mean", "max"]'),
        ],
        "EdgeConv": [Case("exact", lambda: n.EdgeConv(linear(2 * D, D)))],
        "FAConv": [
            Case("warned", lambda: n.FAConv(D), initial),
            Case(
                "exact",
                lambda: n.FAConv(D, normalize=False, add_self_loops=False),
                lambda layer, v, h: layer(h, h, v.graph, v.edge_weight),
                options="normalize=False",
            ),
        ],
        "FastRGCNConv": [Case("exact", lambda: n.FastRGCNConv(D, D, T, 2), with_types)],
        "FeaStConv": [Case("exact", lambda: n.FeaStConv(D, D, 2))],
        "FiLMConv": [Case("exact", lambda: n.FiLMConv(D, D, T), with_types)],
        "FusedGATConv": [Case("needs dgNN, on CUDA")],
        "GATConv": [
            Case("exact", lambda: n.GATConv(D, D // 2, 2)),
            Case("exact", lambda: n.GATConv(D, D // 2, 2, edge_dim=E), with_attr, options="edge_dim=…"),
        ],
        "GATv2Conv": [
            Case("exact", lambda: n.GATv2Conv(D, D // 2, 2)),
            Case("exact", lambda: n.GATv2Conv(D, D // 2, 2, edge_dim=E), with_attr, options="edge_dim=…"),
        ],
        "GCN2Conv": [
            Case("warned", lambda: n.GCN2Conv(D, 0.1), initial),
            Case(
                "exact",
                lambda: n.GCN2Conv(D, 0.1, normalize=False),
                lambda layer, v, h: layer(h, h, v.graph, v.edge_weight),
                options="normalize=False",
            ),
        ],
        "GCNConv": [
            Case("warned", lambda: n.GCNConv(D, D)),
            Case("exact", lambda: n.GCNConv(D, D, normalize=False), with_weight, options="normalize=False"),
        ],
        "GENConv": [
            Case("warned", lambda: n.GENConv(D, D), named="BatchNorm1d"),
            Case("exact", lambda: n.GENConv(D, D, norm="layer", num_layers=1), options="num_layers=1"),
        ],
        "GINConv": [Case("exact", lambda: n.GINConv(linear()))],
        "GINEConv": [Case("exact", lambda: n.GINEConv(linear(), edge_dim=E), with_attr)],
        "GMMConv": [Case("exact", lambda: n.GMMConv(D, D, E, 2), with_attr)],
        "GPSConv": [Case("warned", lambda: n.GPSConv(D, n.SAGEConv(D, D), heads=2), named="BatchNorm")],
        "GatedGraphConv": [Case("exact", lambda: n.GatedGraphConv(D, 1))],
        "GeneralConv": [Case("exact", lambda: n.GeneralConv(D, D, E), with_attr)],
        "GraphConv": [Case("exact", lambda: n.GraphConv(D, D), with_weight)],
        "GravNetConv": [Case(points)],
        "HANConv": [Case(hetero)],
        "HEATConv": [
            Case(
                "exact",
                lambda: n.HEATConv(D, D // 2, 2, T, 4, E, 4, 2),
                lambda layer, v, h: layer(h, v.graph, v.node_type[: len(h)], v.edge_type, v.edge_attr),
            )
        ],
        "HGTConv": [Case(hetero)],
        "HeteroConv": [Case(hetero)],
        "HypergraphConv": [Case("takes hyperedges, which batches of neighbours do not have")],
        "LEConv": [Case("exact", lambda: n.LEConv(D, D), with_weight)],
        "LGConv": [
            Case("warned", n.LGConv),
            Case("exact", lambda: n.LGConv(normalize=False), with_weight, options="normalize=False"),
        ],
        "MFConv": [Case("exact", lambda: n.MFConv(D, D, 4))],
        "MeshCNNConv": [Case("takes the four adjacent edges of each edge of a mesh")],
        "MessagePassing": [Case("the base class")],
        "MixHopConv": [Case("warned", lambda: n.MixHopConv(D, D // 2, [0, 1]))],
        "NNConv": [Case("exact", lambda: n.NNConv(D, D, linear(E, D * D)), with_attr)],
        "PANConv": [Case(sparse)],
        "PDNConv": [
            Case("warned", lambda: n.PDNConv(D, D, E, 4), with_attr),
            Case(
                "exact",
                lambda: n.PDNConv(D, D, E, 4, add_self_loops=False, normalize=False),
                with_attr,
                options="normalize=False",
            ),
        ],
        "PNAConv": [
            Case(
                "exact",
                lambda: n.PNAConv(D, D, ["mean", "max", "std"], ["identity", "amplification"], torch.arange(6), E),
                with_attr,
            )
        ],
        "PPFConv": [
            Case(
                "exact",
                lambda: n.PPFConv(linear(D + 4, D), add_self_loops=False),
                lambda layer, v, h: layer(h, h[:, :3], h[:, 3:6], v.graph),
            )
        ],
        "PointGNNConv": [
            Case(
                "exact",
                lambda: n.PointGNNConv(linear(D, 3), linear(D + 3, D), linear()),
                lambda layer, v, h: layer(h, h[:, :3], v.graph),
            )
        ],
        "PointNetConv": [
            Case("exact", lambda: n.PointNetConv(linear(D + 3, D)), lambda layer, v, h: layer(h, h[:, :3], v.graph))
        ],
        "PointTransformerConv": [
            Case("exact", lambda: n.PointTransformerConv(D, D), lambda layer, v, h: layer(h, h[:, :3], v.graph))
        ],
        "RGATConv": [Case("exact", lambda: n.RGATConv(D, D // 2, T, heads=2), with_types)],
        "RGCNConv": [Case("exact", lambda: n.RGCNConv(D, D, T, 2), with_types)],
        "ResGatedGraphConv": [Case("exact", lambda: n.ResGatedGraphConv(D, D, edge_dim=E), with_attr)],
        "SAGEConv": [
            *(Case("exact", lambda a=a: n.SAGEConv(D, D, a), options=f'aggr="{a}"') for a in ("mean", "max")),
            Case("warned", lambda: n.SAGEConv(D, D, "lstm"), options='aggr="lstm"', named="LSTMAggregation"),
            Case(
                "warned",
                lambda: n.SAGEConv(D, D, n.GRUAggregation(D, D)),
                options="aggr=GRUAggregation",
                named="GRUAggregation",
            ),
        ],
        "SGConv": [Case("warned", lambda: n.SGConv(D, D))],
        "SSGConv": [Case("warned", lambda: n.SSGConv(D, D, 0.1))],
        "SignedConv": [
            Case(
                "exact",
                lambda: n.SignedConv(D, D // 2, True),
                lambda layer, v, h: layer(h, v.graph[:, v.edge_type > 0], v.graph[:, v.edge_type == 0]),
            )
        ],
        "SimpleConv": [Case("exact", lambda: n.SimpleConv("mean", "sum"))],
        "SplineConv": [Case("needs torch-spline-conv")],
        "SuperGATConv": [
            Case(
                "exact", lambda: n.SuperGATConv(D, D // 2, 2), options="without its self-supervised loss, one of pairs"
            )
        ],
        "TAGConv": [
            Case("warned", lambda: n.TAGConv(D, D, 1)),
            Case("exact", lambda: n.TAGConv(D, D, 1, normalize=False), with_weight, options="normalize=False"),
        ],
        "TransformerConv": [Case("exact", lambda: n.TransformerConv(D, D // 2, 2, edge_dim=E), with_attr)],
        "WLConv": [Case("has no gradient: hashes of colours")],
        "WLConvContinuous": [Case("exact", n.WLConvContinuous, with_weight)],
        "XConv": [Case(points)],
        "BatchNorm": [Case("warned", lambda: n.BatchNorm(D), norm)],
        "HeteroBatchNorm": [
            Case("warned", lambda: n.HeteroBatchNorm(D, 2), lambda layer, v, h: layer(h, v.node_type[: len(h)]))
        ],
        "InstanceNorm": [Case("warned", lambda: n.InstanceNorm(D), norm)],
        "LayerNorm": [
            Case("warned", lambda: n.LayerNorm(D), norm),
            Case("exact", lambda: n.LayerNorm(D, mode="node"), norm, options='mode="node"'),
        ],
        "HeteroLayerNorm": [
            Case("exact", lambda: n.HeteroLayerNorm(D, 2), lambda layer, v, h: layer(h, v.node_type[: len(h)]))
        ],
        "GraphNorm": [Case("warned", lambda: n.GraphNorm(D), norm)],
        "GraphSizeNorm": [Case("warned", n.GraphSizeNorm, norm)],
        "PairNorm": [
            Case("warned", n.PairNorm, norm),
            Case("warned", lambda: n.PairNorm(scale_individually=True), norm, options="scale_individually=True"),
        ],
        "MeanSubtractionNorm": [Case("warned", n.MeanSubtractionNorm, norm)],
        "MessageNorm": [Case("exact", lambda: n.MessageNorm(True), lambda layer, v, h: layer(h, 2 * h + 1))],
        "DiffGroupNorm": [Case("warned", lambda: n.DiffGroupNorm(D, 2), norm)],
    }
