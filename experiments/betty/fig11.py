"""Betty, Figure 11: peak memory by partitioner and number of micro-batches. Figures 12 and 16 show the same rows."""

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.stopwatch import Stopwatch
from workbench.experiment.config import ModelKind, PartitionMethod, PointConfig
from workbench.training.profile import profile_epoch

WARM_UP_SEEDS = 256


class Config(PointConfig):
    """All training nodes are one batch, cut into `num_parts` micro-batches; fanouts input layer first."""

    model: ModelKind
    fanouts: tuple[int, ...]
    hidden_dim: PositiveInt
    heads: PositiveInt = 1
    learning_rate: float
    method: PartitionMethod
    num_parts: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    prepare(config, data, data.train_idx[: max(WARM_UP_SEEDS, config.num_parts)])  # loads machine code
    batch, micro, seconds = prepare(config, data, data.train_idx)
    model = wb.build_model(
        config.model,
        in_dim=data.num_features,
        hidden_dim=config.hidden_dim,
        out_dim=data.num_classes,
        num_layers=len(config.fanouts),
        heads=config.heads,
        seed=config.seed,
    ).to(config.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    profile = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer)
    inputs = wb.redundancy(micro, batch)
    yield {
        "total_inputs": inputs.total_inputs,
        "full_inputs": inputs.full_inputs,
        "largest_inputs": inputs.largest,
        "inputs_ratio": inputs.ratio,
        "largest_ratio": inputs.largest / inputs.full_inputs,
        **profile.row(),
        **seconds,
    }


def prepare(
    config: Config, data: Any, seeds: torch.Tensor
) -> tuple[wb.MiniBatch, list[wb.MiniBatch], dict[str, float]]:
    """The batch, its micro-batches, and the seconds that making them took."""
    watch = Stopwatch()
    with watch.phase("sample"):
        batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, seeds)
    with watch.phase("partition"):
        whole = config.method == "cluster"
        node_parts = wb.partition_graph(data.graph, config.num_parts, seed=config.seed) if whole else None
        parts = wb.partition_batch(
            batch, config.num_parts, method=config.method, seed=config.seed, node_parts=node_parts
        )
    with watch.phase("split"):
        micro = batch.split(parts)
    return batch, micro, {f"{phase}_seconds": seconds for phase, seconds in watch.seconds.items()}
