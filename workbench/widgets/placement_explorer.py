"""Who holds what: a placement of feature rows by buffer size, cost of peers and topology."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import check_choice
from workbench.placement.access_probability import inclusion_probability
from workbench.placement.place import place_rows
from workbench.placement.placement import Placement
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEVICE_TOPOLOGIES: Mapping[str, tuple[int, Sequence[Sequence[int]] | None]] = {
    "4 behind a switch": (4, None),
    "2 behind a switch": (2, None),
    "8 behind a switch": (8, None),
    "2 pairs": (4, [[0, 1], [2, 3]]),
    "4 pairs": (8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
}
"""Name → number of devices, and the groups that have links (None: all have)."""

_METHODS = ("algorithm-1", "search", "hottest", "random", "naive", "algorithm-1-printed")


def placement_explorer(
    dataset: Dataset,
    *,
    buffer_shares: Sequence[float] = (0.1, 0.05, 0.2, 0.4),
    alphas: Sequence[float] = (0.3, 0.0, 0.1, 0.5, 0.8, 1.0),
    **options: Any,
) -> Any:
    """Show `placement_view` below controls for buffer size, α, topology and two methods.

    Args:
        dataset: its training nodes form the batches.
        buffer_shares: choices; the first is the default.
        alphas: choices of α; the first is the default.
        options: other arguments of `placement_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    p = _probabilities(dataset, **{name: options.pop(name) for name in ("fanouts", "batch_size") if name in options})
    view = partial(placement_view, dataset, p=p, **options)
    rivals = [*_METHODS[2:], *_METHODS[:2]]
    return explore(
        view,
        buffer_share=buffer_shares,
        alpha=alphas,
        topology=[*DEVICE_TOPOLOGIES],
        method=_METHODS,
        rival=rivals,
    )


def placement_view(
    dataset: Dataset,
    *,
    buffer_share: float = 0.1,
    alpha: float = 0.3,
    topology: str = "4 behind a switch",
    method: str = "algorithm-1",
    rival: str = "hottest",
    fanouts: Sequence[int] = (10, 10),
    batch_size: int = 256,
    p: Tensor | None = None,
) -> "go.Figure":
    """Draw which device holds which rows by two methods, with their costs, coverage and duplicates.

    Args:
        dataset: its training nodes form the batches.
        buffer_share: rows that each device has room for, as a share of all rows.
        alpha: cost of a row of a peer that has a link; the host's is 1.
        topology: a name of `DEVICE_TOPOLOGIES`.
        method: of `workbench.placement.place_rows`.
        rival: another.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch and device.
        p: float64 [num_nodes], probabilities that were computed before; None: by `inclusion_probability`.

    Raises:
        ValueError: an invalid option.
    """
    from workbench.plots.placement import draw_holders

    check_choice("topology", topology, DEVICE_TOPOLOGIES)
    if p is None:
        p = _probabilities(dataset, fanouts=fanouts, batch_size=batch_size)
    num_devices, groups = DEVICE_TOPOLOGIES[topology]
    rows = int(buffer_share * dataset.graph.num_nodes)
    given: dict[str, Any] = {"num_devices": num_devices, "groups": groups, "rows_per_device": rows, "peer_cost": alpha}
    placed = {name: place_rows(p, **given, method=name) for name in dict.fromkeys((method, rival))}
    held = min(dataset.graph.num_nodes, rows * num_devices)
    return draw_holders(
        [(_told(name, one), one) for name, one in placed.items()],
        most_rows=int(1.25 * held),
        title=f"{dataset.name}: {rows:,} rows per device, {topology}, α = {alpha:g}",
        subtitle="dark: held by the device; a row that is dark on several devices is a duplicate",
    )


def _probabilities(dataset: Dataset, fanouts: Sequence[int] = (10, 10), batch_size: int = 256) -> Tensor:
    return inclusion_probability(dataset.graph, dataset.train_idx, fanouts=fanouts, batch_size=batch_size)


def _told(name: str, placed: Placement) -> str:
    host = float(placed.problem.p.sum() * placed.problem.costs[:, -1].max())
    return (
        f"{name}: costs {placed.largest_cost / host if host else 0:.0%} of reading the host alone, serves "
        f"{placed.coverage:.0%} of reads, {placed.num_duplicates:,} duplicates"
    )
