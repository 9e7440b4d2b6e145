"""The work of batches by their size: which sampler, fanout and batch size read how many rows, before any training."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log10
from typing import TYPE_CHECKING, Any

from workbench.cooperative.work import Work, measure_work
from workbench.core.dataset import Dataset
from workbench.core.units import format_bytes
from workbench.sampling.labor import LaborSampler
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.random_walk import RandomWalkSampler
from workbench.sampling.sampler import Sampler
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

Build = Callable[[Sequence[int]], Sampler]
Axes = tuple[tuple[float, float], tuple[float, float]]
_SMALLEST = 16
_MARGIN = 0.09  # of the x axis, powers of ten

WORK_SAMPLERS: Mapping[str, Build] = {
    "NS": NeighborSampler,
    "RW": RandomWalkSampler,
    "LABOR-0": LaborSampler,
    "LABOR-*": partial(LaborSampler, importance="*"),
}
"""The samplers of Cooperative Minibatching by name, each built from its fanouts."""


def work_explorer(
    dataset: Dataset,
    *,
    samplers: Mapping[str, Build] = WORK_SAMPLERS,
    fanouts: Sequence[Sequence[int]] = ((10, 10, 10), (10, 10), (5, 10, 15), (20, 20, 20)),
    batch_sizes: Sequence[int] = (256, 64, 1024),
) -> Any:
    """Show `work_view` below controls for samplers, fanouts and batch size, on the same axes for all their values.

    Args:
        dataset: its training nodes form the batches.
        samplers: name → function of the fanouts that returns a sampler.
        fanouts: choices of neighbours per layer, input layer first; the first is the default.
        batch_sizes: choices of seeds per batch; the first is the default.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    named = {", ".join(map(str, fanout)): tuple(fanout) for fanout in fanouts}
    axes = _axes(dataset, [build(fanout) for build in samplers.values() for fanout in fanouts], batch_sizes)
    view = partial(work_view, dataset, choices=samplers, axes=axes)
    return explore(view, samplers={*samplers}, fanouts=named, batch_size=batch_sizes)


def work_view(
    dataset: Dataset,
    *,
    samplers: Sequence[str] | None = None,
    fanouts: Sequence[int] = (10, 10, 10),
    batch_size: int = 256,
    choices: Mapping[str, Build] = WORK_SAMPLERS,
    repetitions: int = 2,
    axes: Axes | None = None,
) -> "go.Figure":
    """Draw the input nodes per seed of batches of the training nodes, up to four times the batch size.

    The subtitle says what an epoch of batches of this size reads, and what it would read in batches four times as
    large.

    Args:
        dataset: its training nodes form the batches.
        samplers: names of `choices` to compare; None: all.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch.
        choices: name → function of the fanouts that returns a sampler.
        repetitions: batches of each size that are averaged.
        axes: ends of the axes, batch sizes and input nodes per seed, so that figures compare; None: by the lines.

    Raises:
        ValueError: no samplers, invalid fanouts, or a batch size that exceeds the training nodes.
    """
    from workbench.plots.axes import log_axis
    from workbench.plots.lines import lines
    from workbench.plots.style import titled

    names, most = list(choices if samplers is None else samplers), len(dataset.train_idx)
    if not names:
        raise ValueError(f"no sampler is chosen; choose from {', '.join(choices)}")
    sizes = _sizes(batch_size, most)
    works = {
        name: list(
            measure_work(
                dataset.graph,
                dataset.train_idx,
                sampler=choices[name](fanouts),
                batch_sizes=sizes,
                repetitions=repetitions,
            )
        )
        for name in names
    }
    rows = [
        {"sampler": name, "batch_size": w.batch_size, "inputs_per_seed": w.num_inputs / w.num_seeds}
        for name, found in works.items()
        for w in found
    ]
    largest, row = max(sizes), format_bytes(dataset.num_features * dataset.x.element_size())
    told = (f"{name} {_epoch_rows(dataset, w, batch_size, largest)}" for name, w in works.items())
    subtitle = f"batches of {batch_size:,} (and of {largest:,}): {' · '.join(told)}"
    title = f"{dataset.name}, fanouts {', '.join(map(str, fanouts))}: rows of {row} read in an epoch"
    figure = lines(rows, x="batch_size", log_x=True, y="inputs_per_seed", log_y=True, group="sampler")
    if axes is not None:
        (low, high), ends = axes
        figure.update_xaxes(range=[log10(low) - _MARGIN, log10(high) + _MARGIN])
        figure.update_yaxes(log_axis(ends))
    return titled(figure, title, height=420, subtitle=subtitle)


def _sizes(batch_size: int, most: int) -> list[int]:
    """Batch sizes that are measured, in ascending order."""
    sizes = {min(size, most) for size in (_SMALLEST, batch_size // 4, 4 * batch_size)} | {batch_size}
    return sorted(size for size in sizes if size)


def _axes(dataset: Dataset, samplers: Sequence[Sampler], batch_sizes: Sequence[int]) -> Axes:
    """Ends of the axes for all samplers and batch sizes: small batches read most per seed, and none less than a row."""
    sizes = [size for batch_size in batch_sizes for size in _sizes(batch_size, len(dataset.train_idx))]
    small = {"batch_sizes": [min(sizes)], "repetitions": 3}
    works = [w for s in samplers for w in measure_work(dataset.graph, dataset.train_idx, sampler=s, **small)]
    return (min(sizes), max(sizes)), (1.0, max(w.num_inputs / w.num_seeds for w in works))


def _epoch_rows(dataset: Dataset, works: Sequence[Work], size: int, largest: int) -> str:
    """Rows read in an epoch of batches of a size, and the fraction of it in the largest batches."""

    def rows(size: int) -> float:
        inputs = [w.num_inputs for w in works if w.batch_size == size]
        return sum(inputs) / len(inputs) * len(dataset.train_idx) / size

    return f"{rows(size):,.0f} ({rows(largest) / rows(size):.0%})"
