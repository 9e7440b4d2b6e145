"""Marginal device bytes of a model per node and edge of each layer, which batch partitioners balance."""

from dataclasses import replace
from itertools import pairwise

import torch

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.training_setup import TrainingSetup
from workbench.partition.costs import ByteCosts

_MIN_ADDED_NODES = 256  # allocations are multiples of 512 bytes
_ADDED_FRACTION = 8  # of the inputs: so few more nodes leave the peak in its phase


def byte_costs(setup: TrainingSetup, mb: MiniBatch) -> ByteCosts:
    """Compute by how many bytes each node and edge of each layer raises the estimated peak of a model's training step.

    Args:
        setup: the model, and how it is trained.
        mb: the batch to partition; the costs are those at the phase of its peak, forward or backward.

    Returns:
        The costs, for `partition_batch(costs=…)` and `refine_parts(costs=…)`; `plan_micro_batches` uses them itself.

    Raises:
        ValueError: `estimate_memory` would refuse the arguments.
        TypeError: an argument is of another type.
    """
    return marginal_costs(estimator_for(setup, mb), mb)


def marginal_costs(estimator: Estimator, mb: MiniBatch) -> ByteCosts:
    """Difference the estimates of a batch and of the same batch with more nodes, or fewer edges, in one layer.

    Args:
        estimator: memory estimator of the model.
        mb: the batch; one of the model's layers per block.

    Returns:
        The costs; those of an input node are at least one byte.
    """
    phases = estimator(_with_nodes(mb, 0, 0)).phase_bytes
    phase = max(("forward", "backward"), key=lambda name: phases[name])
    count = max(_MIN_ADDED_NODES, mb.num_inputs // _ADDED_FRACTION)
    more_nodes = [_with_nodes(mb, hops + 1, count) for hops in range(len(mb.blocks) + 1)]
    grown = [phases[phase], *(estimator(more).phase_bytes[phase] for more in more_nodes)]
    per_node = [max(0.0, (more - less) / count) for less, more in pairwise(grown)]
    per_edge = [_per_edge(estimator, mb, layer, phase, phases[phase]) for layer in range(len(mb.blocks))]
    return ByteCosts((max(1.0, per_node[0]), *per_node[1:]), tuple(per_edge))


def _with_nodes(mb: MiniBatch, hops: int, count: int) -> MiniBatch:
    """Add nodes without in-edges to the inputs and to the destinations of the first layers, `hops` sets in all."""
    blocks = [
        replace(
            block,
            indptr=torch.cat([block.indptr, block.indptr[-1:].expand(count if layer + 1 < hops else 0)]),
            num_src=block.num_src + (count if layer < hops else 0),
            num_dst=block.num_dst + (count if layer + 1 < hops else 0),
        )
        for layer, block in enumerate(mb.blocks)
    ]
    node_ids = torch.cat([mb.node_ids, mb.node_ids.new_zeros(count if hops else 0)])
    return MiniBatch(node_ids, tuple(blocks), step=mb.step)


def _per_edge(estimator: Estimator, mb: MiniBatch, layer: int, phase: str, whole_bytes: int) -> float:
    """Bytes per edge that disappear if half of a layer's destinations lose their edges."""
    block = mb.blocks[layer]
    kept = int(block.indptr[block.num_dst // 2])
    if kept == block.num_edges:
        return 0.0
    blocks = (*mb.blocks[:layer], _first_edges(block, kept), *mb.blocks[layer + 1 :])
    less = estimator(MiniBatch(mb.node_ids, blocks, step=mb.step)).phase_bytes[phase]
    return max(0.0, (whole_bytes - less) / (block.num_edges - kept))


def _first_edges(block: Block, count: int) -> Block:
    """Drop all edges but the first, in arrays of their own."""
    arrays = {name: t[:count].clone() for name, t in block._tensors().items() if t is not None and name != "indptr"}
    return replace(block, indptr=block.indptr.clamp(max=count), **arrays)
