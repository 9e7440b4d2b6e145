"""The estimate of a training step beside the peak of the allocator, and what it reserves, by kind of layer."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.memory.estimator import estimator_for
from workbench.memory.training_setup import TrainingSetup
from workbench.training.profile import profile_epoch

WITHIN = 0.03


class Config(ModelConfig):
    """One kind of layer.

    Args:
        num_seeds: the first training nodes are the batch's seeds.
        num_parts: random micro-batches of the step.
    """

    num_seeds: PositiveInt
    num_parts: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, data.train_idx[: config.num_seeds])
    micro = batch.split(wb.partition_batch(batch, config.num_parts, method="random", seed=config.seed))
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters())
    profile = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer)
    estimate = estimator_for(TrainingSetup(model, optimizer=optimizer), batch)
    estimates = [estimate(mb, accumulating=position > 0) for position, mb in enumerate(micro)]

    def step() -> None:
        wb.train_step(model, micro, data.x, data.y, cross_entropy, optimizer)

    reserved = reserved_bytes(step, config.device)
    peak = profile.peak_bytes or 0
    yield {
        **errors(estimates, profile),
        "reserved_bytes": reserved,
        "reserved_ratio": None if reserved is None else reserved / peak,
        "epoch_seconds": profile.epoch_seconds,
    }


def errors(estimates: Sequence[wb.MemoryEstimate], profile: wb.training.EpochProfile) -> dict[str, Any]:
    """The error of the step's peak, and of the phase that is farthest off."""
    expected = max(estimate.peak_bytes for estimate in estimates)
    measured = profile.phase_peak_bytes
    measured = {**measured, "forward": max(measured[phase] for phase in ("fetch", "transfer", "forward"))}
    phases = {
        phase: max(estimate.phase_bytes[phase] for estimate in estimates) / measured[phase] - 1
        for phase in ("forward", "backward", "step")
    }
    worst = max(phases, key=lambda phase: abs(phases[phase]))
    peak = profile.peak_bytes or 0
    return {
        "estimate_bytes": expected,
        "peak_bytes": peak,
        "peak_error": expected / peak - 1,
        "worst_phase": worst,
        "worst_error": phases[worst],
    }


def reserved_bytes(step: Any, device: str) -> int | None:
    """The most that CUDA's allocator reserves for a step, beyond what is left after releasing unused memory."""
    if not device.startswith("cuda"):
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_reserved(device)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    rows = table.assign(parts=table.num_parts.map("{} micro-batches".format), panel="")
    return error_dots(
        rows, x="model", group="parts", facet="panel", error="peak_error", within=WITHIN, title="Error of the estimate"
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    about = {"by": ["model", "num_parts"], "least": -WITHIN, "most": WITHIN, "form": "+.2%"}
    return [
        claims.within("peak", f"the estimated peak is at most {WITHIN:.0%} off", table, value="peak_error", **about),
        claims.within("phases", f"so are those of the phases, {WITHIN:.0%}", table, value="worst_error", **about),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Estimated, allocated and reserved bytes, by kind of layer."""
    return table.set_index(["model", "num_parts"])[["estimate_bytes", "peak_bytes", "reserved_bytes", "peak_error"]]
