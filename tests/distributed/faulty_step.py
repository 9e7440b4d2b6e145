"""A cooperative step in which one rank misbehaves, as MISBEHAVE = "stage fate rank" in the environment says."""

import os
from typing import Any

import torch.nn.functional as F

import workbench as wb
from tests.distributed.cooperative_setting import (
    X,
    Y,
    new_model,
    new_optimizer,
    new_sampler,
    owned_graph,
    owner_of,
    seeds_of,
)
from tests.distributed.misbehaving import BAD, STAGE, meet_fate
from workbench.cooperative import sampler as exchangers
from workbench.distributed import group as row_exchange, progress

IS_BAD = os.environ.get("RANK", "none") == BAD

if IS_BAD and STAGE == "start":
    meet_fate()


class FaultySampler(wb.NeighborSampler):
    """Misbehaves when it draws."""

    def draw(self, *args: Any, **kwargs: Any) -> Any:
        meet_fate()


def faulty(exchange: Any) -> Any:
    """An exchange that misbehaves in the phase of that name."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if progress.current_phase() == STAGE:
            meet_fate()
        return exchange(*args, **kwargs)

    return call


def run(config):
    """One step."""
    if IS_BAD:
        row_exchange.all_to_all = faulty(row_exchange.all_to_all)
        exchangers.start_all_to_all = faulty(row_exchange.start_all_to_all)
    size, owned = wb.distributed.get_world_size(), owned_graph()
    sampler = FaultySampler([2, 2]) if IS_BAD and STAGE == "sampling" else new_sampler("neighbor", False)
    mb = wb.cooperative.CooperativeSampler(sampler, owned).sample(owned.graph, seeds_of(size))
    model = new_model("sage-mean")
    rows = wb.distributed.OwnedRows.of(X, owner_of(size))
    wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, new_optimizer(model))
    yield {"done": True}
