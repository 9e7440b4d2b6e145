"""Attributes of a PyG batch in its micro-batches: the rows of every node-, edge- and seed-level attribute."""

from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import CarriedData, MiniBatch
from workbench.core.shared_storage import total_bytes

_SEED_ATTRIBUTES = ("input_id", "seed_time")  # of NeighborLoader, [batch_size]
_STRUCTURE = ("n_id", "edge_index", "adjs", "num_sampled_nodes", "num_sampled_edges", "batch_size")
_EDGE_FIELDS = ("e_id", "edge_weight", "edge_type")  # those of blocks


def batch_of_positions(batch: Any) -> MiniBatch:
    """Convert a PyG batch to a batch for splitting.

    Edge ids are positions in `edge_index` if the batch has edge attributes that blocks don't have.
    """
    if not _edge_attributes(batch):
        return MiniBatch.from_pyg(batch)
    names = ("n_id", "batch_size", "edge_index", "num_sampled_nodes", "num_sampled_edges", "batch")
    hops = SimpleNamespace(**{name: getattr(batch, name, None) for name in names})
    hops.e_id = torch.arange(batch.edge_index.shape[1], device=batch.edge_index.device)
    mb = MiniBatch.from_pyg(hops)
    adjs = getattr(batch, "adjs", None)
    if adjs is not None and [block.num_edges for block in mb.blocks] != [adj[0].shape[1] for adj in adjs]:
        raise ValueError(
            f"{', '.join(_edge_attributes(batch))} have a row per edge of edge_index, which has one sample per node, "
            "but the layers (adjs) have samples of their own; delete these attributes, or read them per layer by e_id"
        )
    return mb


def part_of_batch(part: MiniBatch, whole: Any) -> Any:
    """Convert a micro-batch to a PyG batch with the rows of the attributes of the whole one."""
    assert part.parent is not None
    out = part.to_pyg()
    extra = _edge_attributes(whole)
    if extra:
        positions = out.e_id
        _restore_edge_fields(out, whole)
        for name in extra:
            setattr(out, name, getattr(whole, name)[positions])
    for name, value in _attributes(whole).items():
        if name in (*_STRUCTURE, *_EDGE_FIELDS, *extra) or name in out:
            continue
        if isinstance(value, Tensor) and whole.is_node_attr(name):
            value = value[part.parent]
        elif name in _SEED_ATTRIBUTES:
            value = value[part.parent[: part.num_seeds]]
        setattr(out, name, value)
    return out


def carried_attributes(batch: Any, blocks: Sequence[Block]) -> CarriedData | None:
    """Refer to the node- and edge-level attributes of a PyG batch; None if it has none but those of blocks."""
    if not _edge_attributes(batch) and not _node_attributes(batch):
        return None
    sizes = len(batch.n_id), tuple(block.num_edges for block in blocks)
    return CarriedData(batch, None, cache(lambda: tuple(b.edge_ids for b in batch_of_positions(batch).blocks)), *sizes)


def edge_rows(mb: MiniBatch) -> dict[str, Callable[[], list[Tensor]]]:
    """Functions that gather the edge-level attributes that a batch carries, per layer, by name.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
    """
    source = _carried_source(mb)
    return {name: partial(_edge_rows, mb, getattr(source, name)) for name in _edge_attributes(source)}


def node_rows(mb: MiniBatch) -> dict[str, Callable[[], Tensor]]:
    """Functions that gather the node-level attributes that a batch carries, by name.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
    """
    source = _carried_source(mb)
    return {name: partial(_node_rows, mb, getattr(source, name)) for name in _node_attributes(source)}


def rows_not_read(mb: MiniBatch, read: Container[str]) -> list[Tensor]:
    """Gather the carried attributes of a PyG batch that its model does not read, without the features.

    Args:
        mb: a batch of `MiniBatch.from_pyg`, or a micro-batch of one; any other has none.
        read: names of the parameters that the model is called with.
    """
    of_edges = {name: rows()[0] for name, rows in edge_rows(mb).items() if name not in read}
    of_nodes = {name: rows() for name, rows in node_rows(mb).items() if name not in read and name != "x"}
    return [*of_edges.values(), *of_nodes.values()]


def resident_bytes(batch: Any) -> int:
    """Bytes of a PyG batch on its device, each storage once."""
    tensors = [value for value in _attributes(batch).values() if isinstance(value, Tensor)]
    return total_bytes(value for value in tensors if value.device == batch.n_id.device)


def _restore_edge_fields(out: Any, whole: Any) -> None:
    """Replace positions in `edge_index` by the values that stand there."""

    def at(name: str, positions: Tensor) -> Tensor | None:
        values = getattr(whole, name, None)
        return None if values is None else values[positions]

    per_layer = [e_id for _, e_id, _ in out.adjs]
    out.adjs = [(edges, at("e_id", e_id), size) for edges, e_id, size in out.adjs]
    out.adj_weights = [at("edge_weight", e_id) for e_id in per_layer]
    out.adj_types = [at("edge_type", e_id) for e_id in per_layer]
    positions = out.e_id
    for name in _EDGE_FIELDS:
        setattr(out, name, at(name, positions))


def _attributes(batch: Any) -> dict[str, Any]:
    return batch.to_dict() if hasattr(batch, "to_dict") else {}


def _edge_attributes(batch: Any) -> list[str]:
    """Names of edge-level attributes beyond those of blocks."""
    return [name for name in _further_tensors(batch) if batch.is_edge_attr(name)]


def _node_attributes(batch: Any) -> list[str]:
    """Names of node-level attributes."""
    return [name for name in _further_tensors(batch) if batch.is_node_attr(name)]


def _further_tensors(batch: Any) -> list[str]:
    known = (*_STRUCTURE, *_EDGE_FIELDS, *_SEED_ATTRIBUTES)
    return [name for name in _attributes(batch) if name not in known and isinstance(getattr(batch, name), Tensor)]


def _carried_source(mb: MiniBatch) -> Any:
    """The PyG batch whose attributes a batch carries; None without one."""
    source = None if mb.carried is None else mb.carried.source
    return source if hasattr(source, "n_id") else None


def _node_rows(mb: MiniBatch, values: Tensor) -> Tensor:
    assert mb.carried is not None
    return _rows(values, mb.carried.rows_of_nodes(mb.num_inputs), mb.device)


def _edge_rows(mb: MiniBatch, values: Tensor) -> list[Tensor]:
    assert mb.carried is not None
    return [_rows(values, rows, mb.device) for rows in mb.carried.rows_of_edges(mb.blocks)]


def _rows(values: Tensor, rows: Tensor | None, device: torch.device) -> Tensor:
    return (values if rows is None else values[rows.to(values.device)]).to(device)
