"""A random configuration ready to be planned and trained, and the smallest number of micro-batches that fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.performance.cases import Case, case_graph, nodes_with_neighbors, random_nodes
from workbench.memory.estimator import Estimator, estimator_for, marginal_costs
from workbench.memory.plan import Plan, plan_with
from workbench.memory.training_setup import TrainingSetup
from workbench.partition.batch.partitioner import PreparedPartition
from workbench.training.profile import meter_epoch

MARGIN, MOST_PARTS = 0.02, 64
_HOPELESS = 1.25
OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}


@dataclass(frozen=True, eq=False)
class Setting:
    """A configuration ready to be planned and trained."""

    case: Case
    batch: wb.MiniBatch
    model: Any
    optimizer: torch.optim.Optimizer
    estimator: Estimator
    x: Tensor
    y: Tensor

    @staticmethod
    def of(case: Case) -> "Setting":
        graph = case_graph(case["graph"])
        seeds = random_nodes(nodes_with_neighbors(case["graph"]), case["num_seeds"], seed=case["seed"])
        batch = wb.NeighborSampler(case["fanouts"], seed=case["seed"]).sample(graph, seeds)
        names = ("in_dim", "hidden_dim", "out_dim", "heads", "norm", "dropout", "seed")
        sizes = {name: case[name] for name in names}
        model = wb.build_model(case["kind"], num_layers=len(case["fanouts"]), **sizes)
        optimizer = OPTIMIZERS[case["optimizer"]](model.parameters())
        x = torch.zeros(1, case["in_dim"]).expand(graph.num_nodes, -1)
        y = torch.arange(graph.num_nodes) % case["out_dim"]
        estimator = estimator_for(TrainingSetup(model, optimizer=optimizer), batch)
        return Setting(case | {"num_seeds": batch.num_seeds}, batch, model, optimizer, estimator, x, y)

    @cached_property
    def partition(self) -> PreparedPartition:
        """The batch, prepared to be cut as plans cut it."""
        costs = marginal_costs(self.estimator, self.batch)
        return wb.partition.Partitioner(self.case["method"], seed=self.case["seed"], costs=costs).prepare(self.batch)

    def parts(self, num_parts: int) -> list[wb.MiniBatch]:
        return self.batch.split(self.partition.cut(num_parts).assignment)

    def estimated(self, micro: Sequence[wb.MiniBatch]) -> list[int]:
        return [self.estimator(mb, accumulating=position > 0).peak_bytes for position, mb in enumerate(micro)]

    def plan(self, strategy: str) -> Plan:
        case = {"memory": self.case["capacity_bytes"], "method": self.case["method"], "seed": self.case["seed"]}
        return plan_with(self.estimator, self.batch, margin=MARGIN, strategy=strategy, **case)

    def train(self, micro: Sequence[wb.MiniBatch], phase: Any = None) -> object:
        return wb.train_step(self.model, micro, self.x, self.y, cross_entropy, self.optimizer, phase=phase)

    @property
    def tiny(self) -> wb.MiniBatch:
        """The micro-batch of one seed; training it makes optimizer state and machine code."""
        part = torch.ones(self.batch.num_seeds, dtype=torch.int64)
        part[0] = 0
        return self.batch.split(part)[0]

    def measured(self, micro: Sequence[wb.MiniBatch]) -> int:
        self.model.zero_grad()
        return meter_epoch(self.model, self.optimizer, [micro], self.train).peak_bytes


def smallest_measured(setting: Setting, capacity: int) -> int | None:
    """K*; None if it is larger than 128."""
    tiny = setting.tiny
    for num_parts in range(1, min(2 * MOST_PARTS, setting.batch.num_seeds) + 1):
        micro = setting.parts(num_parts)
        estimates = setting.estimated(micro)
        worst = max(range(len(micro)), key=lambda position: estimates[position])
        if estimates[worst] > _HOPELESS * capacity:
            continue
        alone = [micro[worst]] if worst == 0 else [tiny, micro[worst]]  # all but the first find gradients there
        if setting.measured(alone) <= capacity and setting.measured(micro) <= capacity:
            return num_parts
    return None
