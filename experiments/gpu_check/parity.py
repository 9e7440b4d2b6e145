"""Samples, partitions, gradients and losses of a device beside those of the CPU."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.errors import check_choice
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.nn.model import MODEL_KINDS

FANOUTS = (5, 10)
NUM_PARTS = 8
STEPS = 3
TOLERANCE = 1e-9  # devices sum in different orders
SAMPLERS: dict[str, dict[str, Any]] = {
    "uniform": {"edge_ids": True},
    "replacement": {"edge_ids": True, "replace": True},
    "weighted": {"edge_ids": True},
    "full": {"edge_ids": True},
}
KINDS = {
    "sample": tuple(SAMPLERS),
    "partition": ("range", "random", "refined"),
    "gradient": MODEL_KINDS,
    "loss": MODEL_KINDS,
}


class Config(DataPointConfig):
    """One kind of result.

    Args:
        what: sampled batch, partition of a batch and its micro-batches, gradients of a step, or losses of several.
        kind: of sampler, of a partition that needs no METIS, or of model.
        num_seeds: the first training nodes are the batch's seeds.
    """

    what: Literal["sample", "partition", "gradient", "loss"]
    kind: str
    num_seeds: PositiveInt

    @model_validator(mode="after")
    def _kind_is_known(self) -> "Config":
        check_choice("kind", self.kind, KINDS[self.what])
        return self


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    results: dict[str, Callable[[Config, Any, str], list[Tensor]]] = {
        "sample": sample,
        "partition": cut,
        "gradient": gradients,
        "loss": losses,
    }
    of = results[config.what]
    pair = of(config, data, "cpu"), of(config, data, config.device)
    yield compare_values(*pair, to_largest=config.what == "gradient")  # sums of both signs may be close to 0


def compare_values(expected: list[Tensor], found: list[Tensor], *, to_largest: bool = False) -> dict[str, Any]:
    """Number of values that differ, and the largest relative difference; infinite if shapes or dtypes differ.

    Args:
        expected: values of the CPU.
        found: values of the device.
        to_largest: differences are relative to the largest value of the tensor, not to each value.
    """
    num_values = sum(t.numel() for t in expected)
    if [(t.shape, t.dtype) for t in expected] != [(t.shape, t.dtype) for t in found]:
        return {"num_values": num_values, "num_different": num_values, "difference": float("inf")}
    pairs = list(zip(expected, found, strict=True))
    relative = [_difference(a, b, to_largest) for a, b in pairs if a.numel()]
    return {
        "num_values": num_values,
        "num_different": sum(int((a != b).sum()) for a, b in pairs),
        "difference": float(
            torch.tensor(relative, dtype=torch.float64).max()
        ),  # NaN if any is; Python's may leave it out
    }


def _difference(expected: Tensor, found: Tensor, to_largest: bool) -> float:
    size = expected.abs().double().clamp(min=1e-300)
    return float(((expected - found).abs().double() / (size.max() if to_largest else size)).max())


def batch_tensors(batch: wb.MiniBatch) -> list[Tensor]:
    """All tensors of a batch that decide what is trained on, on the CPU."""
    batch = batch.to("cpu")
    structure = [t for b in batch.blocks for t in (b.indptr, b.indices, b.edge_ids, b.edge_weight)]
    return [t for t in (batch.node_ids, *structure) if t is not None]


def sample(config: Config, data: Any, device: str) -> list[Tensor]:
    graph = data.graph
    if config.kind == "weighted":
        generator = torch.Generator().manual_seed(config.seed)
        graph = replace(graph, edge_weight=torch.rand(graph.num_edges, generator=generator))
    fanouts = (-1,) if config.kind == "full" else FANOUTS
    sampler = wb.NeighborSampler(fanouts, seed=config.seed, **SAMPLERS[config.kind])
    return batch_tensors(sampler.sample(graph.to(device), _seeds(config, data).to(device), step=5))


def cut(config: Config, data: Any, device: str) -> list[Tensor]:
    batch = _batch(config, data).to(device)
    method = "random" if config.kind == "refined" else config.kind
    parts = wb.partition_batch(batch, NUM_PARTS, method=method, seed=config.seed)
    parts = wb.partition.refine_parts(batch, parts) if config.kind == "refined" else parts
    micro = batch.split(parts)
    return [parts.cpu(), *(tensor for mb in micro for tensor in batch_tensors(mb))]


def gradients(config: Config, data: Any, device: str) -> list[Tensor]:
    model, _ = _trained(config, data, device, num_steps=1)
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None]


def losses(config: Config, data: Any, device: str) -> list[Tensor]:
    return [_trained(config, data, device, num_steps=STEPS)[1]]


def _trained(config: Config, data: Any, device: str, *, num_steps: int) -> tuple[torch.nn.Module, Tensor]:
    """A model after some steps in micro-batches, and their losses, in float64."""
    options = {"in_dim": data.num_features, "hidden_dim": 16, "out_dim": data.num_classes, "num_layers": len(FANOUTS)}
    model = wb.build_model(config.kind, dropout=0.3, seed=config.seed, **options).double().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    micro = [mb.to(device) for mb in _micro(_batch(config, data), config.seed)]
    x = data.x.double()
    steps = [wb.train_step(model, micro, x, data.y, cross_entropy, optimizer) for _ in range(num_steps)]
    return model, torch.stack([loss.cpu() for loss in steps])


def _micro(batch: wb.MiniBatch, seed: int) -> list[wb.MiniBatch]:
    return batch.split(wb.partition_batch(batch, NUM_PARTS, method="random", seed=seed))


def _batch(config: Config, data: Any) -> wb.MiniBatch:
    return wb.NeighborSampler(FANOUTS, seed=config.seed).sample(data.graph, _seeds(config, data))


def _seeds(config: Config, data: Any) -> Tensor:
    return data.train_idx[: config.num_seeds]


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    return error_dots(
        table, x="kind", group="device", facet="what", error="difference", title="Largest difference from the CPU"
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    claimed = {
        "sample": ("num_different", 0.0, "samples are those of the CPU, bit for bit"),
        "partition": ("num_different", 0.0, "partitions and micro-batches are those of the CPU, bit for bit"),
        "gradient": ("difference", TOLERANCE, f"gradients in float64 are the CPU's, to {TOLERANCE:g} of the largest"),
        "loss": ("difference", TOLERANCE, f"losses in float64 are the CPU's, to {TOLERANCE:g}"),
    }
    found = []
    for what, (value, most, statement) in claimed.items():
        rows: Any = table[table.what == what]
        if len(rows):
            found.append(claims.within(f"{what}-equal", statement, rows, value=value, most=most, by=["kind"]))
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Values that differ, by kind of result."""
    columns = {"num_values": "sum", "num_different": "sum", "difference": "max"}
    return table.groupby("what", sort=False)[[*columns]].agg(columns)
