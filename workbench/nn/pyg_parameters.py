"""Which parameters of a module with layers of PyG are features, edges and fields of edges, whatever their names are."""

import inspect
from collections.abc import Mapping

from torch import nn

from workbench.nn.forward_code import goes_through

_FEATURES = (
    "x",
    "h",
    "z",
    "feat",
    "feats",
    "features",
    "feature",
    "input",
    "inputs",
    "node_feat",
    "node_features",
    "xs",
)
_EDGES = ("edge_index", "edge_idx", "edges", "edge", "ei", "e", "edge_list", "edge_indices", "index", "adj", "adj_t")
_LAYERS = ("adjs", "adj_list", "edge_index_list", "edge_indexes", "hops")
_PYG_WEIGHTS = ("edge_weight", "edge_weights", "ew", "weight", "weights", "w")
_PYG_TYPES = ("edge_type", "edge_types", "et", "etype", "etypes")
_OF_A_BATCH = ("blocks", "block", "mfgs", "graphs", "graph", "g", "batch", "data")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def packages_of(model: nn.Module) -> set[str]:
    """The packages of a model's modules and of the classes that they are derived from."""
    return {kind.__module__.partition(".")[0] for module in model.modules() for kind in type(module).__mro__}


def pyg_names(model: nn.Module, parameters: Mapping[str, inspect.Parameter]) -> dict[str, str] | None:
    """Map `x`, `edge_index` or `adjs`, and fields of edges to the names that a module with PyG's layers has for them.

    Returns:
        None if the module has no such layers, or fewer than two parameters that it requires.
    """
    required = [name for name, p in parameters.items() if p.default is p.empty and p.kind in _POSITIONAL]
    if "torch_geometric" not in packages_of(model) or "workbench" in packages_of(model) or len(required) < 2:
        return None
    first, second = required[:2]
    edges_first = first not in _FEATURES and (second in _FEATURES or first in (*_EDGES, *_LAYERS))
    features, edges = (second, first) if edges_first else (first, second)
    if edges in _OF_A_BATCH:
        return None
    form = "adjs" if edges in _LAYERS or goes_through(model, edges) else "edge_index"
    renamed = {"x": features, form: edges}
    for field, aliases in (("edge_weight", _PYG_WEIGHTS), ("edge_type", _PYG_TYPES)):
        found = next((name for name in aliases if name in parameters and name not in (features, edges)), None)
        renamed |= {} if found is None else {field: found}
    return renamed
