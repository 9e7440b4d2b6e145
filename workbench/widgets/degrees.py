"""In-degrees of a batch's destinations, whole and in the parts that a partitioner cuts."""

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
    """Choose partitioner, K and fanout, and see `degree_view` of them.

    Args:
        dataset: as `workbench.load_dataset` gives it.
        methods: of `workbench.PARTITION_METHODS`; the first is shown first, as in what follows.
        num_parts: micro-batches, at most six.
        fanouts: neighbours of a destination.

    Returns:
        See `explore`.
    """
    return explore(partial(degree_view, dataset), method=methods, num_parts=num_parts, fanout=fanouts)


def degree_view(
    dataset: Dataset, *, method: str = "reg", num_parts: int = 2, fanout: int = 10, seed: int = 0
) -> "go.Figure":
    """In-degrees of the destinations of a batch of one layer, and of its micro-batches'.

    Args:
        dataset: all its training nodes are the batch.
        method: of `workbench.partition_batch`.
        num_parts: micro-batches, at most six.
        fanout: neighbours of a destination.
        seed: of sampling and partition.

    Raises:
        ValueError: what sampling or partition refuse, or more parts than there are colours.
    """
    from workbench.plots.degrees import degree_bars
    from workbench.plots.style import looks

    batch = NeighborSampler([fanout], seed=seed).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(partition_batch(batch, num_parts, method=method, seed=seed))
    parts = {f"part {part}": _counts(mb, fanout) for part, mb in enumerate(micro)}
    title = f"{dataset.name}: {looks([method])[method].name}, K = {num_parts}"
    panels = {"batch": {"batch": _counts(batch, fanout)}, f"{num_parts} micro-batches": parts}
    return degree_bars(panels, title=title, subtitle=_apart(parts, fanout))


def _counts(mb: MiniBatch, fanout: int) -> dict[int, int]:
    counts = mb.blocks[-1].indptr.diff().bincount(minlength=fanout + 1)
    return dict(enumerate(counts.tolist()))


def _apart(parts: dict[str, dict[int, int]], fanout: int) -> str:
    outputs = [sum(counts.values()) for counts in parts.values()]
    last = [counts[fanout] for counts in parts.values()]
    shares = (1 - min(sizes) / max(*sizes, 1) for sizes in (outputs, last))
    return "(most − least) ÷ most: {:.0%} in outputs, {:.0%} in the last bucket".format(*shares)
