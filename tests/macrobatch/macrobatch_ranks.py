"""Functions of ranks that sample and train in macrobatches, beside mini-batches of one process; rank 0 yields rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

import workbench as wb
from tests.distributed.cooperative_setting import (
    GRAPH,
    Rows,
    X,
    Y,
    gathered,
    new_model,
    new_optimizer,
    new_sampler,
    owned_graph,
    owner_of,
    seeds_of,
)
from tests.distributed.owned_rows_ranks import tensors_of

BATCH_SIZE, EPOCHS = 4, 2


def seeds_of_rank() -> Tensor:
    """The seeds that this rank owns: unequally many, and from three ranks on, none on the last."""
    size = dist.get_world_size()
    seeds = seeds_of(size)
    return seeds[owner_of(size)[seeds] == dist.get_rank()]


def assert_same_batch(a: wb.MiniBatch, b: wb.MiniBatch) -> None:
    """All tensors are equal, in dtype too."""
    assert torch.equal(a.node_ids, b.node_ids) and len(a.blocks) == len(b.blocks)
    for ours, theirs in zip(a.blocks, b.blocks, strict=True):
        for name in ("indptr", "indices", "edge_ids", "edge_weight", "edge_type"):
            one, other = getattr(ours, name), getattr(theirs, name)
            assert (one is None) == (other is None), name
            assert one is None or (one.dtype == other.dtype and torch.equal(one, other)), name


def equal(config: Mapping[str, Any]) -> Rows:
    """Training in macrobatches beside mini-batches that are sampled and fetched one by one, in every bit.

    With "ahead", macrobatches are prepared in a thread, in a group of their own.
    """
    owned, owner, seeds = owned_graph(), owner_of(dist.get_world_size()), seeds_of_rank()
    group: Any = dist.new_group() if config.get("ahead") else None
    for name, dependent, size, group_size in config["cases"]:
        sampler, model, plain = new_sampler(name, dependent), new_model("sage-mean"), new_model("sage-mean")
        optimizers, links = [new_optimizer(m, 0.1) for m in (model, plain)], wb.Traffic()
        loader = wb.macrobatch.batches(
            owned.graph,
            seeds,
            sampler=wb.macrobatch.MacrobatchSampler(sampler, owned, group, traffic=links),
            store=wb.distributed.OwnedRows.of(X, owner, group, traffic=links),
            batch_size=BATCH_SIZE,
            size=size,
            group_size=group_size,
        )
        loader = wb.prefetch(loader) if group is not None else loader
        steps, losses = [], []
        for step, mb, rows in (item for _ in range(EPOCHS) for item in loader):
            alone = sampler.sample(GRAPH, mb.seeds, step=step)
            assert_same_batch(mb, alone)
            assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
            pair = [
                wb.cooperative.train_step(m, b, x, Y, F.cross_entropy, o)
                for m, b, x, o in zip((model, plain), (mb, alone), (rows, X), optimizers, strict=True)
            ]
            losses.append([float(loss) for loss in pair])
            steps.append((step, mb.num_seeds))
        parameters = zip(model.parameters(), plain.parameters(), strict=True)
        everything = gathered(
            {
                "steps": [step for step, _ in steps] == list(range(EPOCHS * len(loader))),
                "losses": all(ours == theirs for ours, theirs in losses),
                "parameters": all(torch.equal(a, b) for a, b in parameters),
                "seeds": sum(count for _, count in steps) == EPOCHS * len(seeds),
                "empty": sum(not count for _, count in steps),
                "relays": links.snapshot().count("rank", "relays"),
                "length": len(loader),
            }
        )
        yield {key: [one[key] for one in everything] for key in everything[0]} | {"loss": losses[-1][0]}


@contextmanager
def handed_bytes() -> Iterator[dict[str, int]]:
    """Counts the calls of all-to-all and the bytes they are handed for other ranks, and receive of them."""
    handed, original, rank = {"calls": 0, "received": 0, "sent": 0}, dist.all_to_all_single, dist.get_rank()

    def counted(output: Tensor, given: Tensor, receive: list[int], send: list[int], **options: Any) -> Any:
        handed["calls"] += 1
        handed["received"] += output.nbytes - receive[rank]
        handed["sent"] += given.nbytes - send[rank]
        return original(output, given, receive, send, **options)

    with patch.object(dist, "all_to_all_single", counted):
        yield handed


def counters(config: Mapping[str, Any]) -> Rows:
    """Bytes of an epoch beside equations 2 and 3, restricted to remote rows, and what the collectives were handed."""
    owned, owner, rank = owned_graph(), owner_of(dist.get_world_size()), dist.get_rank()
    for size, group_size in config["windows"]:
        links, sampler = wb.Traffic(), new_sampler("replace", False)
        loader = wb.macrobatch.batches(
            owned.graph,
            seeds_of_rank(),
            sampler=wb.macrobatch.MacrobatchSampler(sampler, owned, traffic=links),
            store=wb.distributed.OwnedRows.of(X, owner, traffic=links),
            batch_size=BATCH_SIZE,
            size=size,
            group_size=group_size,
            epoch=0,
        )
        with handed_bytes() as handed:
            batches = [mb for _, mb, _ in loader]
        row, topology, asked, windows = links.row(), 0, 0, []
        for mb in batches:
            for block in mb.blocks:
                remote = owner[mb.node_ids[: block.num_dst]] != rank
                asked += int(remote.sum())
                assert block.edge_type is not None
                per_edge = block.indices.element_size() + block.edge_type.element_size()
                topology += 4 * int(remote.sum()) + per_edge * int(block.indptr.diff()[remote].sum())
        for start in range(0, len(batches), size):
            window = batches[start : start + size]
            groups = [window[at : at + group_size] for at in range(0, len(window), group_size)]
            windows.append([torch.cat([mb.node_ids for mb in group]).unique() for group in groups])
        fetched = [int((owner[ids] != rank).sum()) for groups in windows for ids in groups]
        everything = gathered((asked, sum(fetched), row["rank_ids"], handed["sent"], handed["received"]))
        total = sum(row[f"rank_{item}_bytes"] for item in ("ids", "edges", "rows", "relays"))
        yield {
            "topology": row["rank_edges_bytes"] == topology,
            "rows": (row["rank_rows"], row["rank_rows_bytes"]) == (sum(fetched), sum(fetched) * X[0].nbytes),
            "ids": sum(one[2] for one in everything) == sum(one[0] + one[1] for one in everything),
            "relays": row["rank_relays"] == 2 * len(windows) + len(fetched),
            "received": total == handed["received"],
            "sent": sum(one[3] for one in everything) == sum(one[4] for one in everything),
            "calls": handed["calls"] == 4 * 2 * len(windows) + 3 * len(fetched),
            "some": sum(fetched) > 0,
        } | {"relay_bytes": row["rank_relays_bytes"], "fetched": sum(fetched), "num_batches": len(batches)}


def from_disk(config: Mapping[str, Any]) -> Rows:
    """A rank that opens its own part of topology and features, and holds nothing else."""
    folder, rank, links = Path(config["folder"]), dist.get_rank(), wb.Traffic()
    owned = wb.distributed.open_owned_graph(folder / "graph")
    rows = wb.distributed.OwnedRows(wb.MappedRows(folder / "rows" / f"part-{rank}"), owned.owner, traffic=links)
    sampler, mine = new_sampler("labor", True), owned.owner == rank
    foreign = (~mine).nonzero()[:1, 0]
    options: dict[str, Any] = {"sampler": wb.macrobatch.MacrobatchSampler(sampler, owned, traffic=links), "store": rows}
    loader = wb.macrobatch.batches(owned.graph, seeds_of_rank(), batch_size=BATCH_SIZE, size=4, **options)
    for step, mb, staged in loader:
        assert_same_batch(mb, sampler.sample(GRAPH, mb.seeds, step=step))
        assert torch.equal(staged.read(mb.node_ids), X[mb.node_ids])
    alone: Any = [dist.new_group([one]) for one in range(dist.get_world_size())][rank]
    refused = []
    for call in (lambda: rows.read(foreign), lambda: owned.draw(sampler, foreign, layer=0)):
        try:
            call()
        except IndexError as error:
            refused.append(str(error))
    yield {
        "resident_rows": sum(t.numel() for t in tensors_of(rows)) - int(mine.sum()) * X.shape[1],
        "resident_edges": len(owned.graph.indices) - int(GRAPH.in_degrees()[mine].sum()),
        "foreign_edges": int(owned.graph.in_degrees()[~mine].sum()),
        "refused": refused,
        "batches": len(loader),
        "wrong_parts": _refusal(lambda: wb.distributed.open_owned_graph(folder / "graph", alone)),
    }


def refused_from_disk(config: Mapping[str, Any]) -> Rows:
    """The message of every rank where there are more ranks than parts."""
    yield {"texts": gathered(_refusal(lambda: wb.distributed.open_owned_graph(Path(config["folder"]) / "graph")))}


def idle_ranks_from_disk(config: Mapping[str, Any]) -> Rows:
    """Ranks whose part of a divided graph owns no node take part in all that the others do."""
    owned = wb.distributed.open_owned_graph(Path(config["folder"]) / "graph")
    rank_rows = wb.MappedRows(Path(config["folder"]) / "rows" / f"part-{dist.get_rank()}")
    rows, sampler = wb.distributed.OwnedRows(rank_rows, owned.owner), new_sampler("labor", True)
    loader = wb.macrobatch.batches(
        owned.graph,
        seeds_of_rank(),
        batch_size=BATCH_SIZE,
        size=4,
        sampler=wb.macrobatch.MacrobatchSampler(sampler, owned),
        store=rows,
    )
    for step, mb, staged in loader:
        assert_same_batch(mb, sampler.sample(GRAPH, mb.seeds, step=step))
        assert torch.equal(staged.read(mb.node_ids), X[mb.node_ids])
    yield {"ranks": owned.num_ranks, "batches": len(loader)}


def _refusal(call: Any) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""
