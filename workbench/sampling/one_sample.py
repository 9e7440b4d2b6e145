"""The loop over hops of a sampler that draws one sample per node and batch: only nodes that are new get a row."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.row_prefix import first_rows
from workbench.kernels.relabel import relabeler
from workbench.sampling.drawn import Drawn, check_drawn, edge_values
from workbench.sampling.sampler import Sampler, copy_ids


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
    seeds = check_ids("seeds", seeds, graph.num_nodes).to(graph.device)
    hops: list[dict[str, Tensor]] = []
    with relabeler(graph.num_nodes, seeds) as labels:
        reached = [0, len(seeds)]
        for layer in reversed(range(sampler.num_layers)):
            new = labels.node_ids[reached[-2] :]
            drawn = draw(new, layer)
            check_drawn(drawn, len(new))
            values = edge_values(edges, drawn, getattr(sampler, "edge_ids", False))
            local = labels(drawn.sources, overwrite=getattr(sampler, "sources_are_new", False))
            hops.append({"indptr": drawn.indptr, "indices": local, **values})
            reached.append(len(labels.node_ids))
        node_ids = copy_ids(labels.node_ids)
    return MiniBatch(node_ids, _row_prefixes(_stacked(hops), reached), step=step)


def _row_prefixes(rows: dict[str, Tensor], reached: list[int]) -> tuple[Block, ...]:
    """Return a block per layer, input layer first, given the number of nodes reached after each hop."""
    sizes = list(pairwise(reached[1:]))[::-1]
    num_dst, num_src = sizes[0]
    whole = Block(rows.pop("indptr"), rows.pop("indices"), num_src, num_dst, **rows)
    return (whole, *(first_rows(whole, num_src, num_dst) for num_dst, num_src in sizes[1:]))


def _stacked(hops: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Append the rows of all hops."""
    if len(hops) == 1:
        return hops[0]
    stacked = {name: _concatenated([hop[name] for hop in hops]) for name in hops[0] if name != "indptr"}
    return {"indptr": _stacked_indptr([hop["indptr"] for hop in hops]), **stacked}


def _stacked_indptr(parts: Sequence[Tensor]) -> Tensor:
    out = torch.empty(sum(len(part) - 1 for part in parts) + 1, dtype=torch.int64, device=parts[0].device)
    out[:1] = 0
    row = 0
    for part in parts:
        end = row + len(part) - 1
        if out.device.type == "cpu":  # torch would wake OpenMP threads, whose spinning slows kernels
            np.add(part.numpy()[1:], out.numpy()[row], out=out.numpy()[row + 1 : end + 1])
        else:
            torch.add(part[1:], out[row], out=out[row + 1 : end + 1])
        row = end
    return out


def _concatenated(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate; ids of the last hop may be wider than those of earlier ones."""
    last = parts[-1]
    if last.device.type != "cpu" or any(part.requires_grad for part in parts):
        return torch.cat([part.to(last.dtype) for part in parts])
    out = torch.empty(sum(len(part) for part in parts), dtype=last.dtype)
    np.concatenate([part.numpy() for part in parts], out=out.numpy())
    return out
