"""What Tables 1 and 4 and the scaling of section 4.3 share: a step of P processing elements, counted and priced."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.cooperative.samplers import SamplerName
from workbench.cooperative.cost_model import PeCounts, StepSeconds, step_seconds
from workbench.core.machine import Machine
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment.config import DataPointConfig
from workbench.nn.model import LayerSize, ModelWork, exchanged_widths, model_work

SystemName = Literal["4 A100", "8 A100", "16 V100", "this machine"]
Approach = Literal["independent", "cooperative"]
APPROACHES: tuple[Approach, ...] = ("independent", "cooperative")
PAPER_BATCH = 1024
"""The paper's seeds per PE, to which the counts of smaller batches on smaller graphs are scaled."""
MIN_STEPS = 4
"""Batches per epoch: more than caches of a few batches remember."""


@dataclass(frozen=True)
class System:
    """Several equal GPUs.

    Args:
        num_pes: their number.
        machine: one of them, its arithmetic free as in the paper's model.
        fp32_flops: operations per second in float32, from the vendor's data sheet; not a number of the paper.
    """

    num_pes: int
    machine: Machine
    fp32_flops: float

    @property
    def with_arithmetic(self) -> Machine:
        """The machine, whose arithmetic takes time."""
        return replace(self.machine, flops=self.fp32_flops)


SYSTEMS: Mapping[SystemName, System] = {
    "4 A100": System(4, wb.core.MACHINES["A100"], 19.5e12),
    "8 A100": System(8, wb.core.MACHINES["A100"], 19.5e12),
    "16 V100": System(16, wb.core.MACHINES["V100"], 15.7e12),
}


THIS_MACHINE: SystemName = "this machine"
"""The ranks of the CPU that a point runs on, whose speeds are measured; beside the paper's systems, in no claim."""


def system_of(name: SystemName) -> System:
    """A system of the paper, or two ranks on this machine."""
    return _measured() if name == THIS_MACHINE else SYSTEMS[name]


@cache
def _measured() -> System:
    machine = wb.distributed.measure_machine(2)
    return System(2, replace(machine, flops=float("inf")), machine.flops)


class StepConfig(DataPointConfig):
    """Steps of several PEs, each with as many seeds, which train a GNN.

    Args:
        model: kind of layer, which decides the work M.
        sampler: name in the paper.
        approach: "independent" or "cooperative".
        ownership: method of `partition_graph` by which PEs own nodes.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per PE.
        hidden_dim: width of hidden layers.
        steps: number of steps whose counts are averaged.
        exchanges_products: whether PEs multiply their own rows and exchange the products before a layer of GAT; None:
            where that sends no more bytes.
    """

    model: Literal["gcn", "rgcn", "gat"]
    sampler: SamplerName
    approach: Approach
    ownership: str = "random"
    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    hidden_dim: PositiveInt
    steps: PositiveInt
    exchanges_products: bool | None = None

    @property
    def times(self) -> float:
        """The paper's batch size over this one."""
        return PAPER_BATCH / self.batch_size


class PeBatches:
    """The batches of all PEs, step after step: each PE's seeds are training nodes that it owns.

    Args:
        config: of the point.
        data: graph and training nodes.
        num_pes: number of PEs.
    """

    def __init__(self, config: StepConfig, data: Any, num_pes: int) -> None:
        self.config, self.num_pes = config, num_pes
        self.graph = data.graph.to(config.device)
        owner = wb.partition_graph(data.graph, num_pes, method=config.ownership, seed=config.seed)
        self.owner, train = owner.to(config.device), data.train_idx.cpu()
        self._own = [train[owner[train] == pe] for pe in range(num_pes)]
        self.steps_per_epoch = min(map(len, self._own)) // config.batch_size
        if self.steps_per_epoch < MIN_STEPS:
            raise ValueError(
                f"a PE owns {min(map(len, self._own))} training nodes, {self.steps_per_epoch} batches of "
                f"{config.batch_size} seeds; below {MIN_STEPS}, caches would be measured on repeated seeds: use a "
                "larger graph or a smaller batch_size"
            )

    def seeds(self, step: int) -> Tensor:
        """The global batch of a step: as many training nodes of each PE; every epoch shuffles them anew."""
        epoch, place = divmod(step, self.steps_per_epoch)
        size = self.config.batch_size
        drawn = [
            nodes[self._order(len(nodes), epoch, pe)[place * size : (place + 1) * size]]
            for pe, nodes in enumerate(self._own)
        ]
        return torch.cat(drawn).to(self.config.device)

    def _order(self, count: int, epoch: int, pe: int) -> Tensor:
        return permutation(stream(self.config.seed, Purpose.SHUFFLE, epoch * self.num_pes + pe), count)

    def sample(self, sampler: wb.Sampler, steps: range) -> Iterator[list[wb.MiniBatch]]:
        """The PEs' batches of some steps.

        Args:
            sampler: draws every row by itself.
            steps: numbers of the steps.
        """
        draw = wb.cooperative.batches if self.config.approach == "cooperative" else wb.cooperative.independent_batches
        options: dict[str, Any] = {"owner": self.owner, "num_ranks": self.num_pes, "sampler": sampler}
        return (draw(self.graph, self.seeds(step), step=step, **options) for step in steps)


def relations_per_row(batches: Sequence[wb.MiniBatch]) -> float:
    """Mean number of types of a destination's in-edges, over all layers; 1 without types.

    Args:
        batches: of all PEs.
    """
    pairs = rows = 0
    for block in (block for mb in batches for block in mb.blocks):
        destinations, types = block.destinations.long(), block.edge_type
        rows += (here := destinations.unique().numel())
        pairs += here if types is None else (destinations * (int(types.max()) + 1) + types).unique().numel()
    return pairs / rows


def work_of(counts: PeCounts, config: StepConfig, data: Any, relations: float) -> ModelWork:
    """The model's work on a PE's batch.

    Args:
        counts: of the PE.
        config: of the point.
        data: its features and classes are the model's input and output.
        relations: mean number of types of a destination's in-edges, for rgcn.
    """
    hops = zip(counts.needed, counts.owned, counts.edges, counts.owned[1:], strict=False)
    layers = [LayerSize(*hop) for hop in hops][::-1]
    return model_work(
        config.model,
        layers,
        widths_of(config, data),
        relations=relations if config.model == "rgcn" else 1,
        exchanges_products=config.exchanges_products,
    )


def widths_of(config: StepConfig, data: Any) -> list[int]:
    """Widths of the features, the hidden layers and the output."""
    return [data.num_features, *[config.hidden_dim] * (len(config.fanouts) - 1), data.num_classes]


def price(
    counts: PeCounts, work: ModelWork, machine: Machine, config: StepConfig, data: Any, miss_rate: float = 1.0
) -> StepSeconds:
    """The modelled seconds of a step.

    Args:
        counts: of a PE.
        work: of the model on them.
        machine: the PE.
        config: of the point.
        data: its features are loaded.
        miss_rate: share of input rows that are not cached.
    """
    products = config.exchanges_products
    widths = exchanged_widths(config.model, widths_of(config, data), exchanges_products=products)
    return step_seconds(
        counts,
        machine,
        row_bytes=row_bytes(data),
        hidden_bytes=[4 * width for width in reversed(widths)],
        work_bytes=work.nbytes,
        work_flops=work.flops,
        miss_rate=miss_rate,
    )


def row_bytes(data: Any) -> int:
    """Bytes of a node's features."""
    return data.num_features * data.x.element_size()


def counted_columns(counts: PeCounts) -> dict[str, float]:
    """Columns with the counts of a PE: `owned_0`, …, `needed_1`, …, `halo_1`, …, `edges_1`, … by hop; `cross_ratio`, c
    of the input layer.

    Args:
        counts: scaled to the paper's batch.
    """
    columns = {f"owned_{hop}": count for hop, count in enumerate(counts.owned)}
    for name in ("needed", "halo", "edges"):
        columns |= {f"{name}_{hop}": count for hop, count in enumerate(getattr(counts, name), 1)}
    return {**columns, "cross_ratio": counts.cross_ratios[-1]}


def machine_name(row: dict[str, Any]) -> str:
    """Name of the machine that a row was measured on, with its speeds."""
    speeds = ", ".join(
        f"{name} {row[key] / 1e9:.2g}" for key, name in {"gamma": "γ", "alpha": "α", "beta": "β"}.items()
    )
    return f"{THIS_MACHINE} ({speeds} GB/s)"
