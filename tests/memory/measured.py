"""Helpers that measure and estimate the memory of the same training step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.memory.estimate import PHASES
from workbench.memory.estimator import estimator_for
from workbench.memory.training_setup import TrainingSetup
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.nn.gnn import GNN
from workbench.training.profile import EpochMemory, meter_epoch


def skewed_graph(num_nodes: int = 3000, num_edges: int = 30_000) -> wb.Graph:
    """A graph with skewed degrees, in which some nodes have no in-edges."""
    draw = torch.Generator().manual_seed(0)
    src = (torch.rand(num_edges, generator=draw) ** 3 * num_nodes).long()
    dst = (torch.rand(num_edges, generator=draw) ** 2 * num_nodes).long()
    return wb.Graph.from_edges(src, dst, num_nodes=num_nodes)


GRAPH = skewed_graph()
FANOUTS = [4, 6, 8]
IN, CLASSES = 24, 7
NARROW, WIDE = 16, 40
"""Hidden widths below and above the feature width, since layers choose the order of their products by it."""


def sample(fanouts: Sequence[int], num_seeds: int = 300) -> wb.MiniBatch:
    return wb.NeighborSampler(fanouts, seed=0).sample(GRAPH, torch.arange(num_seeds))


def measure(
    model: nn.Module,
    micro: Sequence[wb.MiniBatch],
    optimizer: torch.optim.Optimizer,
    *,
    in_dim: int,
    y: torch.Tensor,
    loss_fn: Callable[..., torch.Tensor] = cross_entropy,
    aggregate_on_read: bool = False,
    aggregated: bool = False,
    **options: Any,
) -> EpochMemory:
    """Metered memory of a step, after a warm-up step; features have the dtype of the model."""
    x: Any = torch.zeros(GRAPH.num_nodes, in_dim, dtype=next(model.parameters()).dtype)
    x = wb.training.AggregateOnRead(x) if aggregate_on_read else wb.training.AggregatedRows(x, x) if aggregated else x

    def run(step: Sequence[wb.MiniBatch], phase: Any) -> torch.Tensor:
        return wb.train_step(model, step, x, y, loss_fn, optimizer, phase=phase, verify=False, **options)

    wb.train_step(model, micro[:1], x, y, loss_fn, optimizer, forward=options.get("forward"))
    optimizer.zero_grad()
    return meter_epoch(model, optimizer, [micro], run)


def compare(
    model: nn.Module,
    micro: Sequence[wb.MiniBatch],
    optimizer: torch.optim.Optimizer,
    *,
    in_dim: int,
    num_classes: int,
    loss_fn: Callable[..., torch.Tensor] = cross_entropy,
    backend: wb.memory.Backend | None = None,
    whole: wb.MiniBatch | None = None,
    **options: Any,
) -> dict[str, tuple[int, int]]:
    """Estimated and measured peak of each phase, the maximum over the micro-batches of the whole batch."""
    y = torch.arange(GRAPH.num_nodes) % num_classes
    measured = measure(model, micro, optimizer, in_dim=in_dim, y=y, loss_fn=loss_fn, **options).by_phase
    if backend is not None and backend.device == "cuda":  # a GPU has a copy of a micro-batch's labels at a time
        kept, copied = (rounded_bytes(8 * seeds) for seeds in (sum(m.num_seeds for m in micro), micro[0].num_seeds))
        measured = {phase: peak + (copied - kept) * (phase != "step") for phase, peak in measured.items()}
    setup = TrainingSetup(
        model,
        loss_fn,
        optimizer,
        recover=options.get("recover"),
        backend=backend,
        in_dim=in_dim,
        aggregate_on_read=options.get("aggregate_on_read", False),
    )
    estimate = estimator_for(setup, whole or micro[0])
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]
    by_phase = {**measured, "forward": max(measured[phase] for phase in ("fetch", "transfer", "forward"))}
    return {phase: (max(e.phase_bytes[phase] for e in estimates), by_phase[phase]) for phase in PHASES}


def is_close(pair: tuple[int, int], tolerance: float, scalars: int = 4) -> bool:
    """Return whether an estimate is within a relative tolerance, or within a few allocation granules."""
    estimated, measured = pair
    return abs(estimated - measured) <= max(tolerance * measured, scalars * 512)


def build(kind: str, num_layers: int, hidden_dim: int, dtype: torch.dtype = torch.float32, **options: Any) -> GNN:
    options = {"in_dim": IN, "out_dim": CLASSES, **options}
    model = wb.build_model(kind, **options, hidden_dim=hidden_dim, num_layers=num_layers, seed=1)
    return model.to(dtype)


def with_weights(batch: wb.MiniBatch, dtype: torch.dtype) -> wb.MiniBatch:
    weighted = (replace(block, edge_weight=torch.rand(block.num_edges, dtype=dtype)) for block in batch.blocks)
    return replace(batch, blocks=tuple(weighted))


MIXED = {
    "double weights": (torch.float32, torch.float64),
    "single weights": (torch.float64, torch.float32),
    "half rows": (torch.bfloat16, torch.float64),
    "half weights": (torch.float32, torch.bfloat16),
}
"""Precisions of rows and of edge weights, which are converted to that of the sums."""


def thirds(batch: wb.MiniBatch) -> list[wb.MiniBatch]:
    return batch.split(torch.arange(batch.num_seeds) % 3)


def check(
    model: GNN,
    micro: list[wb.MiniBatch],
    optimizer: torch.optim.Optimizer | None = None,
    scalars: int = 4,
    tolerance: float = 0.01,
    in_dim: int = IN,
    **options: Any,
) -> None:
    """Assert that the estimate is within a relative tolerance in every phase."""
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    found = compare(model, micro, optimizer, in_dim=in_dim, num_classes=CLASSES, **options)
    assert all(is_close(pair, tolerance, scalars) for pair in found.values()), found
