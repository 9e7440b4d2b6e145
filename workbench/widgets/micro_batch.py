"""Micro-batches of one batch, as measured."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.nn.model import build_model
from workbench.partition.batch import partition_batch
from workbench.partition.graph import partition_graph
from workbench.partition.redundancy import redundancy
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.profile import profile_epoch
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
    """Choose partitioner, K and fanouts, and see `micro_batch_view` of them.

    Args:
        dataset: as `workbench.load_dataset` gives it.
        methods: of `workbench.PARTITION_METHODS`; the first is shown first, as in what follows.
        num_parts: micro-batches.
        fanouts: lists of neighbours a layer, input layer first.
        options: further arguments of `micro_batch_view`.

    Returns:
        See `explore`.
    """
    view = partial(micro_batch_view, dataset, **options)
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    return explore(view, method=methods, num_parts=num_parts, fanout=named)


def micro_batch_view(
    dataset: Dataset,
    *,
    method: str,
    num_parts: int,
    fanout: Sequence[int],
    model: str = "sage-mean",
    hidden_dim: int = 64,
    num_seeds: int = 1000,
    budget_bytes: int | None = None,
    seed: int = 0,
) -> "go.Figure":
    """Memory bars of the micro-batches of one batch, as measured in a training step, with their redundancy.

    Args:
        dataset: with features and labels.
        method: of `workbench.PARTITION_METHODS`.
        num_parts: micro-batches; no more than there are seeds.
        fanout: neighbours a layer, input layer first.
        model: see `workbench.build_model`; trained by Adam.
        hidden_dim: width of hidden layers.
        num_seeds: the first of the training nodes are the batch.
        budget_bytes: line to hold the bars against.
        seed: of sampling, partition and weights.

    Raises:
        ValueError: what sampling, partition or model refuse.
    """
    from workbench.plots.memory import memory_bars
    from workbench.plots.style import looks

    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx[:num_seeds])
    num_parts = min(num_parts, batch.num_seeds)
    node_parts = partition_graph(dataset.graph, num_parts, seed=seed) if method == "cluster" else None
    part = partition_batch(batch, num_parts, method=method, seed=seed, node_parts=node_parts)
    micro = batch.split(part)
    net = build_model(
        model,
        in_dim=dataset.num_features,
        hidden_dim=hidden_dim,
        out_dim=dataset.num_classes,
        num_layers=len(fanout),
        seed=seed,
    )
    profile = profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, torch.optim.Adam(net.parameters()))
    settings = f"K = {len(micro)}, fanouts {', '.join(map(str, fanout))}"
    return memory_bars(
        profile.part_peak_bytes,
        budget_bytes=budget_bytes,
        redundancy=redundancy(micro, batch),
        title=f"{dataset.name}: {looks([method])[method].name}, {settings}",
    )
