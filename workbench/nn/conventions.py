"""Calling conventions: what a model's `forward` expects, told by its parameters and by the layers that it contains.

| convention | call |
|---|---|
| the library's | `model(mb.blocks, x)` |
| DGL's | `model(dgl_blocks, x)`; one block if there is one layer and the parameter is `block`, `graph` or `g` |
| PyG's, per layer | `model(x, adjs=…)` |
| PyG's, one sample per node | `model(x, edge_index=…)`, whose outputs for the seeds are returned |

The two parameters of a module with layers of PyG may have any names and come in either order: features are what is
named so or comes first, and the other one is `adjs` if `forward` goes through it layer by layer, else `edge_index`.

Edge data of a batch that was converted from DGL is in the blocks' `edata`; from PyG, and from DGL too, it is passed to
parameters of its name (`edge_attr`), one value per layer except with `edge_index` or a single block. A required
parameter of another name gets the only column, if exactly one of each is left.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from workbench.core.minibatch import MiniBatch
from workbench.interop.pyg import layers_to_pyg
from workbench.interop.pyg_forms import has_one_sample_per_node
from workbench.interop.pyg_parts import edge_rows, node_rows
from workbench.nn.forward_code import names_in
from workbench.nn.pyg_parameters import pyg_names

BATCH_ARGUMENTS = ("node_ids", "step")

_ONE_BLOCK = ("block", "mfg", "bipartite", "graph", "g")
_BLOCKS = ("blocks", "mfgs", "bipartites", "graphs")
_WEIGHTS = ("edge_weight", "edge_weights", "eweight")
_TYPES = ("edge_type", "edge_types", "etype", "etypes")

# Names that a module's forward uses: attributes of the library's blocks, or of DGL's.
_OF_BLOCKS = {"indptr", "destinations", "num_src", "num_dst", "edge_ids", "to_dgl", "to_pyg", "MiniBatch"}
_OF_DGL = {"local_scope", "local_var", "srcdata", "dstdata", "edata", "update_all", "apply_edges"}
_OF_DGL |= {"num_src_nodes", "num_dst_nodes", "number_of_src_nodes", "number_of_dst_nodes"}

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


class Convention(NamedTuple):
    """How a model is called.

    Args:
        name: what the model is called with, for messages.
        arguments: maps a batch and its features to the arguments of the call.
        outputs: maps the model's result and the batch to the outputs of the seeds.
    """

    name: str
    arguments: Callable[[MiniBatch, Any], Call]
    outputs: Callable[[Any, MiniBatch], Any] = lambda out, _: out


def convention_of(model: nn.Module) -> Convention:
    """Find out how a model is called; the library's own convention if nothing tells otherwise.

    Args:
        model: a module, without the wrapper of `torch.compile` or data parallelism.
    """
    parameters = inspect.signature(model.forward).parameters
    for name in ("edge_index", "adjs"):
        if name in parameters:
            return _renamed_convention(parameters, {"x": _features(parameters), name: name})
    if _reads_dgl_blocks(model, parameters):
        return Convention("dgl_blocks, x", lambda mb, x: _dgl_call(parameters, mb, x))
    renamed = pyg_names(model, parameters)
    if renamed is not None:
        return _renamed_convention(parameters, renamed)
    names = accepted_batch_arguments(parameters)
    return Convention("blocks, x", lambda mb, x: ((mb.blocks, x), {name: getattr(mb, name) for name in names}))


def _renamed_convention(parameters: Mapping[str, inspect.Parameter], renamed: dict[str, str]) -> Convention:
    """The convention of PyG whose parameters have other names; they are passed by position where they must be."""
    canonical = {own: name for name, own in renamed.items()}
    known = {canonical.get(name, name): parameter for name, parameter in parameters.items()}
    call = _pyg_call if "edge_index" in renamed else _adjs_call

    def arguments(mb: MiniBatch, x: Any) -> Call:
        _, given = call(known, mb, x)
        by_name = {renamed.get(name, name): value for name, value in given.items()}
        return _by_position(parameters, by_name)

    name = "x, edge_index" if "edge_index" in renamed else "x, adjs"
    return Convention(name, arguments, of_seeds if "edge_index" in renamed else lambda out, _: out)


def _by_position(parameters: Mapping[str, inspect.Parameter], given: dict[str, Any]) -> Call:
    """Pass arguments of parameters that have no name for the caller by position."""
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and name in given]
    return tuple(given[name] for name in positional), {
        name: value for name, value in given.items() if name not in positional
    }


def accepted_batch_arguments(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return which of `node_ids` and `step` a `forward` with these parameters accepts, by name or as `**kwargs`."""
    accepts_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return [name for name in BATCH_ARGUMENTS if accepts_all or name in parameters]


def _reads_dgl_blocks(model: nn.Module, parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether the model contains layers of DGL, or code for DGL's blocks, and nothing that reads the library's."""
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    annotations = [str(parameter.annotation).lower() for parameter in parameters.values()]
    if "workbench" in packages or any("workbench" in text for text in annotations):
        return False
    names = {name for module in model.modules() for name in names_in(module)}
    if names & _OF_BLOCKS:
        return False
    return "dgl" in packages or bool(names & _OF_DGL) or any("dgl" in text for text in annotations)


def _dgl_call(parameters: Mapping[str, inspect.Parameter], mb: MiniBatch, x: Any) -> Call:
    graphs = next((name for name in parameters if name in (*_ONE_BLOCK, *_BLOCKS)), None)
    single = graphs in _ONE_BLOCK and len(mb.blocks) == 1
    edge_values = [(_WEIGHTS, [block.edge_weight for block in mb.blocks])]
    edge_values += [(_TYPES, [block.edge_type for block in mb.blocks])]
    given = {
        name: values[0] if single else values
        for names, values in edge_values
        for name in names
        if name in parameters and values[0] is not None
    }
    given |= {name: getattr(mb, name) for name in BATCH_ARGUMENTS if name in parameters}
    blocks = mb.to_dgl()
    missing = [name for name in _missing(parameters, given) if name not in list(parameters)[:2]]
    for name, column in _matched(parameters, missing, _edge_columns(blocks)).items():
        given[name] = blocks[0].edata[column] if single else [block.edata[column] for block in blocks]
    both = (blocks[0] if single else blocks, x)
    features_first = graphs is not None and next(iter(parameters)) != graphs
    return (both[::-1] if features_first else both), given


def _edge_columns(blocks: list[Any]) -> list[str]:
    """Names of the edge data of DGL blocks beyond ids and the fields of the library's blocks."""
    known = ("_ID", "_TYPE", "edge_weight", "edge_weights")
    columns = [block._edge_frames[0]._columns.keys() for block in blocks]
    return [name for name in columns[0] if name not in known and all(name in others for others in columns)]


def _matched(
    parameters: Mapping[str, inspect.Parameter], missing: Iterable[str], found: Collection[str]
) -> dict[str, str]:
    """Match parameters without a value to edge data by name; a single required one to the only data left."""
    matched = {name: name for name in missing if name in found}
    required = [name for name in missing if name not in matched and _is_required(parameters[name])]
    left = [name for name in found if name not in matched]
    if len(required) == len(left) == 1:
        matched[required[0]] = left[0]
    return matched


def _adjs_call(parameters: Mapping[str, inspect.Parameter], mb: MiniBatch, x: Any) -> Call:
    adjs = layers_to_pyg(mb.blocks)["adjs"]  # without the form of hops, which to_pyg adds to batches that allow it
    values = {"edge_weight": [block.edge_weight for block in mb.blocks]}
    values |= {"edge_type": [block.edge_type for block in mb.blocks]}
    given = {name: value for name, value in values.items() if name in parameters and value[0] is not None}
    given |= {name: getattr(mb, name) for name in BATCH_ARGUMENTS if name in parameters}
    given |= {_features(parameters): x, "adjs": adjs}
    rows = edge_rows(mb)
    given |= {name: rows[of]() for name, of in _matched(parameters, _missing(parameters, given), rows).items()}
    return (), given | _node_arguments(parameters, given, mb)


def _pyg_call(parameters: Mapping[str, inspect.Parameter], mb: MiniBatch, x: Any) -> Call:
    check_one_sample_per_node(mb)
    batch = mb.to_pyg()
    names = ("edge_weight", "edge_type", "e_id", "n_id", "batch_size")  # PyG does not store None
    values = {name: getattr(batch, name, None) for name in names}
    values |= {name: getattr(mb, name) for name in BATCH_ARGUMENTS}
    for name in ("num_sampled_nodes", "num_sampled_edges"):
        values |= {name: getattr(batch, name), f"{name}_per_hop": getattr(batch, name)}
    filled = ("edge_weight", "edge_type", *BATCH_ARGUMENTS)  # other ones only if the model requires them
    given = {
        name: value
        for name, value in values.items()
        if name in parameters and value is not None and (name in filled or _is_required(parameters[name]))
    }
    given |= {_features(parameters): x, "edge_index": batch.edge_index}
    rows = edge_rows(mb)
    given |= {name: rows[of]()[0] for name, of in _matched(parameters, _missing(parameters, given), rows).items()}
    return (), given | _node_arguments(parameters, given, mb)


def _missing(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> list[str]:
    """Names of parameters without a value."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, p in parameters.items() if name not in given and p.kind not in variadic]


def _node_arguments(
    parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any], mb: MiniBatch
) -> dict[str, Any]:
    """Node-level attributes of a PyG batch that the model requires."""
    required = [name for name in _missing(parameters, given) if _is_required(parameters[name])]
    return {name: rows() for name, rows in node_rows(mb).items() if name in required}


def _features(parameters: Mapping[str, inspect.Parameter]) -> str:
    """The parameter of the features: `x`, or else the first one."""
    return "x" if "x" in parameters else next(iter(parameters))


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty


def of_seeds(out: Any, mb: MiniBatch) -> Any:
    """Return the seeds' rows of an output with a row per node of the batch.

    Args:
        out: the output, or several.
        mb: the batch.
    """
    if isinstance(out, tuple | list):
        return type(out)(of_seeds(value, mb) for value in out)
    return out[: mb.num_seeds] if isinstance(out, Tensor) and out.dim() and len(out) > mb.num_seeds else out


def check_one_sample_per_node(mb: MiniBatch) -> None:
    """Check that every node has the same in-edges in all layers, as an `edge_index` for all layers requires.

    Args:
        mb: the batch.

    Raises:
        ValueError: A node has a sample per layer.
    """
    if not has_one_sample_per_node(mb.blocks):
        raise ValueError(
            "the model takes one edge_index for all layers, which is exact only if a node has the same in-edges in "
            "each, but this batch has a sample per layer: before the split, let every node keep one, "
            'MiniBatch.from_pyg(batch.to_pyg(form="edge_index")); or pass a batch of PyG\'s NeighborLoader or of '
            "FullNeighborSampler, or write forward(x, adjs) with one (edge_index, e_id, size) per layer"
        )
