"""Micro-batches of one batch: measured peaks by partitioner, memory by term, in-degrees, and training curves."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.core.minibatch import MiniBatch
from workbench.memory.betty import betty_terms
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import estimate_memory
from workbench.meter.limit import free_bytes
from workbench.nn.gnn import GNN
from workbench.nn.model import build_model, models_for, relation_options
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
    dataset: Dataset, *, fanouts: Sequence[Sequence[int]] = ((10, 25), (5, 5)), **options: Any
) -> Any:
    """Show `micro_batch_view` below controls for two partitioners, K, fanouts and budget.

    Args:
        dataset: with features and labels.
        fanouts: choices of neighbours per layer, input layer first; the first is the default.
        options: other arguments of `micro_batch_view`.
    """
    view = partial(micro_batch_view, dataset, **options)
    methods = ("reg", "star_refined", "metis", "random", "range")
    return explore(
        view,
        method=methods,
        against={"none": None} | {method: method for method in methods},
        num_parts=(4, 1, 2, 8, 16, 32),
        fanout=_named(fanouts),
        budget={"none": None} | {f"{share:.0%} of the whole batch's": share for share in (0.75, 0.5, 0.25)},
    )


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
    from workbench.plots.style import looks

    net = _model(dataset, model, fanout, hidden_dim=hidden_dim, seed=seed)
    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx[:num_seeds])
    num_parts, cuts = min(num_parts, batch.num_seeds), {}
    for name in dict.fromkeys(filter(None, (method, against))):
        node_parts = partition_graph(dataset.graph, num_parts, seed=seed) if name == "cluster" else None
        micro = batch.split(partition_batch(batch, num_parts, method=name, seed=seed, node_parts=node_parts))
        fewer = "" if len(micro) == num_parts else f" ({len(micro)} parts)"
        cuts[looks([name])[name].name + fewer] = _profile(net, micro, dataset).part_peak_bytes, redundancy(micro, batch)
    (whole_bytes,) = _profile(net, [batch], dataset).part_peak_bytes
    return memory_bars_beside(
        cuts,
        whole_bytes=whole_bytes,
        capacity_bytes=capacity_bytes if budget is None else round(budget * whole_bytes),
        title=f"{dataset.name}: {' and '.join(cuts)}, K = {num_parts}, fanouts {', '.join(map(str, fanout))}",
    )


def terms_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] | None = None,
    fanouts: Sequence[Sequence[int]] = ((10,), (10, 25), (5, 10, 15)),
) -> Any:
    """Show `terms_view` below controls for model, K, fanouts and width, and a button that starts the measurement.

    Args:
        dataset: with features and labels.
        models: kinds of layer, of `workbench.build_model`; the first is the default. None: all that the graph allows.
        fanouts: choices of neighbours per layer, input layer first; the first is the default.
    """
    return explore(
        partial(terms_view, dataset),
        button="Measure",
        model=models_for(dataset.graph) if models is None else models,
        num_parts=(1, 2, 4, 8),
        fanout=_named(fanouts),
        hidden_dim=(64, 16, 128, 256),
    )


def terms_view(
    dataset: Dataset,
    *,
    model: str = "sage-mean",
    num_parts: int = 1,
    fanout: Sequence[int] = (10,),
    hidden_dim: int = 64,
    method: str = "reg",
    seed: int = 0,
) -> "go.Figure":
    """Draw the largest micro-batch's memory by term, our estimate beside Betty's, and the measured peak of the step.

    The step runs only if its estimate fits into the free memory.

    Args:
        dataset: with features and labels; its training nodes are the batch.
        model: kind of layer, one of `workbench.build_model`; trained by Adam.
        num_parts: number of micro-batches.
        fanout: neighbours per layer, input layer first.
        hidden_dim: width of hidden layers.
        method: partitioner, one of `workbench.partition.PARTITION_METHODS`.
        seed: random seed of sampling, partitioning and weights.

    Raises:
        ValueError: invalid fanouts, model or method, or rgcn on a graph without edge types.
    """
    from workbench.plots.bars import Component, component_bars

    net = _model(dataset, model, fanout, hidden_dim=hidden_dim, seed=seed)
    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(partition_batch(batch, num_parts, method=method, seed=seed))
    ours = _largest([estimate_memory(net, mb, accumulating=part > 0) for part, mb in enumerate(micro)])
    estimates = {"our terms": ours, "Betty's terms": _largest([betty_terms(net, mb) for mb in micro])}
    bars = [Component("", model, name, estimate.terms, estimate.peak_bytes) for name, estimate in estimates.items()]
    peak = _profile(net, micro, dataset).peak_bytes if ours.peak_bytes <= free_bytes("cpu") else None
    if peak is not None:
        bars.append(Component("", model, "measured", None, peak))
    return component_bars(bars, title=_largest_term(model, num_parts, ours), subtitle=_errors(estimates, peak))


def _largest(estimates: Sequence[MemoryEstimate]) -> MemoryEstimate:
    return max(estimates, key=lambda estimate: estimate.peak_bytes)


def _largest_term(model: str, num_parts: int, ours: MemoryEstimate) -> str:
    from workbench.plots.style import TERM_LOOKS

    term = max(ours.terms, key=lambda term: ours.terms[term])
    of = f"the largest of {num_parts} micro-batches" if num_parts > 1 else "the batch"
    return f"{model}, {of}: the largest term is {TERM_LOOKS[term].name}, {ours.terms[term] / ours.peak_bytes:.0%}"


def _errors(estimates: Mapping[str, MemoryEstimate], peak: int | None) -> str:
    if peak is None:
        return "not measured: the step would not fit into the free memory"
    errors = (f"{name} {estimate.peak_bytes / peak - 1:+.2%}" for name, estimate in estimates.items())
    return f"against the measured peak: {', '.join(errors)}"


def degree_explorer(dataset: Dataset) -> Any:
    """Show `degree_view` below controls for partitioner, K and fanout.

    Args:
        dataset: its training nodes are the batch.
    """
    controls = {"method": ("reg", "metis", "range", "random"), "num_parts": (2, 3, 4, 5, 6), "fanout": (10, 5, 15, 20)}
    return explore(partial(degree_view, dataset), **controls)


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
    shares = ((max(sizes) - min(sizes)) / max(*sizes, 1) for sizes in (seeds, last))
    return "parts differ by {:.0%} in seeds, {:.0%} in the last bucket: (max − min) ÷ max".format(*shares)


_CUT_BY = {"whole batch": (), "micro-batch": ("num_parts",), "mini-batch": ("num_batches",)}


def curve_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] = ("sage-mean", "gat", "gcn", "gin", "sage-pool"),
    **options: Any,
) -> Any:
    """Show `curve_view` below controls for model, K and dropout, and a button that starts training.

    Args:
        dataset: with features and labels.
        models: choices of `curve_view`'s `model`; the first is the default.
        options: other arguments of `curve_view`.
    """
    view = partial(curve_view, dataset, **options)
    return explore(view, button="train", model=models, num_parts=(8, 2, 4, 16), dropout=(0.5, 0.0))


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

    sampler = NeighborSampler(fanout, seed=seed)

    def rows(approach: str) -> Iterator[dict[str, Any]]:
        net = _model(dataset, model, fanout, hidden_dim=hidden_dim, dropout=dropout, seed=seed)
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


def _model(
    dataset: Dataset, kind: str, fanout: Sequence[int], *, hidden_dim: int, seed: int, dropout: float = 0.0
) -> GNN:
    """A model with one layer per fanout, from the features to the classes of a dataset."""
    widths: dict[str, Any] = {"in_dim": dataset.num_features, "hidden_dim": hidden_dim, "out_dim": dataset.num_classes}
    relations: dict[str, Any] = relation_options(kind, dataset.graph)
    return build_model(kind, num_layers=len(fanout), dropout=dropout, seed=seed, **widths, **relations)


def _profile(net: GNN, micro: Sequence[MiniBatch], dataset: Dataset) -> EpochProfile:
    """One training step by Adam."""
    optimizer = torch.optim.Adam(net.parameters())
    return profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, optimizer)


def _named(fanouts: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
