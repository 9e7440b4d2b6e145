"""Evaluation of a model on all in-neighbours: its outputs, and the accuracy of its predictions."""

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.dataset import Dataset
from workbench.core.errors import (
    INT64_MAX,
    check_at_least,
    check_choice,
    check_ids,
    check_type,
    complete_despite_interrupt,
)
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import MappedRows, as_store, check_covers, open_rows
from workbench.features.stage import StagedRows
from workbench.kernels.buffers import downloaded, to_device
from workbench.kernels.relabel import IdIndex
from workbench.nn.gnn import GNN
from workbench.nn.losses import Inputs, check_classes
from workbench.nn.signature import Forward, default_forward, model_device
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training.aggregated_rows import AggregatedRows
from workbench.training.arguments import check_halo, check_model

M = TypeVar("M", bound=nn.Module)

CHUNK_EDGES = 1 << 20
"""Default number of in-edges and destinations per chunk; a single destination may have more."""


def full_neighbour_logits(
    model: nn.Module,
    graph: Graph,
    x: Any,
    *,
    nodes: Tensor | None = None,
    chunk_edges: int = CHUNK_EDGES,
    folder: str | os.PathLike[str] | None = None,
) -> Tensor:
    """Compute the model's outputs with all in-neighbours in every layer, in evaluation mode, without gradients.

    They equal the model's outputs on a batch of `FullNeighborSampler`, up to rounding. The outputs of one layer are
    computed for all nodes that later layers read, then those of the next layer. Edges and features of one chunk of
    destinations are on the model's device; the outputs of a whole layer are on the graph's device.

    Args:
        model: a model from `workbench.build_model`, with one layer per hop.
        graph: the graph, on any device.
        x: features [num_nodes, in_dim] by raw-graph id: a tensor, an array or an object with `.read(ids)`; or
            `AggregatedRows`, from which the first layer is computed without its edges.
        nodes: int64 or int32 [nodes] ids without duplicates; None for all nodes.
        chunk_edges: number of in-edges and destinations computed at a time, which a chunk exceeds by at most those of
            its last destination.
        folder: where the outputs of every layer are written and memory-mapped, as for `workbench.training.layerwise`;
            None: outputs are in memory. Not with `AggregatedRows`.

    Returns:
        [nodes, out_dim] in the order of `nodes`, in the model's dtype, on the graph's device.

    Raises:
        TypeError: `model` or `graph` has another type, or `nodes` another dtype.
        ValueError: `nodes` contains duplicates, `chunk_edges` is below 1, or the outputs of a layer depend on the batch
            (GCN with norm "both").
        IndexError: An id is out of range, or `x` has too few rows.
    """
    layers, options = layers_of(model), {"chunk_edges": chunk_edges, "device": model_device(model)}
    if not isinstance(x, AggregatedRows):
        return layerwise(graph, x, layers, nodes=nodes, folder=folder, **options)
    if folder is not None:
        raise ValueError("folder is given with AggregatedRows, whose first layer is kept in memory; pass folder=None")
    check_type("graph", graph, Graph, "pass a Graph")
    ids = nodes if nodes is None else required_ids(graph, nodes, len(layers), chunk_edges)[0]
    first = layerwise(_without_edges(graph), x, [partial(_first_output, in_eval_mode(model))], nodes=ids, **options)
    if len(layers) == 1:
        return first
    hidden = first if ids is None else StagedRows(IdIndex([ids], graph.num_nodes), first)
    return layerwise(graph, hidden, layers[1:], nodes=nodes, **options)


Layer = Callable[[Any, Any], Tensor]


def layers_of(model: nn.Module) -> list[Layer]:
    """The layers of a model in evaluation mode, as `workbench.training.layerwise` calls them; the model's modes don't
    change.

    Raises:
        TypeError: another model.
        ValueError: the outputs of a layer depend on the batch (GCN with norm "both").
    """
    gnn = in_eval_mode(_layered(model))
    return [partial(_layer_output, gnn, position) for position in range(len(gnn.layers))]


def accuracy(logits: Tensor, y: Any, *, nodes: Tensor | None = None) -> float:
    """Fraction of the labelled nodes whose largest output is that of their class.

    Args:
        logits: floating [nodes, classes]; the first of several equal outputs is the prediction. Classes may be excluded
            by −∞.
        y: integer classes, −1 for unlabelled nodes: a tensor [nodes] in the order of `logits`; with `nodes`, a tensor,
            an array or a feature store by raw-graph id.
        nodes: int64 or int32 [nodes], raw-graph id of each row of `logits`; None if `y` is in their order.

    Raises:
        TypeError: An argument is not a tensor, or `y` is floating (several labels per node).
        ValueError: The shapes do not match, or no node has a label.
        IndexError: A class is not below the number of outputs, or a node has no row in `y`.

    Warns:
        RuntimeWarning: Nodes with an output of NaN or +∞, or with outputs of −∞ alone; they count as wrong.
    """
    if nodes is not None:
        y = as_store(y, "y").read(nodes)
    check_type("logits", logits, Tensor, "pass torch.as_tensor(logits)")
    check_type("y", y, Tensor, "pass torch.as_tensor(y), or say with nodes= which rows of a store to read")
    if y.is_floating_point():
        raise TypeError(f"y is {y.dtype}: accuracy is undefined for multi-labels; pass one integer class per node")
    if logits.dim() != 2 or logits.shape[:1] != y.shape:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and y {tuple(y.shape)}; pass [nodes, classes] and [nodes] "
            "(labels of shape [nodes, 1] as y[:, 0])"
        )
    labelled = y >= 0
    if not bool(labelled.any()):
        raise ValueError(f"none of {len(y)} nodes has a label; pass nodes with y of 0 or more")
    check_classes(y[labelled], logits.shape[1], "logits have {} columns")
    largest, predicted = (values.to(y.device)[labelled] for values in logits.max(1))
    undefined = ~largest.isfinite()  # torch predicts the first of several NaN or infinite outputs, often class 0
    if bool(undefined.any()):
        warnings.warn(
            f"the largest logit is NaN or infinite at {int(undefined.sum())} of {len(undefined)} labelled nodes, which "
            f"count as wrong; training diverged (lower the learning rate), features are not finite, or {logits.dtype} "
            "overflows (compute logits in float32)",
            RuntimeWarning,
            stacklevel=2,
        )
    return float(((predicted == y[labelled]) & ~undefined).double().mean())


def majority_accuracy(y: Tensor) -> float:
    """Accuracy of a prediction of the most frequent class for every node, which training must exceed.

    Args:
        y: integer classes [nodes], −1 for unlabelled nodes.

    Raises:
        ValueError: No node has a label.

    >>> majority_accuracy(torch.tensor([0, 2, 2, -1]))
    0.6666666666666666
    """
    counts = torch.bincount(y[y >= 0])
    if not len(counts):
        raise ValueError(f"none of {len(y)} nodes has a label; pass nodes with y of 0 or more")
    return float(counts.max()) / float(counts.sum())


def roc_auc(scores: Tensor, y: Tensor) -> float:
    """Area under the ROC curve: how often a node of class 1 has a higher score than one of class 0, ties half.

    Args:
        scores: floating [nodes], finite.
        y: 0 or 1, [nodes], −1 for unlabelled nodes.

    Raises:
        ValueError: The shapes do not match, a score is not finite, or a class has no node.

    Source: Hanley and McNeil, The meaning and use of the area under a ROC curve (Radiology, 1982).

    >>> roc_auc(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    if scores.dim() != 1 or scores.shape != y.shape:
        raise ValueError(f"scores have shape {tuple(scores.shape)} and y {tuple(y.shape)}; pass [nodes] both")
    scores, y = scores[y >= 0].double(), y[y >= 0]
    if not bool(scores.isfinite().all()):
        raise ValueError(
            f"{int((~scores.isfinite()).sum())} of {len(scores)} scores are NaN or infinite; they have no rank"
        )
    positive = int((y == 1).sum())
    negative = len(y) - positive
    if not positive or not negative or positive + int((y == 0).sum()) < len(y):
        found = y.unique().tolist()
        raise ValueError(f"y has the classes {found[:10]}; an area needs nodes of class 0, of class 1 and no others")
    _, group, sizes = scores.unique(return_inverse=True, return_counts=True)
    ranks = (sizes.cumsum(0) - (sizes - 1) / 2)[group]  # the mean rank of equal scores
    return float((ranks[y == 1].sum() - positive * (positive + 1) / 2) / (positive * negative))


def split_accuracies(model: nn.Module, data: Dataset, *, chunk_edges: int = CHUNK_EDGES) -> dict[str, float]:
    """Accuracy on each part of a data set's split, with all neighbours.

    Returns:
        `train_accuracy`, `val_accuracy` and `test_accuracy`, without those of parts that have no label.

    Raises:
        ValueError: no part has a label.
    """
    parts = {"train": data.train_idx, "val": data.val_idx, "test": data.test_idx}
    parts = {name: ids for name, ids in parts.items() if bool((data.y[ids] >= 0).any())}
    if not parts:
        raise ValueError("no node of train_idx, val_idx or test_idx has a label; pass y with classes of some")
    nodes = torch.cat(list(parts.values()))
    logits = full_neighbour_logits(model, data.graph, data.x, nodes=nodes, chunk_edges=chunk_edges)
    outputs = logits.split([len(ids) for ids in parts.values()])
    return {f"{name}_accuracy": accuracy(out, data.y[parts[name]]) for name, out in zip(parts, outputs, strict=True)}


def _layered(model: nn.Module) -> GNN:
    """The model, if its layers can be run separately on chunks of destinations."""
    if not isinstance(model, GNN):
        raise TypeError(
            f"model is a {type(model).__name__}; pass a model from workbench.build_model (the .module of a wrapper), "
            "or call workbench.training.layerwise(graph, x, layers) with one function per layer of yours"
        )
    for position, layer in enumerate(model.layers):
        if getattr(layer, "norm", None) == "both":
            raise ValueError(
                f"layer {position} normalises by out-degrees within the batch, so its outputs depend on the chunk; put "
                'the normalisers into the graph\'s edge_weight and use norm="none"'
            )
    return model


def _layer_output(model: GNN, layer: int, block: Block, h: Tensor) -> Tensor:
    if not layer:
        model.check_features(h)
    return model._activate(layer, model.layers[layer](block, h), None, 0)


def _first_output(model: Any, block: Block, rows: Inputs) -> Tensor:
    """Output of the first layer for nodes whose aggregates are known."""
    model.check_features(rows.x)
    return model._activate(0, model.layers[0].update(rows.x, rows.aggregated), None, 0)


def _without_edges(graph: Graph) -> Graph:
    return Graph(torch.zeros_like(graph.indptr), graph.indices[:0])


def in_eval_mode(module: M) -> M:
    """A copy of the module in evaluation mode that shares everything but the modes, so nothing must be restored."""
    view = copy.copy(module)
    view.training = False
    view._modules = {name: child and in_eval_mode(child) for name, child in module._modules.items()}
    return view


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set all modules to evaluation mode meanwhile, whatever calls them: compiled, in lists, or by a closure."""
    modes = [(module, module.training) for module in model.modules()]

    def restore() -> None:
        for module, mode in modes:
            module.training = mode

    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        complete_despite_interrupt(restore)


def sampled_logits(
    model: nn.Module, batches: Iterable[Any], x: Any = None, *, forward: Forward | None = None
) -> tuple[Tensor, Tensor]:
    """Compute a model's outputs for the seeds of sampled batches, in evaluation mode, without gradients.

        order = wb.outofcore.node_order(p, c, p)  # all partitions have nodes to evaluate
        batches = wb.outofcore.batches(buffer, order, test_ids, sampler=sampler, batch_size=1000, epoch=0)
        seeds, logits = wb.sampled_logits(model, batches)
        wb.accuracy(logits, y, nodes=seeds)

    Args:
        model: a module that `workbench.train_step` can call; its modes are restored at the end.
        batches: yields (step, batch), as `workbench.batches`, or (state, step, batch), as
            `workbench.outofcore.batches`, whose features are read from the state's rows: no other row is in memory.
        x: features by raw-graph id: a tensor, an array or an object with `.read(ids)`; None: the rows of each state.
        forward: calls the model with a batch and its `Inputs`, as for `workbench.accumulate`; None for the default.

    Returns:
        The seeds, int64 [n], in the order of the batches, and their outputs [n, …], on the CPU.

    Raises:
        TypeError: a batch of another form, or `x` is missing where batches come without rows.
        ValueError: there are no batches.
    """
    check_model(model)
    call, device = forward or default_forward(model), model_device(model) or torch.device("cpu")
    shared = None if x is None else as_store(x, "x")
    seeds: list[Tensor] = []

    def output_of(item: Any) -> Tensor:
        *others, mb = item if isinstance(item, tuple) else (item,)
        check_type("a batch", mb, MiniBatch, "pass wb.batches(…) or wb.outofcore.batches(…)")
        check_halo([mb], forward)
        rows = shared or getattr(others[0] if others else None, "rows", None)
        if rows is None:
            raise TypeError(
                "x is None, and the batches come without rows; pass the features, or wb.outofcore.batches(…)"
            )
        seeds.append(mb.seeds.cpu())
        with torch.no_grad():
            return call(mb.to(device), Inputs.of(rows.read(mb.node_ids)).to(device))

    with evaluating(model):
        outputs = list(downloaded(map(output_of, batches)))
    if not seeds:
        raise ValueError("there are no batches; pass at least one")
    return torch.cat(seeds), torch.cat(outputs)


Read = Callable[[Tensor], Tensor]


def layerwise(
    graph: Graph,
    x: Any,
    layers: Sequence[Layer],
    *,
    nodes: Tensor | None = None,
    form: str = "block",
    chunk_edges: int = CHUNK_EDGES,
    device: torch.device | str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Tensor:
    """Compute the outputs of a model of one's own with all in-neighbours in every layer, without gradients.

    The outputs of one layer are computed for all nodes that later layers read, chunk by chunk, then those of the next
    layer. Put modules into evaluation mode before (`model.eval()`).

        wb.training.layerwise(graph, x, [lambda block, h: conv1(block, h).relu(), conv2], form="dgl")

    Args:
        graph: the graph, on any device.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or an object with `.read(ids)`.
        layers: one function per layer, input layer first, with everything that belongs to it (activation, norm): from a
            block and the features of its sources to the outputs [num_dst, …] of its destinations. A layer's output for
            a node must not depend on the other nodes of the chunk.
        nodes: int64 or int32 [nodes] ids without duplicates; None for all nodes.
        form: what the functions accept: "block", `(block, h)` with a `Block`; "dgl", `(block, h)` with a DGL block;
            "pyg", `((h, h of the destinations), edge_index)`.
        chunk_edges: number of in-edges and destinations computed at a time, which a chunk exceeds by at most those of
            its last destination.
        device: where layers run; None: that of the first layer that is a module with parameters, else the graph's.
        folder: where the outputs of every layer are written (`layer0`, …; those of an earlier call are replaced), to be
            memory-mapped: with a graph and features from files, memory is proportional to a chunk and the nodes. None:
            outputs are in memory.

    Returns:
        [nodes, …] in the order of `nodes`, on the graph's device; with `folder`, memory-mapped on the CPU.

    Raises:
        TypeError: `graph` has another type, `nodes` another dtype, or a layer returns no tensor.
        ValueError: `nodes` contains duplicates, there are no layers, a layer returns another number of rows, or an
            option is invalid.
        IndexError: An id is out of range, or `x` has too few rows.
    """
    check_at_least("chunk_edges", chunk_edges, 1, most=INT64_MAX)
    check_type("graph", graph, Graph, "pass a Graph (workbench.interop makes one of DGL's and PyG's)")
    check_choice("form", form, _FORMS)
    layers, arguments = _checked(layers), _FORMS[form]
    all_ids = torch.arange(graph.num_nodes, device=graph.indices.device)
    on = torch.device(device) if device is not None else _device_of(layers) or all_ids.device
    store = as_store(x)
    check_covers("x", store, all_ids)
    if nodes is None:
        ids_per_layer = [all_ids] * len(layers)
    else:
        nodes = check_ids("nodes", nodes, graph.num_nodes, unique=True).to(all_ids.device)
        ids_per_layer = required_ids(graph, nodes, len(layers), chunk_edges)

    read: Read = store.read
    out, grad_was_enabled = torch.empty(0), torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)
        for number, (layer, ids) in enumerate(zip(layers, ids_per_layer, strict=True)):
            chunks = _chunks(graph, ids, chunk_edges)
            outputs = (_outputs(layer, arguments, chunk.to(on), _moved(read(chunk.node_ids), on)) for chunk in chunks)
            outputs = outputs if folder is None and ids.is_cuda else downloaded(outputs)
            if folder is None:
                out = _gathered(outputs, len(ids), ids.device)
            else:
                out = _written(outputs, Path(folder) / f"layer{number}")
            read = _reader(out, ids, all_ids)
    finally:  # in one C call; torch.no_grad exits in Python code, which an interrupt could precede
        torch._C._set_grad_enabled(grad_was_enabled)
    return out


def _moved(rows: Any, device: torch.device) -> Any:
    """Copy rows, or `Inputs`, to a device."""
    return to_device(rows, device) if isinstance(rows, Tensor) else rows.to(device)


_FORMS: dict[str, Callable[[Block, Tensor], tuple[Any, Any]]] = {
    "block": lambda block, h: (block, h),
    "dgl": lambda block, h: (MiniBatch(torch.arange(block.num_src, device=h.device), (block,)).to_dgl()[0], h),
    "pyg": lambda block, h: ((h, h[: block.num_dst]), torch.stack([block.indices.long(), block.destinations.long()])),
}


def _checked(layers: Any) -> list[Layer]:
    check_type("layers", layers, Sequence | nn.ModuleList, "pass a list of functions, one per layer: [layer1, layer2]")
    if not len(layers):
        raise ValueError("layers is empty; pass one function per layer")
    for position, layer in enumerate(layers):
        if not callable(layer):
            raise TypeError(f"layers[{position}] is a {type(layer).__name__}; pass a function of (block, h)")
    return list(layers)


def _device_of(layers: Sequence[Any]) -> torch.device | None:
    modules = [layer for layer in layers if isinstance(layer, nn.Module)]
    return next((device for module in modules if (device := model_device(module)) is not None), None)


def _chunks(graph: Graph, ids: Tensor, chunk_edges: int) -> Iterator[MiniBatch]:
    """One-layer batches of consecutive destinations; a single empty one if there are no ids."""
    sampler = FullNeighborSampler(1)
    cost = graph.indptr[ids + 1] - graph.indptr[ids] + 1
    chunk_of_id = (cost.cumsum(0) - cost) // chunk_edges
    sizes = torch.unique_consecutive(chunk_of_id, return_counts=True)[1].tolist() or [0]
    for chunk in ids.split(sizes):
        yield sampler.sample(graph, chunk)


def required_ids(graph: Graph, nodes: Tensor, num_layers: int, chunk_edges: int) -> list[Tensor]:
    """Ids for which each layer must compute outputs, input layer first: `nodes` for the last, ascending for others."""
    required = [check_ids("nodes", nodes, graph.num_nodes, unique=True).to(graph.indices.device)]
    for _ in range(num_layers - 1):
        is_source = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.indices.device)
        for chunk in _chunks(graph, required[0], chunk_edges):
            is_source[chunk.node_ids] = True
        required.insert(0, is_source.nonzero()[:, 0])
    return required


def _outputs(layer: Layer, arguments: Callable[..., tuple[Any, Any]], chunk: MiniBatch, h: Tensor) -> Tensor:
    out = layer(*arguments(chunk.blocks[0], h))
    check_type("the output of a layer", out, Tensor, "return one tensor with a row per destination")
    if out.dim() == 0 or len(out) != chunk.num_seeds:
        raise ValueError(
            f"a layer returned shape {tuple(out.shape)} for {chunk.num_seeds} destinations; return a row for each"
        )
    return out


def _gathered(outputs: Iterator[Tensor], num_rows: int, device: torch.device) -> Tensor:
    """Concatenate the outputs of chunks, which are not kept beside the result."""
    rows, done = torch.empty(0), 0
    for out in outputs:
        if not done:  # the first chunk determines the width
            rows = torch.empty(num_rows, *out.shape[1:], dtype=out.dtype, device=device)
        rows[done : done + len(out)] = out
        done += len(out)
    return rows


def _written(outputs: Iterator[Tensor], folder: Path) -> Tensor:
    """Write the outputs of chunks, which are on the host, to a file and map it."""
    MappedRows.create(folder, outputs, overwrite=True)
    return open_rows(folder)


def _reader(rows: Tensor, ids: Tensor, all_ids: Tensor) -> Read:
    """A function that reads the rows of `ids` by raw-graph id."""
    if ids is all_ids:
        return lambda requested: rows.index_select(0, requested.to(rows.device))
    row_of_id = torch.zeros_like(all_ids)
    row_of_id[ids] = torch.arange(len(ids), device=ids.device)
    return lambda requested: rows.index_select(0, row_of_id[requested].to(rows.device))
