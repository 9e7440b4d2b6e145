"""Measured peak memory of the micro-batches of one batch, by one partitioner or by two."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.core.minibatch import MiniBatch
from workbench.nn.model import build_model, relation_options
from workbench.partition.batch import partition_batch
from workbench.partition.graph import partition_graph
from workbench.partition.redundancy import redundancy
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.profile import EpochProfile, profile_epoch
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go


def micro_batch_explorer(
    dataset: Dataset,
    *,
    methods: Sequence[str] = ("reg", "star_refined", "metis", "random", "range"),
    num_parts: Sequence[int] = (4, 1, 2, 8, 16, 32),
    fanouts: Sequence[Sequence[int]] = ((10, 25), (5, 5)),
    **options: Any,
) -> Any:
    """Show `micro_batch_view` below controls for two partitioners, K, fanouts and budget.

    Args:
        dataset: with features and labels.
        methods: partitioners, of `workbench.partition.PARTITION_METHODS`; the first is the default, beside no other.
        num_parts: numbers of micro-batches; the first is the default.
        fanouts: choices of neighbours per layer, input layer first; the first is the default.
        options: other arguments of `micro_batch_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    view = partial(micro_batch_view, dataset, **options)
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    others = {"none": None} | {method: method for method in methods}
    budgets = {"none": None} | {f"{share:.0%} of the whole batch's": share for share in (0.75, 0.5, 0.25)}
    return explore(view, method=methods, against=others, num_parts=num_parts, fanout=named, budget=budgets)


def micro_batch_view(
    dataset: Dataset,
    *,
    method: str,
    num_parts: int,
    fanout: Sequence[int],
    against: str | None = None,
    budget: float | None = None,
    model: str = "sage-mean",
    hidden_dim: int = 64,
    num_seeds: int = 1000,
    capacity_bytes: int | None = None,
    seed: int = 0,
) -> "go.Figure":
    """Run a training step and draw the peak memory of each micro-batch, with their redundancy, below the whole batch's.

    Args:
        dataset: with features and labels.
        method: partitioner, one of `workbench.partition.PARTITION_METHODS`.
        num_parts: number of micro-batches, capped at the number of seeds.
        fanout: neighbours per layer, input layer first.
        against: another partitioner, drawn beside the first on the same axis.
        budget: capacity as a share of the whole batch's peak; None for `capacity_bytes`.
        model: kind of layer, one of `workbench.build_model`; trained by Adam.
        hidden_dim: width of hidden layers.
        num_seeds: the batch is this many training nodes, from the first on.
        capacity_bytes: drawn as a line; None for no limit.
        seed: random seed of sampling, partitioning and weights.

    Raises:
        ValueError: invalid method, fanouts or model.
    """
    from workbench.plots.bars import memory_bars_beside
    from workbench.plots.looks import looks

    relations: dict[str, Any] = relation_options(model, dataset.graph)
    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx[:num_seeds])
    num_parts = min(num_parts, batch.num_seeds)
    net = build_model(
        model,
        in_dim=dataset.num_features,
        hidden_dim=hidden_dim,
        out_dim=dataset.num_classes,
        num_layers=len(fanout),
        seed=seed,
        **relations,
    )

    def measured(micro: Sequence[MiniBatch]) -> EpochProfile:
        optimizer = torch.optim.Adam(net.parameters())
        return profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, optimizer)

    cuts = {}
    for name in dict.fromkeys(filter(None, (method, against))):
        node_parts = partition_graph(dataset.graph, num_parts, seed=seed) if name == "cluster" else None
        micro = batch.split(partition_batch(batch, num_parts, method=name, seed=seed, node_parts=node_parts))
        fewer = "" if len(micro) == num_parts else f" ({len(micro)} parts)"
        cuts[looks([name])[name].name + fewer] = measured(micro).part_peak_bytes, redundancy(micro, batch)
    (whole_bytes,) = measured([batch]).part_peak_bytes
    return memory_bars_beside(
        cuts,
        whole_bytes=whole_bytes,
        capacity_bytes=capacity_bytes if budget is None else round(budget * whole_bytes),
        title=f"{dataset.name}: {' and '.join(cuts)}, K = {num_parts}, fanouts {', '.join(map(str, fanout))}",
    )
