"""Miss rates of caches by κ, cache size and policy: which rows come from the cache, before any training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

from workbench.core.dataset import Dataset
from workbench.core.randomness import Smoothed
from workbench.core.trace import AccessTrace
from workbench.core.units import format_bytes
from workbench.features.cache.simulate import CacheCost, cache_costs
from workbench.sampling.loader import batches
from workbench.sampling.sampler import Sampler
from workbench.widgets.explore import explore
from workbench.widgets.work_explorer import WORK_SAMPLERS

if TYPE_CHECKING:
    import plotly.graph_objects as go

CACHE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Sizes of caches, as shares of the rows."""

_POLICIES = ("lru", "fifo", "clock", "sieve", "s3-fifo", "static", "belady-bypass")
_KNOW_THE_FUTURE = ("belady", "belady-bypass")
_SUBTITLE = 50  # pixels: subtitle, and a second line of the legend


def cache_explorer(
    dataset: Dataset,
    *,
    samplers: Mapping[str, Callable[..., Sampler]] = WORK_SAMPLERS,
    fanouts: Sequence[int] = (10, 10),
    kappas: Sequence[int] = (1, 4, 16),
    batch_size: int = 32,
    shares: Sequence[float] = CACHE_SHARES,
    policies: Iterable[str] = _POLICIES,
    groups: int = 2,
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
        shares: sizes of the cache, as shares of the rows, in ascending order.
        policies: names of `CACHE_POLICIES`.
        groups: groups of the largest κ that are counted, after as many that warm the cache up.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    longest, num_rows, known = max(kappas), dataset.graph.num_nodes, tuple(policies)
    capacities = [ceil(share * num_rows) for share in shares]
    row_bytes = dataset.num_features * dataset.x.element_size()

    @cache
    def costs(sampler: str, kappa: int) -> list[CacheCost]:
        built = samplers[sampler](fanouts, dependence=Smoothed(kappa))
        loader = batches(dataset.graph, dataset.train_idx, sampler=built, batch_size=batch_size, drop_last=True)
        trace = AccessTrace.of(mb.node_ids for _, mb in loader.steps(2 * groups * longest))
        name = f"{sampler}, κ = {kappa}"
        return cache_costs({name: trace}, capacities, row_bytes=row_bytes, policies=known, warmup=0.5)

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
        cache_size={f"{share:.0%}": share for share in sorted(shares, key=lambda share: abs(share - 0.1))},
        policies={*known},
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
    ticks = [f"{share:.0%}" for share in sorted({row["share"] for row in rows})]
    figure.update_xaxes(ticktext=ticks, title_text="size of the cache, share of the rows")
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
    from workbench.plots.looks import looks

    return looks([policy])[policy].name
