"""Measured peak memory of the micro-batches of one batch, by one partitioner or by two."""

from collections.abc import Iterator, Sequence
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
from workbench.training.epoch import epoch_steps, train_epochs
from workbench.training.evaluate import split_accuracies
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
    from workbench.plots.memory_bars import memory_bars_beside
    from workbench.plots.style import looks

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
    from workbench.plots.bars import degree_histogram
    from workbench.plots.style import looks

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


_CUT_BY = {"whole batch": (), "micro-batch": ("num_parts",), "mini-batch": ("num_batches",)}


def curve_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] = ("sage-mean", "gat", "gcn", "gin", "sage-pool"),
    num_parts: Sequence[int] = (8, 2, 4, 16),
    dropout: Sequence[float] = (0.5, 0.0),
    **options: Any,
) -> Any:
    """Show `curve_view` below controls for model, K and dropout, and a button that starts training.

    Args:
        dataset: with features and labels.
        models: choices of `curve_view`'s `model`; the first is the default.
        num_parts: numbers of micro- and mini-batches; the first is the default.
        dropout: dropout probabilities; the first is the default.
        options: other arguments of `curve_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    view = partial(curve_view, dataset, **options)
    return explore(view, button="train", model=models, num_parts=num_parts, dropout=dropout)


def curve_view(
    dataset: Dataset,
    *,
    model: str = "sage-mean",
    num_parts: int = 8,
    dropout: float = 0.5,
    fanout: Sequence[int] = (5, 10),
    hidden_dim: int = 32,
    epochs: int = 10,
    learning_rate: float = 0.01,
    seed: int = 0,
) -> "go.Figure":
    """Train on a whole batch, its micro-batches, and as many mini-batches; draw loss and test accuracy by epoch.

    Args:
        dataset: with features and labels; its training nodes are the batch.
        model: kind of layer, one of `workbench.build_model`.
        num_parts: number of micro- and mini-batches, at least 2.
        dropout: dropout probability.
        fanout: neighbours per layer, input layer first.
        hidden_dim: width of hidden layers.
        epochs: number of epochs.
        learning_rate: learning rate of Adam.
        seed: random seed of sampling, partitioning, weights and dropout.

    Raises:
        ValueError: invalid fanouts, model or number of parts.
    """
    from workbench.plots.lines import lines

    relations: dict[str, Any] = relation_options(model, dataset.graph)
    sampler = NeighborSampler(fanout, seed=seed)

    def rows(approach: str) -> Iterator[dict[str, Any]]:
        net = build_model(
            model,
            in_dim=dataset.num_features,
            hidden_dim=hidden_dim,
            out_dim=dataset.num_classes,
            num_layers=len(fanout),
            dropout=dropout,
            seed=seed,
            **relations,
        )
        cut: dict[str, Any] = dict.fromkeys(_CUT_BY[approach], num_parts)
        steps = partial(epoch_steps, dataset.graph, dataset.train_idx, sampler=sampler, seed=seed, **cut)
        yield from train_epochs(
            net,
            lambda epoch: steps(epoch=epoch),
            dataset.x,
            dataset.y,
            cross_entropy,
            torch.optim.Adam(net.parameters(), lr=learning_rate),
            epochs=epochs,
            evaluate=lambda: split_accuracies(net, dataset),
        )

    table = [{"training": approach, **row} for approach in _CUT_BY for row in rows(approach)]
    title = f"{dataset.name}: {model}, K = {num_parts}, dropout {dropout:g}"
    return lines(table, x="epoch", y=["loss", "test_accuracy"], group="training", band=True, title=title)
