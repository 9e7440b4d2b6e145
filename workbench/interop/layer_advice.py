"""Layers of torch, DGL and PyG that look across the batch, and what to use instead so that micro-batches are exact."""

import re

from torch import nn

_LAYERS = re.compile(
    r"dgl\.nn\.|torch_geometric\.nn\.(conv|norm)\.|workbench\.nn\.(?!gnn|model)"
    r"|torch\.nn\.modules\.(batchnorm|instancenorm|normalization)$"
)
_STATISTICS = (
    "it uses the statistics of each micro-batch; use LayerNorm, put it in eval mode if it has running statistics, or "
    "train on one micro-batch"
)
_BY_DEGREE = "it normalises by degrees counted in each micro-batch; use "
_WITH_WEIGHTS = " and pass the whole batch's normalisation as edge weights: "
_BY_OUT_DEGREE = f'{_BY_DEGREE}norm="none"{_WITH_WEIGHTS}split workbench.symmetric_norm(batch), or use norm="right"'
_BY_GCN_NORM = (
    f"{_BY_DEGREE}normalize=False (a GCNConv, where there is no such option){_WITH_WEIGHTS}before the split, "
    'batch = mb.to_pyg(form="edge_index") and batch.edge_weight = gcn_norm(batch.edge_index, None, len(batch.n_id), '
    "add_self_loops=False)[1]; parts carry edge_weight"
)
_OVER_NODES = 'it normalises over all nodes of a micro-batch; use mode="node"'
_ADVICE = {
    "GraphConv": _BY_OUT_DEGREE,
    "GCNLayer": _BY_OUT_DEGREE,
    "LayerNorm": _OVER_NODES,
    "HeteroLayerNorm": _OVER_NODES,
}
_NORMALIZED = (
    "GCNConv",
    "GCN2Conv",
    "APPNP",
    "LGConv",
    "SGConv",
    "SSGConv",
    "ARMAConv",
    "FAConv",
    "TAGConv",
    "PDNConv",
)
_NORMALIZED += ("DNAConv", "MixHopConv", "EGConv", "ChebConv")
_ADVICE |= dict.fromkeys(_NORMALIZED, _BY_GCN_NORM)
_ACROSS = (
    "its output for a node depends on the other nodes of the micro-batch, or on more hops than the batch has layers; "
    "train on one micro-batch, or use another layer"
)


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
    return next((_ADVICE[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in _ADVICE), _ACROSS)
