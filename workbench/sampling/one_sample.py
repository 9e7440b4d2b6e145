"""The loop over hops of a sampler that draws one sample per node and batch: only nodes that are new get a row."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.row_prefix import first_rows
from workbench.kernels.csr import offsets
from workbench.kernels.relabel import local_dtype, relabeler
from workbench.kernels.threads import run_tasks
from workbench.sampling.drawn import Drawn, check_drawn, edge_values
from workbench.sampling.sampler import Sampler, check_seeds, copy_ids

_MIN_EDGES = 1 << 17  # fewer take less time than waking a thread


def sample_once_per_node(
    sampler: Sampler, graph: Graph, edges: Graph, seeds: Tensor, *, step: int, draw: Callable[[Tensor, int], Drawn]
) -> MiniBatch:
    """Sample a batch hop by hop: draw rows of the nodes that the previous hop has reached first, relabel their sources.

    Args:
        sampler: the sampler.
        graph: the graph that the seeds are nodes of.
        edges: the graph that positions of the drawn rows refer to.
        seeds: int64 or int32 node ids, each once.
        step: number of the batch.
        draw: called with the new nodes and the layer of each hop; returns their rows.

    Returns:
        The batch, whose blocks are row prefixes of one CSR: seeds first, then new nodes hop by hop.

    Raises:
        TypeError: seeds of another dtype.
        ValueError: duplicate seeds, or `step` is not a 64-bit integer.
        IndexError: a seed out of range.

    Source: Waleffe et al., "MariusGNN", EuroSys 2023, Algorithm 1, with nodes stacked targets first.
    """
    check_seed(step, "step")
    seeds = check_seeds(graph, seeds)
    hops: list[dict[str, Tensor]] = []
    with relabeler(graph.num_nodes, seeds) as labels:
        reached = [0, seeds.shape[0]]
        for layer in reversed(range(sampler.num_layers)):
            new = labels.node_ids[reached[-2] :]
            drawn = draw(new, layer)
            check_drawn(drawn, new.shape[0])
            values = edge_values(edges, drawn, getattr(sampler, "edge_ids", False))
            room = _room(hops, drawn.sources, graph.num_nodes) if layer == 0 else None
            local = labels(drawn.sources, overwrite=getattr(sampler, "sources_are_new", False), out=room)
            hops.append({"indptr": drawn.indptr, "indices": local, **values})
            reached.append(labels.node_ids.shape[0])
        node_ids = copy_ids(labels.node_ids)
    return MiniBatch(node_ids, _row_prefixes(_stacked(hops), reached), step=step)


def _row_prefixes(rows: dict[str, Tensor], reached: list[int]) -> tuple[Block, ...]:
    """Return a block per layer, input layer first, given the number of nodes reached after each hop."""
    sizes = list(pairwise(reached[1:]))[::-1]
    num_dst, num_src = sizes[0]
    whole = Block(rows.pop("indptr"), rows.pop("indices"), num_src, num_dst, **rows)
    return (whole, *(first_rows(whole, num_src, num_dst) for num_dst, num_src in sizes[1:]))


def _room(hops: Sequence[dict[str, Tensor]], sources: Tensor, num_nodes: int) -> Tensor | None:
    """Return memory for the local ids of the last hop, behind room for those of the other hops; None: not on the CPU.

    Most edges are those of the last hop, which need no copy then.
    """
    if not hops or sources.device.type != "cpu":
        return None
    before = sum(hop["indices"].shape[0] for hop in hops)
    return torch.empty(before + sources.shape[0], dtype=local_dtype(num_nodes))[before:]


def _stacked(hops: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Append the rows of all hops."""
    if len(hops) == 1:
        return hops[0]
    columns = {name: [hop[name] for hop in hops] for name in hops[0]}
    if hops[0]["indices"].device.type != "cpu" or any(t.requires_grad for hop in hops for t in hop.values()):
        return {name: _concatenated_torch(name, parts) for name, parts in columns.items()}
    stacked = {name: _memory(name, parts) for name, parts in columns.items()}
    copies = [partial(_copy, name, columns[name], out) for name, out in stacked.items()]
    if stacked["indices"].shape[0] < _MIN_EDGES:
        for copy in copies:
            copy()
    else:
        run_tasks(copies)
    return stacked


def _concatenated_torch(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Concatenate on any device; ids of the last hop may be wider than those of earlier ones."""
    if name == "indptr":
        return offsets(torch.cat([part.diff() for part in parts]))
    return torch.cat([part.to(parts[-1].dtype) for part in parts])


def _memory(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Allocate the result, or take that in which the last part is already."""
    last, extra = parts[-1], int(name == "indptr")
    size = sum(part.shape[0] - extra for part in parts) + extra
    if last.storage_offset() and last.storage_offset() + last.shape[0] == size:  # see _room
        return last.as_strided((size,), (1,), 0)
    return torch.empty(size, dtype=last.dtype)


def _copy(name: str, parts: Sequence[Tensor], out: Tensor) -> None:
    """Copy the parts one behind the other; torch would wake OpenMP threads, whose spinning slows kernels."""
    whole, end = out.numpy(), 0
    if name == "indptr":
        whole[0] = 0
        for part in (part.numpy() for part in parts):
            np.add(part[1:], whole[end], out=whole[end + 1 : end + len(part)])
            end += len(part) - 1
        return
    is_there = parts[-1].storage_offset() > 0  # see _room
    for part in (part.numpy() for part in (parts[:-1] if is_there else parts)):
        whole[end : end + len(part)] = part
        end += len(part)
