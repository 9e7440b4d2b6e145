"""Building a CSR from an edge list: conversion and checks of the caller's arrays."""

import warnings
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.capacity import check_fits
from workbench.core.errors import ID_DTYPES, check_at_least, check_finite, check_ids, check_vector
from workbench.kernels.csr import Csr, group_rows
from workbench.kernels.symmetric_csr import symmetric_rows

ArrayLike: TypeAlias = Tensor | np.ndarray | Sequence[int] | Sequence[float]
_BYTES_PER_NODE = 3 * 8  # offsets, counts and write positions
TYPE_DTYPES = (*ID_DTYPES, torch.int16, torch.uint8)


def as_vector(name: str, values: ArrayLike) -> Tensor:
    """Convert values to a contiguous vector that shares their memory if possible.

    Args:
        name: name of the argument, for the message.
        values: tensor, NumPy array or sequence of numbers.

    Raises:
        TypeError: if `values` does not consist of numbers.
        ValueError: if `values` is not a vector.
    """
    with warnings.catch_warnings():  # NumPy warns about read-only arrays, but nothing here writes to them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        try:
            vector = torch.as_tensor(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"{name} is {type(values).__name__}, not a vector of numbers ({error}); pass a tensor, an array or a "
                "list of numbers"
            ) from error
    if vector.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(vector.shape)}; flatten it with .reshape(-1)")
    return vector.detach().contiguous()


def _as_ids(name: str, values: ArrayLike) -> Tensor:
    ids = as_vector(name, values)
    if isinstance(values, list | tuple) and not values:
        return ids.to(torch.int64)
    return ids if ids.dtype in ID_DTYPES else check_ids(name, ids, 0)


def _largest_id(name: str, ids: Tensor) -> int:
    """Return the largest id, −1 for an empty vector."""
    if not ids.numel():
        return -1
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < 0:
        raise IndexError(f"{name} contains {low}; node ids can't be negative: number the nodes from 0")
    return high


def _check_edges(src: Tensor, dst: Tensor, num_nodes: int | None) -> int:
    """Check the ids and return the number of nodes."""
    if src.shape != dst.shape:
        raise ValueError(f"src has {src.shape[0]} ids, but dst has {dst.shape[0]}; pass one of each per edge")
    if src.device != dst.device:
        raise ValueError(f"src is on {src.device} and dst on {dst.device}; move them to one device")
    needed = 1 + max(_largest_id("src", src), _largest_id("dst", dst))
    count = needed if num_nodes is None else num_nodes
    check_at_least("num_nodes", count, 0)
    if needed > count:
        raise IndexError(
            f"the edges contain node {needed - 1}, but num_nodes is {count}; pass num_nodes={needed} or more"
        )
    if src.device.type == "cpu":
        check_fits(f"a graph of {count:,} nodes", _BYTES_PER_NODE * count, "number the nodes without gaps")
    return int(count)


def _in_csr_order(values: Tensor | None, order: Tensor | None) -> Tensor | None:
    """Copy values per edge from the caller's order into CSR order."""
    if values is None:
        return None
    return values.clone() if order is None else values[order]


def edges_to_csr(
    src: ArrayLike,
    dst: ArrayLike,
    *,
    num_nodes: int | None = None,
    undirected: bool = False,
    edge_weight: ArrayLike | None = None,
    edge_type: ArrayLike | None = None,
) -> tuple[Csr, Tensor | None]:
    """Build the CSR of an edge list, as `Graph.from_edges` does.

    Args:
        src: int32 or int64 [num_edges], sources.
        dst: int32 or int64 [num_edges], destinations.
        num_nodes: number of nodes; by default the largest id + 1.
        undirected: add reverse edges, merge duplicates (summing their weights), keep self loops once and sort rows.
        edge_weight: floating point [num_edges], finite.
        edge_type: integer [num_edges]; not supported together with `undirected`.

    Returns:
        The CSR and the edge types in CSR order.

    Raises:
        TypeError: if ids are not integers.
        IndexError: if an id is negative or not below `num_nodes`.
        ValueError: if lengths differ, a weight is not finite, or `edge_type` is given with `undirected`.
    """
    if undirected and edge_type is not None:
        raise ValueError(
            "edge_type with undirected=True is ambiguous: duplicates are merged, and a reverse edge may have another "
            "type; pass the edges of both directions (torch.cat) and all their types with undirected=False"
        )
    sources, destinations = _as_ids("src", src), _as_ids("dst", dst)
    nodes = _check_edges(sources, destinations, num_nodes)
    weight = None if edge_weight is None else as_vector("edge_weight", edge_weight)
    types = None if edge_type is None else as_vector("edge_type", edge_type)
    check_vector("edge_weight", weight, len(sources), FLOATS)
    check_vector("edge_type", types, len(sources), TYPE_DTYPES)
    if weight is not None:
        check_finite("edge_weight", weight)
    if undirected:
        return symmetric_rows(destinations, sources, weight, nodes), None
    csr = group_rows(destinations, sources, nodes, nodes)
    return csr._replace(weight=_in_csr_order(weight, csr.order)), _in_csr_order(types, csr.order)
