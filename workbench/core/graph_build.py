"""Building a CSR from an edge list: conversion and checks of the caller's arrays."""

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.errors import ID_DTYPES, check_at_least, check_finite, check_fits, check_ids, check_vector
from workbench.kernels.csr import Csr, group_rows
from workbench.kernels.transpose import symmetric_rows, typed_symmetric_rows

ArrayLike: TypeAlias = Tensor | np.ndarray | Sequence[int] | Sequence[float]
Undirected: TypeAlias = bool | Literal["multi"]
_BYTES_PER_NODE = 3 * 8  # offsets, counts and write positions
TYPE_DTYPES = (*ID_DTYPES, torch.int16, torch.uint8)


def as_vector(name: str, values: ArrayLike) -> Tensor:
    """Convert values to a contiguous vector that shares their memory if possible.

    Args:
        values: tensor, NumPy array or sequence of numbers.
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
    if vector.dim() == 2 and vector.shape[0] == 2 and name == "src":
        raise ValueError(
            f"src has shape {tuple(vector.shape)}, like an edge_index; pass its rows: Graph.from_edges(*edge_index)"
        )
    if vector.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(vector.shape)}; flatten it with .reshape(-1)")
    return vector.detach().contiguous()


def _as_ids(name: str, values: ArrayLike) -> Tensor:
    ids = as_vector(name, values)
    if isinstance(values, list | tuple) and not values:
        return ids.to(torch.int64)
    return ids if ids.dtype in ID_DTYPES else check_ids(name, ids, 0)


def id_remedy(lowest: int) -> str:
    """Return what to do about an id that is not below the number of nodes, without naming a number that may be wrong.

    Args:
        lowest: the smallest id that was seen. A larger number of nodes would accept ids from 1, and add a node 0.
    """
    if lowest > 0:
        return (
            f"number the nodes from 0: the smallest id so far is {lowest}, so subtract {lowest} if it is the first "
            "node's (an EdgeFile of text: base=1)"
        )
    return "number the nodes from 0 without gaps, or pass the number of all nodes, those without edges included"


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
        lowest = min(int(ids.min()) for ids in (src, dst))
        remedy = id_remedy(lowest) if lowest else f"pass num_nodes={needed} or more if all ids are those of nodes"
        raise IndexError(f"the edges contain node {needed - 1}, but num_nodes is {count}; {remedy}")
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
    undirected: Undirected = False,
    edge_weight: ArrayLike | None = None,
    edge_type: ArrayLike | None = None,
    num_edge_types: int | None = None,
) -> tuple[Csr, Tensor | None]:
    """Build the CSR of an edge list, and its edge types in CSR order, from the arguments of `Graph.from_edges`."""
    if not isinstance(undirected, bool) and undirected != "multi":
        raise ValueError(f'undirected is {undirected!r}; it must be False, True or "multi" (keep duplicates)')
    sources, destinations = _as_ids("src", src), _as_ids("dst", dst)
    nodes = _check_edges(sources, destinations, num_nodes)
    weight = None if edge_weight is None else as_vector("edge_weight", edge_weight)
    types = None if edge_type is None else as_vector("edge_type", edge_type)
    check_vector("edge_weight", weight, len(sources), FLOATS)
    check_vector("edge_type", types, len(sources), TYPE_DTYPES)
    if weight is not None:
        check_finite("edge_weight", weight)
    num_types = _count_types(types, num_edge_types, undirected, nodes)
    if undirected is True:
        return _merged_csr(sources, destinations, weight, types, nodes, num_types)
    if undirected:
        sources, destinations = torch.cat([sources, destinations]), torch.cat([destinations, sources])
        weight = None if weight is None else torch.cat([weight, weight])
        types = None if types is None else _types_of_both(types, num_types)
    csr = group_rows(destinations, sources, nodes, nodes)
    return csr._replace(weight=_in_csr_order(weight, csr.order)), _in_csr_order(types, csr.order)


def _merged_csr(
    src: Tensor, dst: Tensor, weight: Tensor | None, types: Tensor | None, num_nodes: int, num_types: int
) -> tuple[Csr, Tensor | None]:
    if types is None:
        return symmetric_rows(dst, src, weight, num_nodes), None
    csr, merged = typed_symmetric_rows(dst, src, types, weight, num_nodes, num_types)
    return csr, merged.to(_reverse_type_dtype(types, num_types))


def types_of_both(types: Tensor, num_types: int | None) -> Tensor:
    """Return the types of all edges, then those of their reverses.

    Args:
        types: integer [num_edges].
        num_types: number of edge types; None: the largest + 1.
    """
    return _types_of_both(types, _count_types(types, num_types, "multi", 0))


def _types_of_both(types: Tensor, num_types: int) -> Tensor:
    """Return the types of all edges, then those of their reverses."""
    types = types.to(_reverse_type_dtype(types, num_types))
    return torch.cat([types, types + num_types])


def _count_types(types: Tensor | None, num_types: int | None, undirected: Undirected, num_nodes: int) -> int:
    """Return the number of edge types after checking their range; 0 if there are none, or none are added or limited."""
    if num_types is not None:
        check_at_least("num_edge_types", num_types, 1)
        if types is None:
            raise ValueError(f"num_edge_types is {num_types}, but edge_type is None; pass both or neither")
    if types is None or (num_types is None and not undirected):
        return 0
    low, high = (int(value) for value in torch.aminmax(types)) if types.numel() else (0, -1)
    if low < 0:
        raise IndexError(f"edge_type contains {low}; types can't be negative: number them from 0")
    if num_types is not None and high >= num_types:
        remedy = "number the types from 0: the smallest is 1" if low == 1 else f"pass {high + 1} or more"
        raise IndexError(f"edge_type contains {high}, but num_edge_types is {num_types}; {remedy}")
    count = max(1, high + 1) if num_types is None else num_types
    if undirected and 2 * count * (max(1, num_nodes) if undirected is True else 1) >= 2**63:
        raise ValueError(f"{count} edge types of {num_nodes} nodes exceed 63 bits; number the types without gaps")
    return count


def _reverse_type_dtype(types: Tensor, num_types: int) -> torch.dtype:
    """Return the dtype of the types of both directions: the caller's, if it can represent those of reverse edges."""
    return types.dtype if 2 * num_types - 1 <= torch.iinfo(types.dtype).max else torch.int64
