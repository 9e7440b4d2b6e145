"""Memory of a training step by term: our estimate, Betty's estimate, and the measured peak."""

from collections.abc import Mapping, Sequence
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
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.profile import profile_epoch
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go


def terms_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] | None = None,
    num_parts: Sequence[int] = (1, 2, 4, 8),
    fanouts: Sequence[Sequence[int]] = ((10,), (10, 25), (5, 10, 15)),
    hidden_dims: Sequence[int] = (64, 16, 128, 256),
) -> Any:
    """Show `terms_view` below controls for model, K, fanouts and width, and a button that starts the measurement.

    Args:
        dataset: with features and labels.
        models: kinds of layer, of `workbench.build_model`; the first is the default. None: all that the graph allows.
        num_parts: numbers of micro-batches; the first is the default.
        fanouts: choices of neighbours per layer, input layer first; the first is the default.
        hidden_dims: widths of hidden layers; the first is the default.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    view = partial(terms_view, dataset)
    models = models_for(dataset.graph) if models is None else models
    return explore(view, button="Measure", model=models, num_parts=num_parts, fanout=named, hidden_dim=hidden_dims)


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
    from workbench.plots.stacked_bars import Component, component_bars

    relations: dict[str, Any] = relation_options(model, dataset.graph)
    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(partition_batch(batch, num_parts, method=method, seed=seed))
    widths: dict[str, Any] = {"in_dim": dataset.num_features, "hidden_dim": hidden_dim, "out_dim": dataset.num_classes}
    net = build_model(model, num_layers=len(fanout), seed=seed, **widths, **relations)
    ours = _largest([estimate_memory(net, mb, accumulating=part > 0) for part, mb in enumerate(micro)])
    estimates = {"our terms": ours, "Betty's terms": _largest([betty_terms(net, mb) for mb in micro])}
    bars = [Component("", model, name, estimate.terms, estimate.peak_bytes) for name, estimate in estimates.items()]
    peak = _measured(net, micro, dataset) if ours.peak_bytes <= free_bytes("cpu") else None
    if peak is not None:
        bars.append(Component("", model, "measured", None, peak))
    return component_bars(bars, title=_title(model, num_parts, ours), subtitle=_subtitle(estimates, peak))


def _largest(estimates: Sequence[MemoryEstimate]) -> MemoryEstimate:
    return max(estimates, key=lambda estimate: estimate.peak_bytes)


def _measured(net: GNN, micro: Sequence[MiniBatch], dataset: Dataset) -> int | None:
    optimizer = torch.optim.Adam(net.parameters())
    return profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, optimizer).peak_bytes


def _title(model: str, num_parts: int, ours: MemoryEstimate) -> str:
    from workbench.plots.style import TERM_LOOKS

    term = max(ours.terms, key=lambda term: ours.terms[term])
    of = f"the largest of {num_parts} micro-batches" if num_parts > 1 else "the batch"
    return f"{model}, {of}: the largest term is {TERM_LOOKS[term].name}, {ours.terms[term] / ours.peak_bytes:.0%}"


def _subtitle(estimates: Mapping[str, MemoryEstimate], peak: int | None) -> str:
    if peak is None:
        return "not measured: the step would not fit into the free memory"
    errors = (f"{name} {estimate.peak_bytes / peak - 1:+.2%}" for name, estimate in estimates.items())
    return f"against the measured peak: {', '.join(errors)}"
