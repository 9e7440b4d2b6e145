"""Layers of torch, DGL and PyG that look across the batch, and what to use instead so that micro-batches are exact."""

import re

from torch import nn

_LAYERS = re.compile(
    r"dgl\.nn\.|torch_geometric\.nn\.(conv|norm)\.|workbench\.nn\.(?!model)"
    r"|torch\.nn\.modules\.(batchnorm|instancenorm|normalization)$"
)
_STATISTICS = (
    "it uses the statistics of each micro-batch; use LayerNorm, put it in eval mode if it has running statistics, or "
    "train on one micro-batch"
)
_SYMMETRIC = (
    "it normalises by degrees counted in each micro-batch; use {instead} and pass the whole batch's normalisation as "
    "edge weights: split workbench.symmetric_norm(batch), whose parts carry edge_weight"
)
_ADVICE = {
    "GraphConv": _SYMMETRIC.format(instead='norm="none" (or norm="right" without weights)'),
    "GCNLayer": _SYMMETRIC.format(instead='norm="none"'),
    "GCNConv": _SYMMETRIC.format(instead="normalize=False, with self loops in the graph instead of add_self_loops,"),
    "LayerNorm": 'it normalises over all nodes of a micro-batch; use mode="node"',
    "HeteroLayerNorm": 'it normalises over all nodes of a micro-batch; use mode="node"',
}
_NORMALIZED = (
    "GCN2Conv",
    "APPNP",
    "LGConv",
    "SGConv",
    "SSGConv",
    "ARMAConv",
    "FAConv",
    "TAGConv",
    "DNAConv",
    "PDNConv",
)
_NORMALIZED += ("MixHopConv", "ClusterGCNConv", "EGConv", "ChebConv", "PANConv")
_ADVICE |= dict.fromkeys(_NORMALIZED, _SYMMETRIC.format(instead="normalize=False (or a GCNConv)"))
_DEFAULT = "its output for a node depends on the other nodes of the micro-batch; train on one micro-batch or replace it"


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is a layer or normalization of a library, or derived from one."""
    return any(_LAYERS.match(f"{kind.__module__}.") or _LAYERS.match(kind.__module__) for kind in type(module).__mro__)


def is_batch_statistic(module: nn.Module) -> bool:
    """Return whether a module, in its current mode, uses the statistics of the rows that it is called with."""
    if not isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)):
        return False
    return module.training or module.running_mean is None


def exact_alternative(module: nn.Module) -> str:
    """Return what breaks exactness in a layer that was found to be inexact, and what to use instead."""
    if any(is_batch_statistic(inner) for inner in module.modules()):
        return _STATISTICS
    return next((_ADVICE[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in _ADVICE), _DEFAULT)
