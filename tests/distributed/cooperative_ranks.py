"""Functions of ranks that train together, each compared with one process in every rank; rank 0 yields the results."""

from collections.abc import Mapping
from itertools import chain
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
    edges,
    gathered,
    gradients,
    new_model,
    new_optimizer,
    new_sampler,
    nodes,
    owned_graph,
    owner_of,
    seeds_of,
    worst,
)
from workbench.distributed.group import check_ranks_agree, gather_numbers


def sampled_sets(config: Mapping[str, Any]) -> Rows:
    """The union of the ranks' sets and edges beside the batch of one process."""
    owned, seeds = owned_graph(), seeds_of(dist.get_world_size())
    for name, dependent in config["samplers"]:
        sampler = new_sampler(name, dependent)
        whole = sampler.sample(GRAPH, seeds, step=STEP)
        mine = (
            wb.cooperative.CooperativeSampler(sampler, owned)
            .sample(owned.graph, seeds, step=STEP)
            .validate(num_nodes=NODES)
        )
        shares = gathered((nodes(mine), edges(mine)))
        unions = [[sorted(chain(*layer)) for layer in zip(*of, strict=True)] for of in zip(*shares, strict=True)]
        yield {
            "nodes": unions[0] == [sorted(layer) for layer in nodes(whole)],
            "edges": unions[1] == [sorted(layer) for layer in edges(whole)],
            "fewest_seeds": min(len(share[-1]) for share, _ in shares),
            "halo": sum(gather_numbers(mine.num_sources - mine.num_inputs)),
        }


def training(config: Mapping[str, Any]) -> Rows:
    """Loss and gradients of a step beside those of one process; "parts" cuts every rank's seeds."""
    size = dist.get_world_size()
    owned, owner, seeds = owned_graph(), owner_of(size), seeds_of(size)
    rows, labels = wb.distributed.OwnedRows.of(X, owner), wb.distributed.OwnedRows.of(Y, owner)
    mine = seeds[owner[seeds] == dist.get_rank()]
    for name, dependent, kind, parts in config["cases"]:
        sampler, model, plain = new_sampler(name, dependent), new_model(kind), new_model(kind)
        whole = sampler.sample(GRAPH, seeds, step=STEP)
        expected = wb.train_step(plain, whole, X, Y, F.cross_entropy, new_optimizer(plain))
        cooperative, pieces = wb.cooperative.CooperativeSampler(sampler, owned), mine.tensor_split(parts)
        micro = [cooperative.sample(owned.graph, seeds if parts == 1 else p, step=STEP) for p in pieces]
        loss = wb.cooperative.train_step(model, micro, rows, labels, F.cross_entropy, new_optimizer(model))
        yield {
            "loss": worst(abs(float(loss - expected)) / float(expected)),
            "gradients": worst(difference(gradients(model), gradients(plain))),
            "scale": float(gradients(plain).norm()),
        }


def summed(config: Mapping[str, Any]) -> Rows:
    """A step with the sum of losses beside that of one process; rank 1 has no seed."""
    size, seeds = dist.get_world_size(), torch.arange(10)
    owner = (torch.arange(NODES) >= NODES // 2).long()
    owned = wb.sampling.OwnedGraph.of(GRAPH, owner, dist.get_rank(), size)
    sampler, model, plain = new_sampler("labor", False), new_model("sage-mean"), new_model("sage-mean")
    options: dict[str, Any] = {"reduction": "sum"}
    whole = sampler.sample(GRAPH, seeds, step=STEP)
    expected = wb.train_step(plain, whole, X, Y, F.cross_entropy, new_optimizer(plain), **options)
    mb = wb.cooperative.CooperativeSampler(sampler, owned).sample(owned.graph, seeds, step=STEP)
    rows = wb.distributed.OwnedRows.of(X, owner)
    loss = wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, new_optimizer(model), **options)
    try:
        unlabelled = torch.full_like(Y, -1)
        wb.cooperative.train_step(model, mb, rows, unlabelled, F.cross_entropy, new_optimizer(model), **options)
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
    yield {
        "loss": worst(abs(float(loss - expected)) / float(expected)),
        "gradients": worst(difference(gradients(model), gradients(plain))),
        "fewest_seeds": min(gather_numbers(mb.num_seeds)),
        "refused": refused,
    }


def relational(config: Mapping[str, Any]) -> Rows:
    """A step of R-GCN on a small synthetic-mag240M beside that of one process."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = wb.load_dataset("synthetic-mag240M", scale=config["scale"], features="random:16")
    check_ranks_agree({"data": data.fingerprint})
    graph, x, seeds = data.graph, data.x.double(), data.train_idx[:60]
    owner = wb.partition_graph(graph, size, method="random", seed=1)
    owned, rows = wb.sampling.OwnedGraph.of(graph, owner, rank, size), wb.distributed.OwnedRows.of(x, owner)
    assert graph.edge_type is not None
    sizes = {"in_dim": data.num_features, "hidden_dim": 8, "out_dim": data.num_classes, "dropout": 0.5, "seed": 4}
    relations = int(graph.edge_type.max()) + 1
    model, plain = (wb.build_model("rgcn", num_relations=relations, **sizes).double() for _ in range(2))
    for sampler in (wb.NeighborSampler([5, 5]), wb.LaborSampler([5, 5])):
        whole = sampler.sample(graph, seeds, step=STEP)
        expected = wb.train_step(plain, whole, x, data.y, F.cross_entropy, new_optimizer(plain))
        mb = wb.cooperative.CooperativeSampler(sampler, owned).sample(owned.graph, seeds, step=STEP)
        loss = wb.cooperative.train_step(model, mb, rows, data.y, F.cross_entropy, new_optimizer(model))
        yield {
            "loss": worst(abs(float(loss - expected)) / float(expected)),
            "gradients": worst(difference(gradients(model), gradients(plain))),
            "types": len(whole.blocks[0].edge_type.unique()) if whole.blocks[0].edge_type is not None else 0,
        }


def independent(config: Mapping[str, Any]) -> Rows:
    """Independent minibatching over the same owners: whole neighbourhoods, staged rows, no exchanges."""
    size = dist.get_world_size()
    owner, seeds, traffic = owner_of(size), seeds_of(size), wb.Traffic()
    sampler, model, plain = new_sampler("labor", False), new_model("sage-mean"), new_model("sage-mean")
    expected = wb.train_step(
        plain, sampler.sample(GRAPH, seeds, step=STEP), X, Y, F.cross_entropy, new_optimizer(plain)
    )
    mb = sampler.sample(GRAPH, seeds[owner[seeds] == dist.get_rank()], step=STEP)
    staged = wb.stage(wb.distributed.OwnedRows.of(X, owner, traffic=traffic), [mb])
    loss = wb.cooperative.train_step(model, mb, staged, Y, F.cross_entropy, new_optimizer(model))
    foreign = int((owner[mb.node_ids] != dist.get_rank()).sum())
    yield {
        "loss": worst(abs(float(loss - expected)) / float(expected)),
        "gradients": worst(difference(gradients(model), gradients(plain))),
        "rows": worst(abs(traffic.row()["rank_rows"] - foreign)),
        "row_bytes": traffic.row()["rank_rows_bytes"] - foreign * X[0].nbytes,
        "foreign": foreign,
    }


def evaluation(config: Mapping[str, Any]) -> Rows:
    """Full-neighbour outputs over the owners beside those of one process."""
    size = dist.get_world_size()
    owned, rows = owned_graph(), wb.distributed.OwnedRows.of(X, owner_of(size))
    for kind in config["kinds"]:
        model = new_model(kind)
        found = wb.cooperative.cooperative_logits(model, owned, rows, chunk_edges=config["chunk_edges"])
        expected = wb.full_neighbour_logits(model, GRAPH, X)
        error = (found.read(found.ids) - expected[found.ids]).abs().max() if len(found.ids) else torch.zeros(())
        yield {"error": worst(float(error)), "nodes": sum(gather_numbers(len(found.ids)))}


def prefetched(config: Mapping[str, Any]) -> Rows:
    """Batches sampled ahead in a thread with a group of its own; the steps equal those of one process."""
    size = dist.get_world_size()
    owned, rows, ids = owned_graph(), wb.distributed.OwnedRows.of(X, owner_of(size)), seeds_of(size)
    sampler, model, plain = new_sampler("labor", True), new_model("sage-mean"), new_model("sage-mean")
    ahead = wb.cooperative.CooperativeSampler(sampler, owned, dist.new_group())  # pyright: ignore[reportArgumentType]
    loops = [
        (
            wb.prefetch(wb.batches(owned.graph, ids, sampler=ahead, batch_size=9, epoch=0)),
            wb.cooperative.train_step,
            rows,
        ),
        (wb.batches(GRAPH, ids, sampler=sampler, batch_size=9, epoch=0), wb.train_step, X),
    ]
    for trained, (loop, take, x) in zip((model, plain), loops, strict=True):
        optimizer = new_optimizer(trained, 0.1)
        for _, mb in loop:
            take(trained, mb, x, Y, F.cross_entropy, optimizer)
    ours, theirs = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (model, plain))
    yield {"parameters": worst(difference(ours, theirs)), "equal_ranks": len(set(gathered(ours.tolist()[0]))) == 1}
