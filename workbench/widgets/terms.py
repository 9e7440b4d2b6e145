"""What a training step's memory is made of: our estimate, Betty's, and what is measured."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from workbench.core.dataset import Dataset
from workbench.core.device_memory import free_bytes
from workbench.core.minibatch import MiniBatch
from workbench.memory.betty import betty_terms
from workbench.memory.estimate import estimate_memory
from workbench.memory.record import MemoryEstimate
from workbench.nn.model import GNN, MODEL_KINDS, build_model
from workbench.partition.batch import partition_batch
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.profile import profile_epoch
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go


def terms_explorer(
    dataset: Dataset,
    *,
    models: Sequence[str] = MODEL_KINDS,
    num_parts: Sequence[int] = (1, 2, 4, 8),
    fanouts: Sequence[Sequence[int]] = ((10,), (10, 25), (5, 10, 15)),
    hidden_dims: Sequence[int] = (64, 16, 128, 256),
) -> Any:
    """Choose layers, K, fanouts and width, press the button, and see `terms_view` of them.

    Args:
        dataset: with features and labels.
        models: of `workbench.build_model`; the first is shown first, as in what follows.
        num_parts: micro-batches.
        fanouts: lists of neighbours a layer, input layer first.
        hidden_dims: widths of hidden layers.

    Returns:
        See `explore`.
    """
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    view = partial(terms_view, dataset)
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
    """The terms of the micro-batch that needs most, ours beside Betty's, and the step's measured peak.

    What needs more memory than the machine has left is not measured.

    Args:
        dataset: with features and labels; all its training nodes are one batch.
        model: of `workbench.build_model`, trained by Adam.
        num_parts: micro-batches.
        fanout: neighbours a layer, input layer first.
        hidden_dim: width of hidden layers.
        method: of `workbench.partition_batch`.
        seed: of sampling, partition and weights.

    Raises:
        ValueError: what sampling, partition or model refuse.
    """
    from workbench.plots.components import Component, component_bars

    batch = NeighborSampler(fanout, seed=seed).sample(dataset.graph, dataset.train_idx)
    micro = batch.split(partition_batch(batch, num_parts, method=method, seed=seed))
    widths: dict[str, Any] = {"in_dim": dataset.num_features, "hidden_dim": hidden_dim, "out_dim": dataset.num_classes}
    net = build_model(model, num_layers=len(fanout), seed=seed, **widths)
    ours = _largest([estimate_memory(net, mb, accumulating=part > 0) for part, mb in enumerate(micro)])
    counts = {"our terms": ours, "Betty's terms": _largest([betty_terms(net, mb) for mb in micro])}
    bars = [Component("", model, name, count.terms, count.peak_bytes) for name, count in counts.items()]
    peak = _measured(net, micro, dataset) if ours.peak_bytes <= free_bytes("cpu") else None
    if peak is not None:
        bars.append(Component("", model, "measured", None, peak))
    return component_bars(bars, title=_found(model, num_parts, ours), subtitle=_errors(counts, peak))


def _largest(estimates: Sequence[MemoryEstimate]) -> MemoryEstimate:
    return max(estimates, key=lambda estimate: estimate.peak_bytes)


def _measured(net: GNN, micro: Sequence[MiniBatch], dataset: Dataset) -> int | None:
    optimizer = torch.optim.Adam(net.parameters())
    return profile_epoch(net, [micro], dataset.x, dataset.y, cross_entropy, optimizer).peak_bytes


def _found(model: str, num_parts: int, ours: MemoryEstimate) -> str:
    from workbench.plots.terms import TERM_LOOKS

    term = max(ours.terms, key=lambda term: ours.terms[term])
    of = f"the largest of {num_parts} parts" if num_parts > 1 else "the batch"
    return f"{model}, {of}: {TERM_LOOKS[term].name} are {ours.terms[term] / ours.peak_bytes:.0%}, the most"


def _errors(counts: Mapping[str, MemoryEstimate], peak: int | None) -> str:
    if peak is None:
        return "not measured: it would not fit into the memory that is left"
    errors = (f"{name} {count.peak_bytes / peak - 1:+.2%}" for name, count in counts.items())
    return f"against the measured peak: {', '.join(errors)}"
