"""What Table 5, Figure 3 and Tables 2 and 3 share: the mini-batches that ranks sample in an epoch, and their counts."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from workbench.experiment.config import DataPointConfig
from workbench.macrobatch.plan import ReadCounts
from workbench.sampling.batches import EpochOrder

Ownership = Literal["random", "metis", "ldg", "fennel"]

ONE_BY_ONE, MACROBATCH, CACHE = "one by one", "macrobatch", "macrobatch + cache"
DISTDGL = "DistDGL"
SHORT = {ONE_BY_ONE: "1 by 1", MACROBATCH: "macro", CACHE: "cache"}
SYSTEMS = {"DGL": ONE_BY_ONE, "BGNN": MACROBATCH, "BGNNC": CACHE}
"""The paper's systems by how they fetch: DistDGL mini-batch by mini-batch, BatchGNN without and with the cache."""


NETWORK_BYTES_PER_SECOND = 183.6e6 * 512 / 32 / 2.76
"""Of one of the paper's ranks, as it fetches rows: those of papers100M on 32 ranks (Table 5), of 512 bytes, over their
seconds (Table 4): 1.06 GB/s, a twelfth of its network's 100 Gbit/s."""


class EpochConfig(DataPointConfig):
    """An epoch of several ranks, each with mini-batches of its own.

    Args:
        fanouts: neighbours per layer, input layer first.
        replace: sample with replacement.
        batch_size: training nodes per rank and mini-batch; an incomplete mini-batch is left out.
        num_ranks: number of ranks; each owns nodes, their features and in-edges.
        ownership: method of `partition_graph` by which ranks own nodes.
        runs: number of seeds.
    """

    fanouts: tuple[int, ...] = Field(min_length=1)
    replace: bool = True
    batch_size: PositiveInt
    num_ranks: PositiveInt
    ownership: Ownership = "random"
    runs: PositiveInt = 1


def owners(graph: wb.Graph, config: EpochConfig, number: int) -> Tensor:
    """The rank that owns each node."""
    return wb.partition_graph(graph, config.num_ranks, method=config.ownership, seed=config.seed + number)


def rank_orders(train: Tensor, owner: Tensor, config: EpochConfig, number: int) -> list[list[Tensor]]:
    """The seeds of every rank's mini-batches: the training nodes that it owns, shuffled; equally many for all ranks."""
    found = []
    for rank in range(config.num_ranks):
        mine = train[owner[train] == rank]
        order = EpochOrder(len(mine), config.batch_size, drop_last=True, seed=config.seed + number)
        found.append([mine[positions] for _, positions in order.positions(rank)])
    least = min(map(len, found))
    if not least:
        raise ValueError(
            f"a rank owns fewer than {config.batch_size} of {len(train)} training nodes, no mini-batch; set a smaller "
            "batch_size or fewer ranks"
        )
    return [seeds[:least] for seeds in found]


def batches_of_ranks(config: EpochConfig, data: Any, owner: Tensor, number: int) -> Iterator[Iterator[wb.MiniBatch]]:
    """The mini-batches of an epoch, rank by rank.

    Args:
        config: of the point.
        data: graph and training nodes.
        owner: the rank that owns each node.
        number: of the run, which selects seeds and neighbours.
    """
    graph = data.graph.to(config.device)
    sampler = wb.NeighborSampler(config.fanouts, replace=config.replace, seed=config.seed + number)
    for rank, orders in enumerate(rank_orders(data.train_idx.cpu(), owner.cpu(), config, number)):
        steps = enumerate(orders, rank * len(orders))  # ranks draw independently of each other
        yield (sampler.sample(graph, seeds.to(graph.device), step=step) for step, seeds in steps)


def counts_of_ranks(config: EpochConfig, data: Any, number: int = 0) -> list[wb.macrobatch.MacrobatchCounts]:
    """What the mini-batches of an epoch ask of other ranks, by rank.

    Args:
        config: of the point.
        data: graph and training nodes.
        number: of the run, which selects owners, seeds and neighbours.
    """
    owner = owners(data.graph, config, number)
    ranks = batches_of_ranks(config, data, owner, number)
    return [wb.macrobatch.count_macrobatches(batches, owner=owner, rank=rank) for rank, batches in enumerate(ranks)]


def reads(counts: wb.macrobatch.MacrobatchCounts, fetching: str) -> ReadCounts:
    """What a rank reads with sampled or with cached aggregates."""
    return counts.aggregated if fetching == CACHE else counts.sampled


def fetched_rows(ranks: Sequence[wb.macrobatch.MacrobatchCounts], fetching: str) -> int:
    """Rows that all ranks fetch from others in an epoch, which is one macrobatch unless they fetch one by one."""
    found = [reads(counts, fetching) for counts in ranks]
    return sum(one.stores * int(one.fetched.counts(epoch_size(one, fetching)).sum()) for one in found)


def epoch_size(counts: ReadCounts, fetching: str) -> int:
    """Mini-batches per macrobatch: 1, or all."""
    return 1 if fetching == ONE_BY_ONE else len(counts.fetched)


def short_name(dataset: str) -> str:
    """A data set as the paper calls it: stand-ins by the graph that they stand in for."""
    return dataset.removeprefix("synthetic-").removeprefix("ogbn-")


def row_bytes(data: Any) -> int:
    """Bytes of a node's features."""
    return data.num_features * data.x.element_size()
