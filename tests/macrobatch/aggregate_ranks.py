"""Functions of ranks that build, read and plan with precomputed aggregates; rank 0 yields the results."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

import workbench as wb
from tests.distributed.cooperative_setting import (
    GRAPH,
    NODES,
    STEP,
    Rows,
    X,
    Y,
    difference,
    gathered,
    gradients,
    new_model,
    new_optimizer,
    owner_of,
    seeds_of,
    worst,
)
from workbench.distributed.group import gather_numbers

WEIGHTED = wb.Graph(GRAPH.indptr, GRAPH.indices, edge_weight=torch.linspace(0.1, 1, GRAPH.num_edges).double())
FULL = wb.NeighborSampler([-1, 3], seed=3)
SHORT = wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([1, 3], seed=3))


def owners() -> torch.Tensor:
    """Unequal shares; of three ranks or more, the last owns nothing."""
    size = dist.get_world_size()
    owner = owner_of(size)
    owner[owner == size - 1] = 0 if size > 2 else size - 1
    return owner


class Bounded(wb.distributed.OwnedRows):
    """Rows that remember how many are fetched at a time."""

    largest = 0

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        self.largest = max(self.largest, len(ids))
        return super().fetch(ids)


def built(config: Mapping[str, Any]) -> Rows:
    """Aggregates of the rows that each rank owns, beside those of one process."""
    rank, size, owner = dist.get_rank(), dist.get_world_size(), owners()
    owned = wb.sampling.OwnedGraph.of(WEIGHTED, owner, rank, size)
    own = (owner == rank).nonzero()[:, 0]
    x = Bounded(X[own], owner)
    for kind in config["kinds"]:
        done: list[int] = []
        folder = Path(config["folder"]) / kind if kind == "gin" else None
        options = {"kind": kind, "chunk_bytes": 2 * 104 * config["piece"], "folder": folder}
        rows = wb.macrobatch.aggregate_rows(owned, x, progress=done.append, **options)
        expected = wb.macrobatch.aggregate_rows(WEIGHTED, X, kind=kind).read(own)
        foreign = (owner != rank).nonzero()[:1, 0]
        try:
            refused = not len(foreign) or rows.read(foreign) is None
        except IndexError as error:
            refused = "belongs to rank" in str(error)
        yield {
            "error": worst(float((rows.read(own) - expected).abs().max()) if len(own) else 0.0),
            "pieces": [int(count) for count in gather_numbers(len(done))],
            "edges": gather_numbers(done[-1] if done else 0),
            "largest": worst(x.largest),
            "refused": worst(not refused),
        }


def whole_graph(config: Mapping[str, Any]) -> Rows:
    """What ranks are told that aggregate the whole graph from their own rows: only parts of a graph are collective."""
    x = wb.distributed.OwnedRows.of(X, owner_of(dist.get_world_size()))
    try:
        wb.macrobatch.aggregate_rows(GRAPH, x, kind="gin")
        text = "no error"
    except IndexError as error:
        text = str(error)
    yield {"texts": gathered(text)}


def trained(config: Mapping[str, Any]) -> Rows:
    """A step on aggregates, cooperative and independent, beside one process with a full-neighbour first layer."""
    rank, size, owner, seeds = dist.get_rank(), dist.get_world_size(), owners(), seeds_of(1)
    owned, x = wb.sampling.OwnedGraph.of(WEIGHTED, owner, rank, size), wb.distributed.OwnedRows.of(X, owner)
    for kind in config["kinds"]:
        models = [new_model(kind) for _ in range(3)]
        rows: Any = wb.training.AggregatedRows(
            x, wb.macrobatch.aggregate_rows(owned, x, model=models[0], chunk_bytes=5000)
        )
        whole = FULL.sample(WEIGHTED, seeds, step=STEP)
        expected = wb.train_step(models[0], whole, X, Y, F.cross_entropy, new_optimizer(models[0]))
        together = wb.cooperative.CooperativeSampler(SHORT, owned).sample(owned.graph, seeds, step=STEP)
        alone = SHORT.sample(WEIGHTED, seeds[owner[seeds] == rank], step=STEP)
        reads = [(together, rows), (alone, wb.stage(rows, [alone]))]
        for name, (mb, given), model in zip(("cooperative", "independent"), reads, models[1:], strict=True):
            loss = wb.cooperative.train_step(model, mb, given, Y, F.cross_entropy, new_optimizer(model))
            yield {
                "name": name,
                "loss": worst(abs(float(loss - expected)) / float(expected)),
                "gradients": worst(difference(gradients(model), gradients(models[0]))),
                "scale": float(gradients(models[0]).norm()),
            }


def planned(config: Mapping[str, Any]) -> Rows:
    """The plan of each rank, and the bytes that its own batches move when they are staged as planned."""
    rank, size, owner = dist.get_rank(), dist.get_world_size(), owners()
    sampler = wb.NeighborSampler([3, 3], seed=1)
    mine = (owner == rank).nonzero()[:, 0]
    batches = list(wb.batches(GRAPH, mine, sampler=sampler, batch_size=6, epoch=0))
    counts = wb.macrobatch.count_macrobatches(batches, owner=owner, rank=rank)
    for capacity in config["capacities"]:
        plan = wb.macrobatch.plan_macrobatch(counts, row_bytes=X[0].nbytes, memory=capacity + rank)
        traffic = wb.Traffic()
        stores = [wb.distributed.OwnedRows.of(X, owner, traffic=traffic) for _ in range(1 + plan.use_aggregates)]
        rounds = int(max(gather_numbers(-(-len(batches) // plan.group_size))))
        for first in range(0, rounds * plan.group_size, plan.group_size):
            group = [mb for _, mb in batches[first : first + plan.group_size]]
            ids = [mb.node_ids[: mb.blocks[0].num_dst] if plan.use_aggregates else mb.node_ids for mb in group]
            union = torch.cat([torch.empty(0, dtype=torch.int64), *ids]).unique()
            for store in stores:
                store.stage(union)
        reads = counts.aggregated if plan.use_aggregates else counts.sampled
        row = traffic.row()
        moved = row["rank_ids_bytes"] + row["rank_rows_bytes"] + int(reads.topology_bytes.sum())
        plans = gathered(plan)
        yield {
            "same": plans == [plan] * size,
            "predicted": plan.moved_bytes,
            "moved": int(sum(gather_numbers(moved))),
            "rows": int(sum(gather_numbers(row["rank_rows"]))) == plan.fetched_rows,
            "chosen": [plan.size, plan.group_size, plan.use_aggregates],
            "batches": [int(count) for count in gather_numbers(len(batches))],
            "nodes": NODES,
        }
    try:
        wb.macrobatch.plan_macrobatch(counts, row_bytes=8 + rank, memory="1MiB")
    except ValueError as error:
        yield {"text": str(error)}


def macrobatches(config: Mapping[str, Any]) -> Rows:
    """An epoch of planned macrobatches: losses beside one process, bytes on the wire beside the plan."""
    rank, size, owner = dist.get_rank(), dist.get_world_size(), owners()
    owned, deep = wb.sampling.OwnedGraph.of(WEIGHTED, owner, rank, size), wb.NeighborSampler([4, 3, 2], seed=3)
    full = wb.NeighborSampler([-1, 3, 2], seed=3)
    sizes: dict[str, Any] = {"in_dim": X.shape[1], "hidden_dim": 8, "out_dim": 4}
    model = wb.build_model("sage-mean", num_layers=3, **sizes, dropout=0.5, seed=4).double()
    shares = [(owner == of).nonzero()[:, 0] for of in range(size)]
    options: dict[str, Any] = {"batch_size": 6, "epoch": 0}
    counted = wb.batches(WEIGHTED, shares[rank], sampler=deep, **options)
    counts = wb.macrobatch.count_macrobatches(counted, owner=owner, rank=rank)
    for use in (False, True):
        plan = wb.macrobatch.plan_macrobatch(counts, row_bytes=X[0].nbytes, memory="20KiB", aggregates=use)
        traffic, own = wb.Traffic(), (owner == rank).nonzero()[:, 0]
        x = wb.distributed.OwnedRows(X[own], owner, traffic=traffic)
        built = (
            wb.macrobatch.aggregate_rows(owned, wb.distributed.OwnedRows(X[own], owner), model=model, traffic=traffic)
            if use
            else None
        )
        store = (
            x
            if built is None
            else wb.training.AggregatedRows(x, wb.distributed.OwnedRows(built.read(own), owner, traffic=traffic))
        )
        sampler = wb.macrobatch.MacrobatchSampler(
            wb.macrobatch.WithoutInputLayer(deep) if use else deep, owned, traffic=traffic
        )
        loader = wb.macrobatch.batches(
            owned.graph,
            shares[rank],
            sampler=sampler,
            store=store,
            size=plan.size,
            group_size=plan.group_size,
            **options,
        )
        optimizer = new_optimizer(model)
        losses = [wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, optimizer) for _, mb, rows in loader]
        epochs = [list(wb.batches(WEIGHTED, s, sampler=full if use else deep, **options)) for s in shares]
        together = [[mbs[i][1] for mbs in epochs if i < len(mbs)] for i in range(len(losses))]
        expected = [wb.train_step(model, micro, X, Y, F.cross_entropy, optimizer) for micro in together]
        moved = sum(traffic.snapshot().nbytes("rank", item) for item in ("ids", "edges", "rows"))
        yield {
            "loss": worst(max(abs(float(a - b)) / float(b) for a, b in zip(losses, expected, strict=True))),
            "steps": len(losses),
            "moved": int(sum(gather_numbers(moved))),
            "predicted": plan.moved_bytes,
            "separate": plan.unplanned_bytes,
            "chosen": [plan.size, plan.group_size, plan.use_aggregates],
        }
