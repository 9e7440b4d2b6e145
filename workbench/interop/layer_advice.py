"""Layers of torch, DGL and PyG that look across the batch, and what to use instead so that micro-batches are exact."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

_LAYERS = re.compile(
    r"dgl\.nn\.|torch_geometric\.nn\.(conv|norm)\.|workbench\.nn\.(?!gnn|model)"
    r"|torch\.nn\.modules\.(batchnorm|instancenorm|normalization)$"
)
_NORMS = re.compile(r"torch_geometric\.nn\.norm\.")
_DGL, _PYG, _OWN = "dgl", "torch_geometric", "workbench"
_STATISTICS = (
    "it uses the statistics of each micro-batch; use LayerNorm, put it in eval mode if it has running statistics, or "
    "train on one micro-batch"
)
_BY_DEGREE = "it normalises by degrees counted in each micro-batch; use "
_WITH_WEIGHTS = " and pass the whole batch's normalisation as edge weights: "
_BY_OUT_DEGREE = f'{_BY_DEGREE}norm="none"{_WITH_WEIGHTS}split workbench.nn.symmetric_norm(batch), or use norm="right"'
_BY_GCN_NORM = (
    f"{_BY_DEGREE}normalize=False (a GCNConv, where there is no such option){_WITH_WEIGHTS}before the split, "
    'batch = mb.to_pyg(form="edge_index") and batch.edge_weight = gcn_norm(batch.edge_index, None, len(batch.n_id), '
    "add_self_loops=False)[1]; parts carry edge_weight"
)
_OVER_NODES = 'it normalises over all nodes of a micro-batch; use mode="node"'
_ACROSS = (
    "its output for a node depends on the other nodes of the micro-batch, or on more hops than the batch has layers; "
    "train on one micro-batch, or use another layer"
)
_PADDED = (
    "it pads every node's neighbours to the largest degree of the micro-batch and reads the state after the padding; "
    'use `build_model("sage-lstm")`, whose states end with each node\'s own neighbours, or another aggregation'
)
_CACHED = (
    "with cached=True it keeps what it computed from the edges of the first batch, and uses it for every other one; "
    "build it with cached=False"
)


def _always(_: Any) -> bool:
    return True


def _by_option(name: str, *values: Any) -> Callable[[Any], bool]:
    """A layer is inexact if the option has one of these values, or is true if there are none."""

    def is_chosen(layer: Any) -> bool:
        value = getattr(layer, name, True)
        return value in values if values else bool(value)

    return is_chosen


def _normalizes(layer: Any) -> bool:
    """Whether a layer of PyG normalises as GCN does, and passes messages at all."""
    if type(layer).__name__ == "ChebConv":
        return len(layer.lins) > 1
    hops = getattr(layer, "K", max(getattr(layer, "powers", [1]), default=0))
    return bool(getattr(layer, "normalize", True)) and hops != 0


_KNOWN: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    (_OWN, "GCNLayer"): (_by_option("norm", "both"), _BY_OUT_DEGREE),
    (_DGL, "GraphConv"): (_by_option("_norm", "both", "left"), _BY_OUT_DEGREE),
    (_PYG, "EGConv"): (lambda layer: "symnorm" in getattr(layer, "aggregators", ["symnorm"]), _BY_GCN_NORM),
    (_PYG, "LayerNorm"): (_by_option("mode", "graph"), _OVER_NODES),
}
"""Whether a layer is inexact with its options, and the advice, by library and class."""
_NORMALIZED = ("GCNConv", "GCN2Conv", "APPNP", "LGConv", "FAConv", "TAGConv", "PDNConv", "DNAConv")
_ALWAYS_NORMALIZED = ("SGConv", "SSGConv", "ARMAConv", "MixHopConv", "ChebConv")  # without a `normalize`
_KNOWN |= dict.fromkeys([(_PYG, name) for name in (*_NORMALIZED, *_ALWAYS_NORMALIZED)], (_normalizes, _BY_GCN_NORM))
_DGL_NORMALIZED = (
    "SGConv",
    "TAGConv",
    "APPNPConv",
    "GCN2Conv",
    "ChebConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
)
_KNOWN |= dict.fromkeys([(_DGL, name) for name in _DGL_NORMALIZED], (_always, _ACROSS))
_GRAPH_WIDE = ("DirGNNConv", "GraphNorm", "GraphSizeNorm", "MeanSubtractionNorm", "PairNorm", "GPSConv")
_KNOWN |= dict.fromkeys([(_PYG, name) for name in _GRAPH_WIDE], (_always, _ACROSS))
_KNOWN |= dict.fromkeys([(_PYG, name) for name in ("LSTMAggregation", "GRUAggregation")], (_always, _PADDED))
_KNOWN |= {(_PYG, "HeteroBatchNorm"): (_by_option("training"), _STATISTICS)}


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is a layer or normalization of a library, or derived from one."""
    return any(_LAYERS.match(f"{kind.__module__}.") or _LAYERS.match(kind.__module__) for kind in type(module).__mro__)


def is_batch_statistic(module: nn.Module) -> bool:
    """Return whether a module, in its current mode, uses the statistics of the rows that it is called with."""
    if not isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)):
        return False
    return module.training or module.running_mean is None


def is_cached(module: nn.Module) -> bool:
    """Return whether a layer of DGL or PyG keeps what it computed from the edges of its first call (`cached=True`)."""
    if not any(kind.__module__.partition(".")[0] in (_DGL, _PYG) for kind in type(module).__mro__):
        return False
    return getattr(module, "cached", None) is True or getattr(module, "_cached", None) is True


def cached_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a model for which `is_cached` is true, with their names."""
    return ((name, module) for name, module in model.named_modules() if is_cached(module))


def known_inexact(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that are inexact by their class, options and mode, whatever the batch, in their order."""
    for name, module in model.named_modules():
        if is_batch_statistic(module):
            owner = statistic_owner(model, name)
            yield owner, model.get_submodule(owner)
        elif is_known_inexact(module):
            yield name, module


def is_known_inexact(module: nn.Module) -> bool:
    """Return whether a module, without those inside of it, is inexact by its class, options and mode."""
    is_listed = any(is_inexact(module) for is_inexact, _ in _entries(module))
    return is_listed or is_cached(module) or is_batch_statistic(module)


def statistic_owner(model: nn.Module, name: str) -> str:
    """The name of the normalization of PyG that a module with batch statistics is the core of, or the module's own."""
    outer = name.rpartition(".")[0]
    is_core = outer and any(_NORMS.match(kind.__module__) for kind in type(model.get_submodule(outer)).__mro__)
    return outer if is_core else name


def exact_alternative(module: nn.Module) -> str:
    """Return what breaks exactness in a layer that was found to be inexact, and what to use instead."""
    if any(is_cached(inner) for inner in module.modules()):
        return _CACHED
    if any(is_batch_statistic(inner) for inner in module.modules()):
        return _STATISTICS
    return next((advice for is_inexact, advice in _entries(module) if is_inexact(module)), _ACROSS)


def _entries(module: nn.Module) -> Iterator[tuple[Callable[[Any], bool], str]]:
    """What is known of a module's class, or of the library's class that it is derived from."""
    for kind in type(module).__mro__:
        entry = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if entry is not None:
            yield entry
            return
