"""Layer-wise full-neighbour inference: every node's hidden features are computed once per layer, then shared."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_at_least, check_choice, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.features.mapped_rows import MappedRows, open_rows
from workbench.features.sources import as_store, check_covers
from workbench.nn.signature import model_device
from workbench.sampling.neighbor import FullNeighborSampler

CHUNK_EDGES = 1 << 20
"""Default number of in-edges and destinations per chunk; a single destination may have more."""

Read = Callable[[Tensor], Tensor]
Layer = Callable[[Any, Any], Tensor]


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

        wb.layerwise(graph, x, [lambda block, h: conv1(block, h).relu(), conv2], form="dgl")

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
            outputs = (_outputs(layer, arguments, chunk.to(on), read(chunk.node_ids).to(on)) for chunk in chunks)
            if folder is None:
                out = _gathered(outputs, len(ids), ids.device)
            else:
                out = _written(outputs, Path(folder) / f"layer{number}")
            read = _reader(out, ids, all_ids)
    finally:  # in one C call; torch.no_grad exits in Python code, which an interrupt could precede
        torch._C._set_grad_enabled(grad_was_enabled)
    return out


def _as_block(block: Block, h: Tensor) -> tuple[Any, Any]:
    return block, h


def _as_dgl(block: Block, h: Tensor) -> tuple[Any, Any]:
    return MiniBatch(torch.arange(block.num_src, device=h.device), (block,)).to_dgl()[0], h


def _as_pyg(block: Block, h: Tensor) -> tuple[Any, Any]:
    return (h, h[: block.num_dst]), torch.stack([block.indices.long(), block.destinations.long()])


_FORMS: dict[str, Callable[[Block, Tensor], tuple[Any, Any]]] = {"block": _as_block, "dgl": _as_dgl, "pyg": _as_pyg}


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
    """Ids for which each layer must compute outputs, input layer first.

    Args:
        graph: the graph.
        nodes: int64 or int32 [nodes], the ids whose outputs are asked for, without duplicates.
        num_layers: number of layers.
        chunk_edges: number of in-edges and destinations looked up at a time.

    Returns:
        int64 [any] per layer: `nodes` for the last one, ascending for all others.
    """
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
    """Write the outputs of chunks to a file and map it."""
    MappedRows.create(folder, (out.cpu() for out in outputs), overwrite=True)
    return open_rows(folder)


def _reader(rows: Tensor, ids: Tensor, all_ids: Tensor) -> Read:
    """A function that reads the rows of `ids` by raw-graph id."""
    if ids is all_ids:
        return lambda requested: rows.index_select(0, requested.to(rows.device))
    row_of_id = torch.zeros_like(all_ids)
    row_of_id[ids] = torch.arange(len(ids), device=ids.device)
    return lambda requested: rows.index_select(0, row_of_id[requested].to(rows.device))
