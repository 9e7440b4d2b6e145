"""The arguments and the device with which a model, the workbench's or the user's, is called."""

import dis
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from workbench.core.minibatch import MiniBatch
from workbench.error_text import line_of, text_of
from workbench.interop.layer_advice import cached_layers
from workbench.interop.pyg import edge_rows, has_one_sample_per_node, layers_to_pyg, node_rows
from workbench.nn.losses import Inputs

Forward = Callable[[MiniBatch, Inputs], Any]
"""Calls a model: maps a micro-batch and its inputs, both on the model's device, to the model's output."""

_MISMATCH_ERRORS = ("shapes cannot be multiplied (", "have the same dtype")  # of torch's matrix products

_FOREIGN_LAYER_ERRORS = ("'Block' object", "'tuple' object", "MessagePassing", "edge_index")

_LIBRARIES = {"dgl": "DGL", "torch_geometric": "PyG"}


def default_forward(model: nn.Module) -> Forward:
    """Return the default call of a model.

    Args:
        model: a model of the library or of the user's own, called as `model(mb.blocks, inputs.x)`, with `node_ids=` and
            `step=` if its `forward` has parameters of these names (or `**kwargs`), and with `aggregated=` if the inputs
            contain an aggregate. Modules with layers of DGL get DGL blocks instead of the library's; modules whose
            `forward` has a parameter `adjs` or `edge_index` are called as PyG's (`workbench.nn.signature`).

    Returns:
        A function that returns the model's output for the seeds. It raises ValueError for features of a dtype or width
        that a matrix product of the model refuses, and for a batch with a sample per layer if the model takes one
        `edge_index` for all; TypeError if the model can't be called like this.

    Raises:
        ValueError: a layer has `cached=True`.
    """
    refuse_cached(model)
    return partial(_call, model, convention_of(_unwrapped(model)))


def possible_forwards(model: nn.Module) -> Iterator[Forward]:
    """Yield the default call of a model, then calls with the arguments in other orders and formats that it may accept.

    Args:
        model: as in `default_forward`.
    """
    convention = convention_of(_unwrapped(model))
    yield partial(_call, model, convention)
    for other in other_conventions(_unwrapped(model)):
        if other.name != convention.name:
            yield partial(_call, model, other)


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


def refuse_cached(model: nn.Module) -> None:
    """Refuse a model with a layer that keeps what it computes from its first batch.

    Raises:
        ValueError: a layer has `cached=True`.
    """
    for name, layer in cached_layers(model):
        raise ValueError(
            f"{type(layer).__name__} ({name}) has cached=True: it would keep what it computes from the edges of its "
            "first batch and use it for every other one; build it with cached=False"
        )


def _call(model: nn.Module, convention: Convention, mb: MiniBatch, inputs: Inputs) -> Any:
    x = inputs.x
    positional, given = convention.arguments(mb, x)
    if inputs.aggregated is not None:
        given["aggregated"] = inputs.aggregated
    try:
        return convention.outputs(model(*positional, **given), mb)
    except (AttributeError, TypeError, ValueError) as error:
        remedy = _diagnose(model, convention, positional, given, text_of(error))
        if remedy is None:
            raise
        raise TypeError(f"{remedy}. It raised {line_of(error)}") from error
    except RuntimeError as error:
        if not any(text in text_of(error) for text in _MISMATCH_ERRORS) or not isinstance(x, Tensor):
            raise
        dtype = next((p.dtype for p in model.parameters()), None)
        raise ValueError(
            f"{type(model).__name__} with parameters of {dtype} failed on features of {x.dtype} {tuple(x.shape)}: "
            f"{text_of(error)}; convert them, x.to({dtype}), and build the model for their width"
        ) from error


def _diagnose(
    model: nn.Module, convention: Convention, positional: tuple[Any, ...], given: dict[str, Any], error: str
) -> str | None:
    """Explain why the model can't be called like this; None: its own code failed."""
    for module in model.modules() if convention.name == "blocks, x" else ():
        library = _LIBRARIES.get(type(module).__module__.partition(".")[0])
        if library is not None and any(text in error for text in _FOREIGN_LAYER_ERRORS):
            return (
                f"{type(module).__name__} is a layer of {library}, which does not accept the workbench's blocks: write "
                "forward(x, adjs) or forward(x, edge_index) for PyG's layers, forward(blocks, x) without the library's "
                "layers for DGL's, or split its loader's batches with micro_batches and call it yourself"
            )
    try:
        inspect.signature(model.forward).bind(*positional, **given)
    except TypeError:
        arguments = inspect.signature(model.forward)
        names = convention.name.split(", ") if positional else []
        passed = ", ".join((*names, *(f"{name}=" for name in given)))
        return (
            f"{type(model).__name__}.forward{arguments} can't be called with ({passed}); add these parameters, or pass "
            "forward=lambda mb, inputs: …, which calls it as it is"
        )
    return None


def model_device(model: nn.Module) -> torch.device | None:
    """Return the device of the first parameter or buffer; None for a model without any."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return None if first is None else first.device


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers of torch."""
    while (inner := _wrapped(model, inspect.signature(model.forward).parameters)) is not None:
        model = inner
    return model


def _wrapped(model: nn.Module, parameters: Any) -> nn.Module | None:
    """Return the module inside torch.compile's or a data-parallel wrapper, which forwards all arguments."""
    if hasattr(model, "_orig_mod"):
        return model._orig_mod  # pyright: ignore[reportReturnType]
    forwards_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    inner = getattr(model, "module", None)
    return inner if forwards_all and isinstance(inner, nn.Module) else None


BATCH_ARGUMENTS = ("node_ids", "step")

_ONE_BLOCK = ("block", "mfg", "bipartite", "graph", "g")

_BLOCKS = ("blocks", "mfgs", "bipartites", "graphs")

_WEIGHTS = ("edge_weight", "edge_weights", "eweight")

_TYPES = ("edge_type", "edge_types", "etype", "etypes")

# Names that a module's forward uses: attributes of the library's blocks, or of DGL's.
_OF_BLOCKS = {"indptr", "destinations", "num_src", "num_dst", "edge_ids", "to_dgl", "to_pyg", "MiniBatch"}

_OF_DGL = {"local_scope", "local_var", "srcdata", "dstdata", "edata", "update_all", "apply_edges"}


_OF_DGL |= {"num_src_nodes", "num_dst_nodes", "number_of_src_nodes", "number_of_dst_nodes"}


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
    """Return the seeds' rows of an output of any structure with a row per node of the batch."""

    def cut(rows: Tensor) -> Tensor:
        return rows[: mb.num_seeds] if rows.dim() and len(rows) > mb.num_seeds else rows

    return tree_map_only(Tensor, cut, out)


def check_one_sample_per_node(mb: MiniBatch) -> None:
    """Check that every node has the same in-edges in all layers, as an `edge_index` for all layers requires.

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


def other_conventions(model: nn.Module) -> Iterator[Convention]:
    """Yield calls of a model with two arguments, or a batch of PyG alone, that `convention_of` does not choose.

    They are for a trial, which goes on to the next one if a call fails.
    """
    packages = packages_of(model)
    if "torch_geometric" in packages:
        yield Convention("x, edges by position", lambda mb, x: ((x, _edge_index(mb)), {}), of_seeds)
        yield Convention("edges, x by position", lambda mb, x: ((_edge_index(mb), x), {}), of_seeds)
        yield Convention("x, layers by position", lambda mb, x: ((x, mb.to_pyg().adjs), {}))
        yield Convention("x, batch", lambda mb, x: ((x, _pyg_batch(mb, x)), {}), of_seeds)
        yield Convention("batch", lambda mb, x: ((_pyg_batch(mb, x),), {}), of_seeds)
    if "dgl" in packages:
        yield Convention("x, dgl_blocks", lambda mb, x: ((x, mb.to_dgl()), {}))
        yield Convention("dgl_block, x", lambda mb, x: ((_only(mb.to_dgl()), x), {}))
        yield Convention("x, dgl_block", lambda mb, x: ((x, _only(mb.to_dgl())), {}))
        yield Convention("dgl_blocks", lambda mb, _: ((mb.to_dgl(),), {}))
    yield Convention("x, blocks", lambda mb, x: ((x, mb.blocks), {}))


def _only(blocks: list[Any]) -> Any:
    (block,) = blocks
    return block


def _edge_index(mb: MiniBatch) -> Tensor:
    check_one_sample_per_node(mb)
    return mb.to_pyg().edge_index


def _pyg_batch(mb: MiniBatch, x: Any) -> Any:
    """A batch of PyG with its features and all attributes that it carries."""
    batch = mb.to_pyg()
    for name, rows in node_rows(mb).items():
        setattr(batch, name, rows())
    if getattr(batch, "edge_index", None) is not None:
        for name, per_layer in edge_rows(mb).items():
            setattr(batch, name, per_layer()[0])
    batch.x = x
    return batch


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


_THROUGH = ("zip", "enumerate", "len", "reversed", "iter", "list")  # functions that a list of layers is passed to


def names_in(module: nn.Module) -> Iterator[str]:
    """Names of attributes and functions in the code of a user's `forward`."""
    forward = inspect.getattr_static(type(module), "forward", None)  # that of a scripted module can't be read otherwise
    code = getattr(forward, "__code__", None)
    if code is not None and type(module).__module__.partition(".")[0] not in ("torch", "dgl", "torch_geometric"):
        yield from _names_of(code)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def goes_through(model: nn.Module, name: str) -> bool:
    """Whether a module's `forward` iterates over a parameter, or reads it at a position that is not a constant."""
    code = getattr(inspect.getattr_static(type(model), "forward", None), "__code__", None)
    function = None
    instructions = [] if code is None else list(dis.get_instructions(code))
    for this, following in zip(instructions, [*instructions[1:], None], strict=True):
        if this.opname.startswith("LOAD_GLOBAL"):
            function = this.argval
        elif this.opname.startswith("CALL"):
            function = None
        if this.opname.startswith("LOAD_FAST") and this.argval == name and following is not None:
            is_subscript = following.opname.startswith("LOAD_FAST") and _subscripts(instructions, this)
            if following.opname == "GET_ITER" or function in _THROUGH or is_subscript:
                return True
    return False


def _subscripts(instructions: list[dis.Instruction], this: dis.Instruction) -> bool:
    position = instructions.index(this)
    return len(instructions) > position + 2 and instructions[position + 2].opname == "BINARY_SUBSCR"
