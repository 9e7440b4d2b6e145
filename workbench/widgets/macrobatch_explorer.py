"""What macrobatches cost and save: bytes that a rank fetches, their seconds and memory, by B, F, ranks and width."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any

from workbench.core.dataset import Dataset
from workbench.core.errors import check_at_least
from workbench.core.units import format_bytes
from workbench.macrobatch.plan import MacrobatchCounts, count_macrobatches, macrobatch_bytes
from workbench.partition.graph import partition_graph
from workbench.sampling.batches import EpochOrder
from workbench.sampling.neighbor import NeighborSampler
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

_VALUE_BYTES = 4


def macrobatch_explorer(dataset: Dataset, **options: Any) -> Any:
    """Show `macrobatch_view` below controls for B, F, the number of ranks and the width of features.

    Args:
        dataset: its training nodes form the mini-batches.
        options: other arguments of `macrobatch_view`.
    """
    return explore(
        partial(macrobatch_view, dataset, **options),
        macrobatch=(8, 1, 2, 4, 16, 32, 64),
        group=(64, 1, 2, 4, 8, 16, 32),
        num_ranks=(4, 2, 8, 16, 32),
        width=(128, 32, 512, 1024),
    )


def macrobatch_view(
    dataset: Dataset,
    *,
    macrobatch: int = 8,
    group: int = 64,
    num_ranks: int = 4,
    width: int = 128,
    fanouts: Sequence[int] = (5, 10, 15),
    batch_size: int = 32,
    bytes_per_second: float = 1.06e9,
    seed: int = 0,
) -> "go.Figure":
    """Draw what one rank fetches in an epoch by the size of its macrobatches, the chosen one marked.

    Bytes are those of equations 2 to 5 of BatchGNN, relays apart; seconds are these bytes over the network's bandwidth;
    memory is the largest macrobatch's blocks and the rows of its largest group of features, local ones included.

    Args:
        dataset: its training nodes form the mini-batches.
        macrobatch: B, mini-batches that are sampled together; more than an epoch has count as all of them.
        group: F, mini-batches whose features are fetched at once; of another than a divisor of B, the greatest common
            divisor of both.
        num_ranks: ranks, which own nodes at random.
        width: features per node, float32.
        fanouts: neighbours per layer, input layer first, with replacement.
        batch_size: training nodes per mini-batch.
        bytes_per_second: of the network, per rank; the default is what the paper's ranks reach.
        seed: of owners and neighbours.

    Raises:
        ValueError: an invalid option, or a rank with fewer training nodes than a mini-batch.
    """
    from workbench.plots.lines import lines

    for name, value in {"macrobatch": macrobatch, "group": group, "width": width}.items():
        check_at_least(name, value, 1)
    counts = _counts_of(dataset, num_ranks, fanouts, batch_size, seed)
    sizes = sorted({min(2**power, len(counts)) for power in range(len(counts).bit_length() + 1)} | {1})
    chosen = min(macrobatch, len(counts))
    rows = [row for size in sorted({*sizes, chosen}) for row in _rows(counts, size, group, width, bytes_per_second)]
    at = next(row for row in rows if row["macrobatch"] == chosen and row["way"] == "sampled")
    figure = lines(
        rows,
        x="macrobatch",
        y=["fetched_bytes", "fetch_seconds", "memory_bytes"],
        group="way",
        log_x=True,
        title=f"B = {chosen}, F = {_group_of(counts, chosen, group)}: {format_bytes(at['fetched_bytes'])} fetched in "
        f"{1e3 * at['fetch_seconds']:.2f} ms, {format_bytes(at['memory_bytes'])} in memory",
    )
    return figure.add_vline(x=chosen, line={"dash": "dot", "width": 1})


def _counts_of(
    dataset: Dataset, num_ranks: int, fanouts: Sequence[int], batch_size: int, seed: int
) -> MacrobatchCounts:
    """What the mini-batches of rank 0 read in an epoch."""
    owner = partition_graph(dataset.graph, num_ranks, method="random", seed=seed)
    mine = dataset.train_idx[owner[dataset.train_idx] == 0]
    order = EpochOrder(len(mine), batch_size, drop_last=True, seed=seed)
    if not len(order):
        raise ValueError(
            f"rank 0 owns {len(mine)} training nodes; choose a batch_size below {batch_size}, or fewer ranks"
        )
    sampler = NeighborSampler(fanouts, replace=True, seed=seed)
    batches = (sampler.sample(dataset.graph, mine[at], step=step) for step, at in order.positions(0))
    return count_macrobatches(batches, owner=owner, rank=0)


def _group_of(counts: MacrobatchCounts, size: int, group: int) -> int:
    """Mini-batches whose aggregates are computed at once: as many as asked for that divide a macrobatch."""
    return gcd(group, size) if size < len(counts) else min(group, size)


def _rows(counts: MacrobatchCounts, size: int, group: int, width: int, speed: float) -> Iterator[dict[str, Any]]:
    row_bytes, group = _VALUE_BYTES * width, _group_of(counts, size, group)
    for way, read in {"sampled": counts.sampled, "cached aggregates": counts.aggregated}.items():
        cost = macrobatch_bytes(read, size=size, group_size=group, row_bytes=row_bytes)
        blocks = [int(read.batch_bytes[start : start + size].sum()) for start in range(0, len(counts), size)]
        yield {
            "macrobatch": size,
            "way": way,
            "fetched_bytes": int(cost.total),
            "fetch_seconds": cost.total / speed,
            "memory_bytes": read.stores * int(read.rows.counts(group).max()) * row_bytes + max(blocks),
        }
