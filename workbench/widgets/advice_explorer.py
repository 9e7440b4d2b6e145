"""Which ideas help, behind controls for the memory of a device, that of the host, and the number of devices."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.advisor.advice import Advice
from workbench.core.units import format_bytes
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SHARES = (0.25, 0.5, 0.75, 1.1, 2, 8)
"""Budgets to choose from, relative to the plain program's peak, and to graph and features."""


def advice_explorer(advice: Advice, *, devices: Sequence[int] = (1, 2, 4, 8)) -> Any:
    """Show `advice_view` below controls for memory, host memory and devices.

    Args:
        advice: result of `workbench.advise`; its budgets are the initial ones.
        devices: choices of the number of devices.
    """
    pricer = advice.pricer
    peak = min((one.peak_bytes for one in advice.priced), default=0) or pricer.memory_bytes
    data = pricer.graph_bytes + pricer.feature_bytes
    return explore(
        partial(advice_view, advice),
        memory=_budgets(pricer.memory_bytes, [round(share * peak) for share in _SHARES]),
        host_memory=_budgets(pricer.host_bytes, [round(share * data) for share in _SHARES]),
        devices=tuple(dict.fromkeys((pricer.devices, *devices))),
    )


def advice_view(
    advice: Advice, *, memory: int | str | None = None, host_memory: int | str | None = None, devices: int | None = None
) -> "go.Figure":
    """Draw the configurations of an advice for other budgets; nothing is counted again.

    Args:
        advice: result of `workbench.advise`.
        memory: memory of a device, in bytes or as text; None: the advice's.
        host_memory: the host's memory for graph and rows; None: the advice's.
        devices: number of devices; None: the advice's.

    Raises:
        ValueError: a number out of range.
        CapacityError: parameters and gradients alone exceed `memory`.
    """
    from workbench.plots.advice_scatter import advice_scatter

    return advice_scatter(advice.with_budgets(memory=memory, host_memory=host_memory, devices=devices))


def _budgets(given: int, others: Sequence[int]) -> dict[str, int]:
    """By name; the given one is the initial one."""
    return {format_bytes(nbytes): nbytes for nbytes in (given, *others)}
