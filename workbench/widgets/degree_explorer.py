"""In-degrees of the seeds of a batch and of its micro-batches."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.core.dataset import Dataset
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch
from workbench.sampling.neighbor import NeighborSampler
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go


def degree_explorer(
    dataset: Dataset,
    *,
    methods: Sequence[str] = ("reg", "metis", "range", "random"),
    num_parts: Sequence[int] = (2, 3, 4, 5, 6),
    fanouts: Sequence[int] = (10, 5, 15, 20),
) -> Any:
    """Show `degree_view` below controls for partitioner, K and fanout.

    Args:
        dataset: its training nodes are the batch.
        methods: partitioners, of `workbench.partition.PARTITION_METHODS`; the first is the default.
        num_parts: numbers of micro-batches, at most six; the first is the default.
        fanouts: neighbours per seed; the first is the default.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    return explore(partial(degree_view, dataset), method=methods, num_parts=num_parts, fanout=fanouts)


def degree_view(
    dataset: Dataset, *, method: str = "reg", num_parts: int = 2, fanout: int = 10, seed: int = 0
) -> "go.Figure":
    """Sample a batch of one layer, split it, and draw the in-degrees of its seeds and of each micro-batch's.

    Args:
        dataset: its training nodes are the batch.
        method: partitioner, one of `workbench.partition.PARTITION_METHODS`.
        num_parts: number of micro-batches, at most six.
        fanout: neighbours per seed.
        seed: random seed of sampling and partitioning.

    Raises:
        ValueError: invalid method or fanout, or more parts than colours.
    """
    from workbench.plots.histograms import degree_histogram
    from workbench.plots.looks import looks

    batch = NeighborSampler([fanout], seed=seed).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(partition_batch(batch, num_parts, method=method, seed=seed))
    parts = {f"part {part}": _counts(mb, fanout) for part, mb in enumerate(micro)}
    title = f"{dataset.name}: {looks([method])[method].name}, K = {num_parts}"
    panels = {"batch": {"batch": _counts(batch, fanout)}, f"{num_parts} micro-batches": parts}
    return degree_histogram(panels, title=title, subtitle=_imbalance(parts, fanout))


def _counts(mb: MiniBatch, fanout: int) -> dict[int, int]:
    counts = mb.blocks[-1].indptr.diff().bincount(minlength=fanout + 1)
    return dict(enumerate(counts.tolist()))


def _imbalance(parts: dict[str, dict[int, int]], fanout: int) -> str:
    seeds = [sum(counts.values()) for counts in parts.values()]
    last = [counts[fanout] for counts in parts.values()]
    shares = (1 - min(sizes) / max(*sizes, 1) for sizes in (seeds, last))
    return "parts differ by {:.0%} in seeds, {:.0%} in the last bucket: (max − min) ÷ max".format(*shares)
