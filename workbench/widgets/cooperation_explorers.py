"""Cooperative and dependent batches before any training: work by batch size, work and bytes of ranks, cache misses."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import ceil, log10
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workbench.cooperative.sampling import batches as cooperative_batches, independent_batches
from workbench.cooperative.work import Work, cooperative_work, measure_work
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, Smoothed, permutation, stream
from workbench.core.trace import AccessTrace
from workbench.core.units import format_bytes
from workbench.features.cache.simulate import CacheCost, cache_costs
from workbench.kernels.relabel import IdIndex
from workbench.partition.graph import partition_graph
from workbench.sampling.labor import LaborSampler
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.random_walk import RandomWalkSampler
from workbench.sampling.sampler import Sampler, candidates, expand_rows
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


RANK_SAMPLERS: Mapping[str, Callable[..., Any]] = {
    "LABOR-0": LaborSampler,
    "NS": NeighborSampler,
    "RW": RandomWalkSampler,
}
"""Samplers that draw every row independently, as cooperating ranks need, by name."""

_PICTURED_NODES, _PICTURED_SEEDS = 24, 8
_FANOUTS, _BATCH_SIZE = (10, 10, 10), 64
_HEADROOM = 1.05  # above the highest bar


def cooperation_explorer(dataset: Dataset, **options: Any) -> Any:
    """Show `cooperation_view` below controls for P, ownership, sampler and κ, with bars on the same axis.

    Args:
        dataset: its training nodes form the batches.
        options: other arguments of `cooperation_view`.
    """
    view = partial(cooperation_view, dataset, **({"most_rows": _most_rows(dataset, **options)} | options))
    owners = ("random", "metis", "range")
    return explore(view, num_ranks=(4, 2, 3, 6), ownership=owners, sampler=[*RANK_SAMPLERS], kappa=(1, 4, 16, 64))


def cooperation_view(
    dataset: Dataset,
    *,
    num_ranks: int = 4,
    ownership: str = "random",
    sampler: str = "LABOR-0",
    kappa: int = 1,
    fanouts: Sequence[int] = _FANOUTS,
    batch_size: int = _BATCH_SIZE,
    hidden_dim: int = 256,
    seed: int = 0,
    most_rows: float = 0,
) -> "go.Figure":
    """Draw a global batch of several ranks, independent and cooperating: a small one as a picture, and counts.

    Bars show the input rows per rank, and how many of them it has read for the batch before, which a cache serves; the
    heat map the bytes of features and hidden rows that cooperating ranks send in a forward pass.

    Args:
        dataset: its training nodes form the batches.
        num_ranks: number P of ranks, at most seven.
        ownership: method of `workbench.partition_graph`.
        sampler: a name of `RANK_SAMPLERS`.
        kappa: consecutive batches that depend on each other; 1: none.
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per rank.
        hidden_dim: width of hidden rows, float32.
        seed: random seed of owners and variates.
        most_rows: input rows at which the axis of the bars ends, unless a rank reads more.

    Raises:
        ValueError: an invalid option.
    """
    from workbench.plots.batch_drawing import draw_cooperation

    owner = partition_graph(dataset.graph, num_ranks, method=ownership, seed=seed)
    build = partial(RANK_SAMPLERS[sampler], seed=seed, dependence=Smoothed(kappa))
    step = kappa // 2  # in the middle of a group
    options: dict[str, Any] = {"sampler": build(fanouts), "owner": owner, "num_ranks": num_ranks}
    ways = {"independent": independent_batches, "cooperating": cooperative_batches}
    batches = {
        name: [
            sample(dataset.graph, _seeds(dataset, s, num_ranks * batch_size), step=s, **options)
            for s in (step, step + 1)
        ]
        for name, sample in ways.items()
    }
    row_bytes = [dataset.num_features * dataset.x.element_size()] + [4 * hidden_dim] * (len(fanouts) - 1)
    works = {name: cooperative_work(steps[1], row_bytes=row_bytes) for name, steps in batches.items()}
    moved, repeats = works["cooperating"].link_bytes, works["independent"].duplication
    small, nodes = _around_hub(dataset.graph)
    read = {name: [mb.num_inputs for mb in steps[1]] for name, steps in batches.items()}
    figure = draw_cooperation(
        build([2, 2]).sample(small, small.in_degrees().argsort(descending=True)[1 : 1 + _PICTURED_SEEDS]),
        owner[nodes],
        read=read,
        again={name: [_shared(a, b) for a, b in zip(*steps, strict=True)] for name, steps in batches.items()},
        link_bytes=moved,
        title=f"{dataset.name}: {num_ranks} PEs, {ownership} owners, {sampler}, κ = {kappa}",
        subtitle=f"rows read per distinct row: {repeats:.2f} and 1; exchanged in a forward pass: 0 and "
        f"{format_bytes(int(moved.sum()))}",
    )
    most = max(most_rows, *(_HEADROOM * count for counts in read.values() for count in counts))
    return figure.update_yaxes(range=[0, most], row=2, col=1)


def _most_rows(
    dataset: Dataset, *, fanouts: Sequence[int] = _FANOUTS, batch_size: int = _BATCH_SIZE, seed: int = 0, **_: Any
) -> float:
    """Input rows of a batch by the sampler that reads most: independent ranks read that many."""
    seeds = _seeds(dataset, 0, batch_size)
    samplers = (build(fanouts, seed=seed) for build in RANK_SAMPLERS.values())
    return _HEADROOM**2 * max(sampler.sample(dataset.graph, seeds).num_inputs for sampler in samplers)


def _seeds(dataset: Dataset, step: int, size: int) -> Tensor:
    train = dataset.train_idx
    return train[permutation(stream(0, Purpose.SHUFFLE, step), len(train))[:size]]


def _shared(before: MiniBatch, after: MiniBatch) -> int:
    return int(torch.isin(after.node_ids, before.node_ids).sum())


def _around_hub(graph: Graph) -> tuple[Graph, Tensor]:
    """The subgraph of the node with most in-edges and a few of its in-neighbours, and its nodes."""
    hub = int(graph.in_degrees().argmax())
    neighbours = graph.indices[graph.indptr[hub] : graph.indptr[hub + 1]].long().unique()
    nodes = torch.cat([neighbours[neighbours != hub][: _PICTURED_NODES - 1], torch.tensor([hub])]).sort().values
    row, positions = expand_rows(candidates(graph, nodes, None))
    index = IdIndex([nodes], graph.num_nodes)
    sources = index.positions(graph.indices[positions])
    inside = sources >= 0
    return Graph.from_edges(sources[inside], row[inside], num_nodes=len(nodes)), nodes


CACHE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Sizes of caches, as shares of the rows."""

_POLICIES = ("lru", "fifo", "clock", "sieve", "s3-fifo", "static", "belady-bypass")
_GROUPS = 2  # of the largest κ that are counted, after as many that warm the cache up
_KNOW_THE_FUTURE = ("belady", "belady-bypass")
_SUBTITLE = 50  # pixels: subtitle, and a second line of the legend


def cache_explorer(
    dataset: Dataset,
    *,
    samplers: Mapping[str, Callable[..., Sampler]] = WORK_SAMPLERS,
    fanouts: Sequence[int] = (10, 10),
    kappas: Sequence[int] = (1, 4, 16),
    batch_size: int = 32,
) -> Any:
    """Show `cache_view` of two samplers side by side, below controls for their κ, the size of the cache and policies.

    Every setting is sampled and simulated once, at all sizes; moving the slider only redraws.

    Args:
        dataset: its training nodes form the batches.
        samplers: name → function of the fanouts and `dependence=` that returns a sampler.
        fanouts: neighbours per layer, input layer first.
        kappas: numbers of batches per group of dependent ones; the first is the default of the left panel, the last
            that of the right one.
        batch_size: seeds per batch.
    """
    num_rows, steps = dataset.graph.num_nodes, 2 * _GROUPS * max(kappas)
    capacities = [ceil(share * num_rows) for share in CACHE_SHARES]
    row_bytes = dataset.num_features * dataset.x.element_size()

    @cache
    def costs(sampler: str, kappa: int) -> list[CacheCost]:
        built = samplers[sampler](fanouts, dependence=Smoothed(kappa))
        loader = batches(dataset.graph, dataset.train_idx, sampler=built, batch_size=batch_size, drop_last=True)
        trace = AccessTrace.of(mb.node_ids for _, mb in loader.steps(steps))
        name = f"{sampler}, κ = {kappa}"
        return cache_costs({name: trace}, capacities, row_bytes=row_bytes, policies=_POLICIES, warmup=0.5)

    def view(
        left: str, left_kappa: int, right: str, right_kappa: int, cache_size: float, policies: Sequence[str]
    ) -> "go.Figure":
        settings = dict.fromkeys([(left, left_kappa), (right, right_kappa)])
        chosen = [cost for setting in settings for cost in costs(*setting) if cost.policy in policies]
        sizes = {"num_rows": num_rows, "row_bytes": row_bytes, "batch_size": batch_size}
        return cache_view(chosen, capacity_rows=ceil(cache_size * num_rows), title=dataset.name, **sizes)

    names = sorted(samplers, key=lambda name: name != "LABOR-0")
    return explore(
        view,
        left=names,
        left_kappa=kappas,
        right=names,
        right_kappa=[kappas[-1], *kappas[:-1]],
        cache_size={f"{share:.0%}": share for share in sorted(CACHE_SHARES, key=lambda share: abs(share - 0.1))},
        policies={*_POLICIES},
    )


def cache_view(
    costs: Sequence[CacheCost],
    *,
    capacity_rows: int,
    num_rows: int,
    row_bytes: int,
    batch_size: int,
    title: str = "",
) -> "go.Figure":
    """Draw the miss rates of caches by their size, one panel per trace, one line per policy, on fixed axes.

    The title says what the best policy misses at one size, and each panel's how many bytes are left to read per seed;
    policies that know the future don't count.

    Args:
        costs: of `cache_costs`, for one or several traces, policies and sizes.
        capacity_rows: the size that the title and the dashed line are about, one of those of `costs`.
        num_rows: number of rows of the store.
        row_bytes: bytes of a row.
        batch_size: seeds per read.
        title: begins the subtitle, such as the name of the data set.

    Raises:
        ValueError: no costs of a policy that does not know the future, or none at `capacity_rows`.
    """
    from workbench.plots.lines import lines
    from workbench.plots.style import INK, titled

    best = _best(costs, capacity_rows)
    names = {name: f"{name}: {format_bytes(round(c.bytes_per_read / batch_size))} per seed" for name, c in best.items()}
    rows = [{**c._asdict(), "share": c.capacity_rows / num_rows, "reads": names[c.reads]} for c in costs]
    figure = lines(rows, x="share", log_x=True, y="miss_rate", group="policy", facet="reads")
    for axis in figure.select_xaxes():
        axis.ticktext = [f"{share:.0%}" for share in axis.tickvals]
        axis.title.text = "size of the cache, share of the rows"
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.add_vline(x=capacity_rows / num_rows, line={"color": INK, "width": 1.5, "dash": "dash"})
    size = f"{capacity_rows / num_rows:.0%} of the rows, {format_bytes(capacity_rows * row_bytes)}"
    told = " ".join(filter(None, (title, f"with the best policy for a cache of {size} (dashed)")))
    height = (figure.layout.height or 0) + _SUBTITLE  # pyright: ignore[reportAttributeAccessIssue]
    return titled(figure, _finding(list(best.values())), height=height, subtitle=told)


def _finding(best: Sequence[CacheCost]) -> str:
    """Say which trace misses most, and which least."""
    worst, least = (f(best, key=lambda c: c.miss_rate) for f in (max, min))
    most, fewest = (f"{c.miss_rate:.0%} ({c.reads}; {_name(c.policy)})" for c in (worst, least))
    return f"Misses: {fewest}" if len(best) == 1 else f"Misses fall from {most} to {fewest}"


def _best(costs: Sequence[CacheCost], capacity_rows: int) -> dict[Any, CacheCost]:
    """The cost of the best policy that a cache can follow, by trace."""
    here = [c for c in costs if c.capacity_rows == capacity_rows and c.policy not in _KNOW_THE_FUTURE]
    missing = {c.reads for c in costs} - {c.reads for c in here}
    if missing or not here:
        raise ValueError(
            f"no policy that works without the future has a cost at {capacity_rows:,} rows; choose one, such as lru"
        )
    names = dict.fromkeys(c.reads for c in costs)
    return {name: min((c for c in here if c.reads == name), key=lambda c: c.miss_rate) for name in names}


def _name(policy: str) -> str:
    from workbench.plots.style import looks

    return looks([policy])[policy].name
