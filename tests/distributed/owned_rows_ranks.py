"""Functions of ranks that hold rows of their own: refusals, counters and caches; rank 0 yields the results."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import workbench as wb
from tests.distributed.cooperative_setting import (
    GRAPH,
    STEP,
    Rows,
    X,
    Y,
    new_model,
    new_optimizer,
    new_sampler,
    owned_graph,
    owner_of,
    seeds_of,
    worst,
)


def foreign_row(config: Mapping[str, Any]) -> Rows:
    """What a rank says that reads a row, samples a node, or holds arrays of others."""
    size, rank = dist.get_world_size(), dist.get_rank()
    owner = owner_of(size)
    owned, rows = owned_graph(), wb.distributed.OwnedRows.of(X, owner)
    foreign = (owner != rank).nonzero()[:1, 0]
    row: dict[str, Any] = {"node": int(foreign), "owner": int(owner[foreign]), "length": len(rows)}
    for name, call in {
        "read": lambda: rows.read(foreign),
        "draw": lambda: owned.draw(new_sampler("labor", False), foreign, layer=0),
        "other_graph": lambda: wb.cooperative.CooperativeSampler(new_sampler("labor", False), owned).sample(
            GRAPH, foreign
        ),
        "other_rank": lambda: wb.cooperative.CooperativeSampler(
            new_sampler("labor", False), wb.sampling.OwnedGraph.of(GRAPH, owner, size - 1 - rank, size)
        ),
    }.items():
        try:
            call()
        except (IndexError, ValueError) as error:
            row[name] = str(error)
    own = owner == rank
    yield {
        **row,
        "rows": len(rows.ids) == int(own.sum()) and torch.equal(rows.read(rows.ids), X[own]),
        "resident_rows": sum(t.numel() for t in tensors_of(rows)) - int(own.sum()) * X.shape[1],
        "resident_edges": len(owned.graph.indices) - int(GRAPH.in_degrees()[own].sum()),
        "foreign_edges": int(owned.graph.in_degrees()[~own].sum()),
    }


def fetched(config: Mapping[str, Any]) -> Rows:
    """Rows that ranks fetch: own ones, those of others, repeated ones in any order, none; by every dtype of owners."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        owner, traffic = owner_of(size).to(dtype), wb.Traffic()
        rows = wb.distributed.OwnedRows.of(X, owner, traffic=traffic)
        mixed = torch.randint(len(X), (40 + rank,), generator=torch.Generator().manual_seed(rank))
        wanted = {
            "own": rows.ids.flip(0),
            "foreign": (owner != rank).nonzero()[:, 0].int(),
            "mixed": mixed,
            "none but of the last rank": mixed[: 5 * (rank == size - 1)],
        }
        for name, ids in wanted.items():
            before = traffic.snapshot()
            found = rows.fetch(ids)
            equal, counted = torch.equal(found, X[ids]), (traffic.snapshot() - before).count("rank", "rows")
            right = equal and counted == int((owner[ids] != rank).sum())
            yield {"name": name, "dtype": str(dtype), "right": worst(float(not right)) == 0.0}


def tensors_of(rows: wb.distributed.OwnedRows) -> list[Tensor]:
    """The floating-point tensors that a store refers to, however deep."""
    found, seen, rest = [], set(), [rows]
    while rest:
        one = rest.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            found += [one] if one.is_floating_point() else []
        else:
            rest += list(getattr(one, "__dict__", {}).values())
    return found


def counters(config: Mapping[str, Any]) -> Rows:
    """Traffic of one step beside what the collectives were handed, and beside the batch itself."""
    size = dist.get_world_size()
    owned, owner, seeds, traffic = owned_graph(), owner_of(size), seeds_of(size), wb.Traffic()
    model, handed = new_model("sage-mean"), {"all_to_all_single": [], "all_reduce": []}
    sampler = wb.cooperative.CooperativeSampler(new_sampler("labor", False), owned, traffic=traffic)
    originals = {name: getattr(dist, name) for name in handed}

    def counted(name: str) -> Any:
        def call(output: Tensor, *args: Any, **kwargs: Any) -> Any:
            handed[name].append((output.nbytes, args[0].nbytes if args else 0))
            return originals[name](output, *args, **kwargs)

        return call

    with patch.multiple(dist, **{name: counted(name) for name in handed}):
        mb = sampler.sample(owned.graph, seeds, step=STEP)
        ids = handed["all_to_all_single"].copy()
        wb.cooperative.train_step(
            model, mb, wb.distributed.OwnedRows.of(X, owner), Y, F.cross_entropy, new_optimizer(model), traffic=traffic
        )
    row, exchanges = traffic.row(), mb.exchanges or ()
    sizes, rows = ids[::2], handed["all_to_all_single"][len(ids) :]
    sent = [sum(exchange.send_counts) for exchange in exchanges]
    received = [len(exchange.halo_ids) for exchange in exchanges]
    ranks = wb.cooperative.batches(
        GRAPH, seeds, sampler=new_sampler("labor", False), owner=owner, num_ranks=size, step=STEP
    )
    layers = wb.cooperative.cooperative_work(ranks, row_bytes=[X[0].nbytes, 8 * 8]).rows()
    own = [layer for layer in layers if layer["rank"] == dist.get_rank()]
    yield {
        "as_one_process_counts": row["rank_rows_bytes"] == sum(layer["received_bytes"] for layer in own)
        and row["rank_ids"] == sum(layer["sent"] for layer in own),
        "sizes": sizes == [(8 * size, 8 * size)] * len(exchanges),
        "ids": row["rank_ids_bytes"] == sum(output for output, _ in ids[1::2]) == 8 * sum(sent),
        "ids_sent": sum(given for _, given in ids[1::2]) == 8 * sum(received),
        "rows": row["rank_rows"] == sum(received) and row["rank_rows_bytes"] == sum(o for o, _ in rows[:2]),
        "gradients": row["rank_gradients"] == sent[1] and row["rank_gradients_bytes"] == rows[2][0],
        "calls": len(rows) == 3,  # no gradient of features is asked for
        "parameters": row["rank_parameters"] == sum(p.numel() for p in model.parameters()),
        "parameter_bytes": row["rank_parameters_bytes"] == sum(output for output, _ in handed["all_reduce"]),
        "some": min(*sent, *received) > 0,
    }


def caches(config: Mapping[str, Any]) -> Rows:
    """Caches of owned rows, cooperative and independent, beside a recount by the simulated machine."""
    size, rank = dist.get_world_size(), dist.get_rank()
    owned, owner = owned_graph(), owner_of(size)
    recorded = wb.features.RecordedRows(wb.distributed.OwnedRows.of(X, owner))
    cooperative, independent = wb.CachedRows(recorded, 6), wb.CachedRows(wb.distributed.OwnedRows.of(X, owner), 6)
    sampler, seen = new_sampler("labor", True), []
    for step in range(4):
        seeds = seeds_of(size).roll(step)[:12]
        mb = wb.cooperative.CooperativeSampler(sampler, owned).sample(owned.graph, seeds, step=step)
        equal = torch.equal(cooperative.read(mb.node_ids), X[mb.node_ids])
        alone = sampler.sample(GRAPH, seeds[owner[seeds] == rank], step=step)
        staged = wb.stage(independent, [alone])
        equal &= torch.equal(staged.read(alone.node_ids), X[alone.node_ids])
        seen.append((mb.node_ids, alone.node_ids.sort().values))
    traces = [wb.AccessTrace.of(list(reads)) for reads in zip(*seen, strict=True)]
    hits = [wb.features.simulate_cache(trace, 6, semantics="batch").num_hits for trace in traces]
    yield {
        "rows": worst(float(not equal)) == 0.0,
        "cooperative": tuple(cooperative.counts) == (hits[0], len(traces[0].ids) - hits[0]),
        "independent": tuple(independent.counts) == (hits[1], len(traces[1].ids) - hits[1]),
        "foreign": worst(float((owner[recorded.trace.ids] != rank).sum())),
        "hits": cooperative.counts.hits,
    }
