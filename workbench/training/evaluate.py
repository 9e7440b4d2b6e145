"""Evaluation over all neighbours, layer by layer: every node's hidden row is computed once, however many need it."""

import copy
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from workbench.core.dataset import Dataset
from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.nn.call import model_device
from workbench.nn.losses import check_classes
from workbench.nn.model import GNN
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training.rows import check_covers, read_rows

CHUNK_EDGES = 1 << 20
"""In-edges of the destinations that are computed at a time, unless one destination alone has more."""

Read = Callable[[Tensor], Tensor]
M = TypeVar("M", bound=nn.Module)


def full_neighbour_logits(
    model: nn.Module, graph: Graph, x: object, *, nodes: Tensor | None = None, chunk_edges: int = CHUNK_EDGES
) -> Tensor:
    """The model's outputs with all in-neighbours in every layer, in evaluation mode, without gradients.

    They are those of the model on a batch of `FullNeighborSampler`, up to rounding. The rows of one layer are computed
    for all nodes that the next ones read, then those of the next layer. On the model's device lie the edges and rows of
    one chunk of destinations; the rows of a whole layer stay where the graph is.

    Args:
        model: of `workbench.build_model`, with as many layers as hops are read.
        graph: on any device.
        x: features [num_nodes, in_dim] by raw-graph id: a tensor, an array or anything with `.read(ids)`.
        nodes: int64 or int32 ids to compute, each once; None: all.
        chunk_edges: in-edges and destinations that are computed at a time; a chunk exceeds it by those of its last
            destination at most.

    Returns:
        [nodes, out_dim] in the order of `nodes`, in the model's dtype, on the graph's device.

    Raises:
        TypeError: a model of another kind, or ids of another dtype.
        ValueError: ids that stand twice, no edges a chunk, or a layer whose rows depend on the batch (GCN with norm
            "both").
        IndexError: ids out of range, or features that end before them.
    """
    check_at_least("chunk_edges", chunk_edges, 1, most=INT64_MAX)
    check_type("graph", graph, Graph, "pass a Graph (workbench.core.interop makes one of DGL's and PyG's)")
    gnn = _layered(model)
    every = torch.arange(graph.num_nodes, device=graph.indices.device)
    check_covers("x", x, every)
    if nodes is None:
        wanted = [every] * len(gnn.layers)
    else:
        nodes = check_ids("nodes", nodes, graph.num_nodes, unique=True).to(every.device)
        wanted = _reached(graph, nodes, len(gnn.layers), chunk_edges)

    read: Read = partial(read_rows, x)
    rows = torch.empty(0)
    gnn, gradients = _evaluating(gnn), torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)
        for layer, ids in enumerate(wanted):
            rows = _rows_of(gnn, layer, graph, ids, read, chunk_edges)
            read = _by_id(rows, ids, every)
    finally:  # torch.no_grad is left in Python, where an interrupt could come first
        torch._C._set_grad_enabled(gradients)
    return rows


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of the labelled nodes whose largest output is that of their class.

    Args:
        logits: floating [nodes, classes]; of equal outputs the first counts.
        y: integer [nodes], −1 for no label.

    Raises:
        TypeError: several labels a node, or no tensors.
        ValueError: another number of rows, or no labels.
        IndexError: a class that no output stands for.

    Warns:
        RuntimeWarning: outputs that are NaN, which count as wrong.
    """
    for name, values in (("logits", logits), ("y", y)):
        check_type(name, values, Tensor, f"pass torch.as_tensor({name})")
    if y.is_floating_point():
        raise TypeError(f"y is {y.dtype}: several labels a node have no accuracy; pass one class a node, as integers")
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
    undefined = largest.isnan()  # which torch takes as the largest, so that the first column would win
    if bool(undefined.any()):
        warnings.warn(
            f"logits are NaN at {int(undefined.sum())} of {len(undefined)} labelled nodes, which count as wrong; the "
            "training diverged (lower the learning rate) or features are not finite",
            RuntimeWarning,
            stacklevel=2,
        )
    return float(((predicted == y[labelled]) & ~undefined).double().mean())


def split_accuracies(model: nn.Module, data: Dataset, *, chunk_edges: int = CHUNK_EDGES) -> dict[str, float]:
    """Accuracy on each part of a data set's split, over all neighbours.

    Args:
        model: see `full_neighbour_logits`.
        data: with a class for every node of its split.
        chunk_edges: see `full_neighbour_logits`.

    Returns:
        `train_accuracy`, `val_accuracy` and `test_accuracy`, without those of parts that have no nodes.
    """
    parts = {"train": data.train_idx, "val": data.val_idx, "test": data.test_idx}
    parts = {name: ids for name, ids in parts.items() if len(ids)}
    nodes = torch.cat(list(parts.values()))
    logits = full_neighbour_logits(model, data.graph, data.x, nodes=nodes, chunk_edges=chunk_edges)
    outputs = logits.split([len(ids) for ids in parts.values()])
    return {f"{name}_accuracy": accuracy(out, data.y[parts[name]]) for name, out in zip(parts, outputs, strict=True)}


def _layered(model: nn.Module) -> GNN:
    """The model, if its layers can be run one by one over parts of a batch."""
    if not isinstance(model, GNN):
        raise TypeError(
            f"model is a {type(model).__name__}; pass one of workbench.build_model (the .module of a wrapper), or call "
            "yours on batches of FullNeighborSampler"
        )
    for position, layer in enumerate(model.layers):
        if getattr(layer, "norm", None) == "both":
            raise ValueError(
                f"layer {position} divides by out-degrees in the batch, so its rows differ from chunk to chunk; put "
                'the normalisers into the graph\'s edge_weight and use norm="none"'
            )
    return model


def _chunks(graph: Graph, ids: Tensor, chunk_edges: int) -> Iterator[MiniBatch]:
    """Batches of one layer, for destinations in order; one, without any, where there are no ids."""
    sampler = FullNeighborSampler(1)
    cost = graph.indptr[ids + 1] - graph.indptr[ids] + 1
    place = (cost.cumsum(0) - cost) // chunk_edges
    sizes = torch.unique_consecutive(place, return_counts=True)[1].tolist() or [0]
    for chunk in ids.split(sizes):
        yield sampler.sample(graph, chunk)


def _reached(graph: Graph, nodes: Tensor, num_layers: int, chunk_edges: int) -> list[Tensor]:
    """Ids whose rows each layer must compute, input layer first."""
    wanted = [nodes]
    for _ in range(num_layers - 1):
        reached = torch.zeros(graph.num_nodes, dtype=torch.bool, device=nodes.device)
        for chunk in _chunks(graph, wanted[0], chunk_edges):
            reached[chunk.node_ids] = True
        wanted.insert(0, reached.nonzero()[:, 0])
    return wanted


def _rows_of(model: GNN, layer: int, graph: Graph, ids: Tensor, read: Read, chunk_edges: int) -> Tensor:
    """What a layer gives for some nodes."""
    device = model_device(model) or ids.device
    rows, done = torch.empty(0), 0
    for chunk in _chunks(graph, ids, chunk_edges):
        h = read(chunk.node_ids).to(device)
        if not layer:
            model.check_features(h)
        out = model._between(layer, model.layers[layer](chunk.blocks[0].to(device), h), None, 0)
        if not done:  # the first chunk says how wide rows are
            rows = torch.empty(len(ids), out.shape[1], dtype=out.dtype, device=ids.device)
        rows[done : done + len(out)] = out
        done += len(out)
    return rows


def _by_id(rows: Tensor, ids: Tensor, every: Tensor) -> Read:
    """A function that reads rows by raw-graph id."""
    if ids is every:
        return lambda wanted: rows.index_select(0, wanted)
    place = torch.zeros_like(every)
    place[ids] = torch.arange(len(ids), device=ids.device)
    return lambda wanted: rows.index_select(0, place[wanted])


def _evaluating(module: M) -> M:
    """The module in evaluation mode: a copy that shares all but the modes, so that nothing has to be put back."""
    twin = copy.copy(module)
    twin.training = False
    twin._modules = {name: child and _evaluating(child) for name, child in module._modules.items()}
    return twin
