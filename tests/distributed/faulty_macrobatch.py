"""A macrobatch in which one rank misbehaves, as MISBEHAVE = "stage fate rank" in the environment says."""

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
from tests.distributed.faulty_step import IS_BAD, FaultySampler, faulty  # which misbehaves at the start
from tests.distributed.misbehaving import STAGE, meet_fate
from workbench.distributed import group as row_exchange, owned as owned_rows


def run(config):
    """Two mini-batches of one window."""
    size, owned = wb.distributed.get_world_size(), owned_graph()
    sampler, model = new_sampler("neighbor", False), new_model("sage-mean")
    if IS_BAD:
        row_exchange.all_to_all = faulty(row_exchange.all_to_all)
        owned_rows.start_all_to_all = faulty(row_exchange.start_all_to_all)
        sampler = FaultySampler([2, 2]) if STAGE == "sampling" else sampler
        misbehave(model)
    store = wb.distributed.OwnedRows.of(X, owner_of(size))
    options: dict[str, Any] = {"sampler": wb.macrobatch.MacrobatchSampler(sampler, owned), "batch_size": 12, "size": 2}
    seeds = seeds_of(size)[owner_of(size)[seeds_of(size)] == wb.distributed.get_rank()]
    for _, mb, rows in wb.macrobatch.batches(owned.graph, seeds, store=store, **options):
        wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, new_optimizer(model))
    yield {"done": True}


def misbehave(model: Any) -> None:
    """Let a model misbehave when it is called, or when the gradient of one of its parameters is computed."""
    if STAGE == "forward":
        model.register_forward_pre_hook(lambda *_: meet_fate())
    if STAGE == "backward":
        next(model.parameters()).register_hook(lambda _: meet_fate())
