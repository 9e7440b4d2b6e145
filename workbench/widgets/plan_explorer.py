"""Plans of micro-batches for any memory capacity, and advice for any budget, behind controls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import check_at_least
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.core.units import format_bytes
from workbench.memory.plan import Plan, plan_micro_batches
from workbench.memory.training_setup import OPTIMIZERS, Backend
from workbench.nn.model import build_model, models_for, relation_options
from workbench.partition.batch import partition_choices
from workbench.sampling.neighbor import NeighborSampler
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go
from typing import TYPE_CHECKING

from workbench.advisor.advice import Advice

if TYPE_CHECKING:
    import plotly.graph_objects as go


_MAX_LAYERS = 5
_WIDTHS, _HEADS, _BASES = (16, 32, 64, 128, 256, 512, 1024), (1, 2, 4, 8), (8, 1, 2, 4, 16, 32)
_FANOUTS = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50, 100)
_CAPACITIES = [2**20 * size for power in range(18) for size in (2**power, 3 * 2**power // 2)]  # 1 MiB to 192 GiB


@dataclass(frozen=True, eq=False)
class Workload:
    """The part of a dataset that planning needs: of the features only their width.

    Args:
        graph: graph to sample from.
        seeds: int64 [num_seeds], training nodes.
        in_dim: width of the features.
        out_dim: width of the model's output, usually the number of classes.
    """

    graph: Graph
    seeds: Tensor
    in_dim: int
    out_dim: int

    @staticmethod
    def of(dataset: Dataset) -> "Workload":
        """The workload of training on a dataset.

        Args:
            dataset: with features and labels.
        """
        return Workload(dataset.graph, dataset.train_idx, dataset.num_features, dataset.num_classes)


def plan_explorer(
    work: Workload,
    *,
    memory: int,
    fanouts: Sequence[int] = (10, 25),
    batch_size: int | None = None,
    model: str = "sage-mean",
    hidden_dim: int = 256,
    method: str = "auto",
    backend: str = "cpu",
) -> Any:
    """Show `plan_view` below controls for model, batch, capacity and partitioner, and a button that starts planning.

    All arguments but the first are initial values of controls.

    Args:
        work: graph and training nodes.
        memory: memory available to each micro-batch's step.
        fanouts: neighbours per layer, input layer first; at most 5 layers.
        batch_size: number of seeds; None for all.
        model: kind of layer, one of `workbench.build_model`.
        hidden_dim: width of hidden layers.
        method: partitioner, one of `workbench.partition.PARTITION_METHODS`, or "auto".
        backend: device to estimate for, "cpu" or "cuda"; needs no GPU.
    """
    methods = [name for name in partition_choices() if name != "cluster"]  # needs a partition of the whole graph
    places = {f"fanout_{place}": place for place in range(1, _MAX_LAYERS + 1)}
    given = dict(zip(places, (*fanouts, *[10] * _MAX_LAYERS), strict=False))
    bases = {} if work.graph.edge_type is None else {"num_bases": _BASES}
    return explore(
        partial(_view, work),
        button="Plan",
        shown_if={
            "heads": lambda values: values["model"] == "gat",
            **({"num_bases": lambda values: values["model"] == "rgcn"} if bases else {}),
            **{name: partial(_has_layer, place) for name, place in places.items()},
        },
        model=_first(model, models_for(work.graph)),
        layers=_first(len(fanouts), range(1, _MAX_LAYERS + 1)),
        hidden_dim=_first(hidden_dim, _WIDTHS),
        heads=_HEADS,
        **bases,
        **{name: _first(fanout, _FANOUTS) for name, fanout in given.items()},
        batch_size=_named(batch_size or len(work.seeds), [*_powers(len(work.seeds)), len(work.seeds)], "{:,}".format),
        capacity=_named(memory, _CAPACITIES, format_bytes),
        method=_first(method, methods),
        optimizer=tuple(OPTIMIZERS),
        backend=_first(backend, ("cpu", "cuda")),
    )


def plan_view(work: Workload, **options: Any) -> "go.Figure":
    """Draw a plan: the estimated memory of each micro-batch by term, against the capacity.

    Args:
        work: graph and training nodes.
        options: arguments of `make_plan`.

    Raises:
        CapacityError: no number of micro-batches fits.
        ValueError: invalid batch size, fanouts, model or method.
    """
    from workbench.plots.bars import plan_bars

    return plan_bars(make_plan(work, **options))


def make_plan(
    work: Workload,
    *,
    memory: int,
    fanouts: Sequence[int] = (10, 25),
    batch_size: int | None = None,
    model: str = "sage-mean",
    hidden_dim: int = 256,
    heads: int = 1,
    num_bases: int | None = None,
    method: str = "auto",
    optimizer: str = "adam",
    backend: str = "cpu",
    seed: int = 0,
) -> Plan:
    """Sample a batch, build a model and plan its micro-batches without training.

    Args:
        work: graph and training nodes.
        memory: memory available to each micro-batch's step.
        fanouts: neighbours per layer, input layer first; one per layer of the model.
        batch_size: number of seeds, drawn at random; None, or more than the graph has, for all.
        model: kind of layer, one of `workbench.build_model`.
        hidden_dim: width of hidden layers.
        heads: attention heads of gat; ignored by other models.
        num_bases: bases of rgcn, None for as many as relations; ignored by other models.
        method: partitioner, one of `workbench.partition.PARTITION_METHODS`, or "auto".
        optimizer: "adam", "adamw" or "sgd".
        backend: device to estimate for, "cpu" or "cuda"; needs no GPU.
        seed: random seed of batch, sampling, partitioning and weights.

    Raises:
        CapacityError: no number of micro-batches fits.
        ValueError: invalid batch size, fanouts, model or method, or rgcn on a graph without edge types.
    """
    relations: dict[str, Any] = relation_options(model, work.graph, num_bases=num_bases)
    batch = NeighborSampler(fanouts, seed=seed).sample(work.graph, _seeds(work, batch_size, seed))
    net = build_model(
        model,
        in_dim=work.in_dim,
        hidden_dim=hidden_dim,
        out_dim=work.out_dim,
        num_layers=len(fanouts),
        heads=heads if model == "gat" else 1,
        seed=seed,
        **relations,
    )
    return plan_micro_batches(
        net,
        batch,
        memory=memory,
        method=method,
        optimizer=optimizer,
        seed=seed,
        backend=Backend(backend),
    )


def plan_table(plans: Iterable[Plan]) -> pd.DataFrame:
    """Compare plans in a table, fewest micro-batches first.

    Args:
        plans: plans of one batch and capacity by different methods.
    """
    rows = [
        {
            "method": plan.method_name,
            "micro-batches": plan.num_parts,
            "estimated peak": format_bytes(plan.peak_bytes),
            "input nodes, parts ÷ batch": round(plan.redundancy.ratio, 2),
            "partition (s)": round(plan.seconds["partition"], 2),
            "total (s)": round(sum(plan.seconds.values()), 2),
        }
        for plan in sorted(plans, key=lambda plan: (plan.num_parts, plan.redundancy.total_inputs))
    ]
    return pd.DataFrame(rows).set_index("method")


def _view(work: Workload, *, layers: int, capacity: int, **values: Any) -> "go.Figure":
    """Call `plan_view` with the controls' values."""
    fanouts = [values.pop(f"fanout_{place}") for place in range(1, _MAX_LAYERS + 1)]
    return plan_view(work, memory=capacity, fanouts=fanouts[:layers], **values)


def _has_layer(place: int, values: Mapping[str, Any]) -> bool:
    return place <= values["layers"]


def _seeds(work: Workload, batch_size: int | None, seed: int) -> Tensor:
    """The same seeds as `workbench plan` draws."""
    if batch_size is None or batch_size >= len(work.seeds):
        return work.seeds
    check_at_least("batch_size", batch_size, 1)
    return work.seeds[permutation(seed, len(work.seeds))[:batch_size]]


def _powers(limit: int) -> list[int]:
    return [2**power for power in range(6, 31) if 2**power < limit]


def _first(value: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values, each once, after the initial value."""
    return tuple(dict.fromkeys((value, *values)))


def _named(value: int, values: Iterable[int], name: Any) -> dict[str, int]:
    return {name(number): number for number in _first(value, values)}


_SHARES = (0.25, 0.5, 0.75, 1.1, 2, 8)
"""Budgets to choose from, relative to the plain program's peak, and to graph and features."""


def advice_explorer(advice: Advice, *, devices: Sequence[int] = (1, 2, 4, 8)) -> Any:
    """Show `advice_view` below controls for memory, host memory and devices.

    Args:
        advice: result of `workbench.advise`; its budgets are the initial ones.
        devices: choices of the number of devices.
    """
    pricer = advice.pricer
    peak = min((one.peak_bytes for one in advice.priced if one.can_be_priced), default=pricer.memory_bytes)
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
