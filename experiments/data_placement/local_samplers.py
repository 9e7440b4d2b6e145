"""What the figures of locality-aware sampling share: samplers by name, per device, and the batches that they draw."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

import workbench as wb
from experiments.data_placement.movement import Epoch, MovementConfig, Topology, place_all
from workbench.sampling.batches import EpochOrder

SamplerName = Literal["NS", "LABOR-0", "LAS", "LAS, published", "LADIES", "LADIES + LAS"]
"""NS, LABOR-0 and LADIES know of no buffer. "LAS" is unbiased, "LAS, published" draws without replacement and corrects
nothing, as the paper does."""

LOCAL: tuple[SamplerName, ...] = ("LAS", "LAS, published", "LADIES + LAS")
"""Samplers that prefer buffered rows."""

PLAIN: Mapping[SamplerName, SamplerName] = {"LAS": "LABOR-0", "LAS, published": "NS", "LADIES + LAS": "LADIES"}
"""What each of them is without a buffer, at f = 1."""


def build_sampler(
    name: SamplerName, factors: Tensor, *, fanouts: Sequence[int], layer_nodes: Sequence[int], seed: int
) -> wb.Sampler:
    """Build a sampler.

    Args:
        name: of the sampler.
        factors: of the nodes (`wb.placement.locality_factors`); samplers that know of no buffer ignore them.
        fanouts: neighbours per layer, input layer first.
        layer_nodes: nodes per layer that LADIES draws.
        seed: of the variates.
    """
    match name:
        case "NS":
            return wb.NeighborSampler(fanouts, seed=seed)
        case "LABOR-0":
            return wb.LaborSampler(fanouts, seed=seed)
        case "LADIES":
            return wb.LadiesSampler(layer_nodes, seed=seed)
        case "LADIES + LAS":
            return wb.LadiesSampler(layer_nodes, factors=factors, seed=seed)
        case _:
            return wb.placement.LocalitySampler(fanouts, factors, biased=name == "LAS, published", seed=seed)


def layer_nodes(graph: wb.Graph, seeds: Tensor, fanouts: Sequence[int]) -> list[int]:
    """Nodes per layer that LADIES draws: as many as are new in the layers of one batch of NS, for about equal work."""
    batch = wb.NeighborSampler(fanouts).sample(graph, seeds)
    return [max(1, block.num_src - block.num_dst) for block in batch.blocks]


def algorithm_1(config: MovementConfig, data: Any, topology: Topology) -> wb.placement.Placement:
    """The placement of Algorithm 1."""
    return place_all(config, data, topology, ["algorithm-1"])["algorithm-1"].placement


def device_samplers(
    name: SamplerName, graph: wb.Graph, placement: wb.placement.Placement, *, factor: float, hops: int, **options: Any
) -> list[wb.Sampler]:
    """One sampler per device, each with the factors of the device's own buffer; options as for `build_sampler`."""
    return [
        build_sampler(name, wb.placement.locality_factors(graph, buffered, factor=factor, hops=hops), **options)
        for buffered in placement.buffers
    ]


def read_batches(
    config: MovementConfig, data: Any, samplers: Sequence[wb.Sampler], *, steps: int | None, seed: int
) -> Epoch:
    """Sample batches of an epoch, dealt to the devices in turn, each by its device's sampler.

    Args:
        config: of the point.
        data: graph and training nodes.
        samplers: one per device.
        steps: batches per device; None: all of the epoch.
        seed: of the order of the nodes.
    """
    order = EpochOrder(len(data.train_idx), config.batch_size, drop_last=True, seed=seed)
    count = min(len(order) // len(samplers), steps or len(order))
    if not count:
        raise ValueError(
            f"{len(data.train_idx)} training nodes are fewer than {len(samplers)} batches of {config.batch_size} "
            "seeds; set a smaller batch_size"
        )
    reads: list[list[Tensor]] = [[] for _ in samplers]
    sizes = torch.zeros(len(config.fanouts), 3, dtype=torch.float64)
    for step, positions in order.positions(0):
        if step == count * len(samplers):
            break
        mb = samplers[step % len(samplers)].sample(data.graph, data.train_idx[positions], step=step)
        reads[step % len(samplers)].append(mb.node_ids)
        sizes += torch.tensor([[b.num_src, b.num_dst, b.num_edges] for b in mb.blocks])
    return Epoch(reads, [tuple(row) for row in (sizes / (count * len(samplers))).tolist()])
