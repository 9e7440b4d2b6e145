"""Into how many micro-batches a batch of one's own graph is cut to fit into one's own memory."""

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
from workbench.memory.kernels import Kernels
from workbench.memory.optimizer import OPTIMIZERS
from workbench.memory.plan import Plan, plan_micro_batches
from workbench.nn.model import MODEL_KINDS, build_model
from workbench.partition.batch import PARTITION_CHOICES
from workbench.sampling.neighbor import NeighborSampler
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DEEPEST = 5
_WIDTHS, _HEADS = (16, 32, 64, 128, 256, 512, 1024), (1, 2, 4, 8)
_FANOUTS = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50, 100)
_CAPACITIES = [2**20 * size for power in range(18) for size in (2**power, 3 * 2**power // 2)]  # 1 MiB to 192 GiB


@dataclass(frozen=True, eq=False)
class Workload:
    """What a plan must know of a graph: not its features, only how wide they are.

    Args:
        graph: to sample from.
        seeds: int64, nodes to train on.
        in_dim: width of the features.
        out_dim: classes, or whatever a model's output is wide.
    """

    graph: Graph
    seeds: Tensor
    in_dim: int
    out_dim: int

    @staticmethod
    def of(dataset: Dataset) -> "Workload":
        """The training nodes of a data set."""
        return Workload(dataset.graph, dataset.train_idx, dataset.num_features, dataset.num_classes)


def plan_explorer(
    work: Workload,
    *,
    capacity_bytes: int,
    fanouts: Sequence[int] = (10, 25),
    batch_size: int | None = None,
    model: str = "sage-mean",
    hidden_dim: int = 256,
    method: str = "auto",
    kernels: str = "cpu",
) -> Any:
    """Choose model, fanouts, batch, capacity and partitioner, press the button, and see `plan_view` of them.

    Args:
        work: the graph.
        capacity_bytes: to begin with, like what follows.
        fanouts: neighbours a layer, input layer first; at most 5 layers.
        batch_size: None: all seeds.
        model: of `workbench.build_model`.
        hidden_dim: width of hidden layers.
        method: of `workbench.partition_batch`.
        kernels: "cpu" or "cuda", no GPU needed.

    Returns:
        See `explore`.
    """
    methods = [name for name in PARTITION_CHOICES if name != "cluster"]  # which needs a partition of its own
    places = {f"fanout_{place}": place for place in range(1, _DEEPEST + 1)}
    given = dict(zip(places, (*fanouts, *[10] * _DEEPEST), strict=False))
    return explore(
        partial(_view, work),
        button="Plan",
        shown_if={
            "heads": lambda values: values["model"] == "gat",
            **{name: partial(_is_a_layer, place) for name, place in places.items()},
        },
        model=_first(model, MODEL_KINDS),
        layers=_first(len(fanouts), range(1, _DEEPEST + 1)),
        hidden_dim=_first(hidden_dim, _WIDTHS),
        heads=_HEADS,
        **{name: _first(fanout, _FANOUTS) for name, fanout in given.items()},
        batch_size=_named(batch_size or len(work.seeds), [*_powers(len(work.seeds)), len(work.seeds)], "{:,}".format),
        capacity=_named(capacity_bytes, _CAPACITIES, format_bytes),
        method=_first(method, methods),
        optimizer=tuple(OPTIMIZERS),
        kernels=_first(kernels, ("cpu", "cuda")),
    )


def plan_view(work: Workload, **options: Any) -> "go.Figure":
    """What every micro-batch of a plan needs, by term, against the capacity.

    Args:
        work: the graph.
        options: of `make_plan`.

    Raises:
        CapacityError: see `make_plan`.
        ValueError: likewise.
    """
    from workbench.plots.plan import plan_bars

    return plan_bars(make_plan(work, **options))


def make_plan(
    work: Workload,
    *,
    capacity_bytes: int,
    fanouts: Sequence[int] = (10, 25),
    batch_size: int | None = None,
    model: str = "sage-mean",
    hidden_dim: int = 256,
    heads: int = 1,
    method: str = "auto",
    optimizer: str = "adam",
    kernels: str = "cpu",
    seed: int = 0,
) -> Plan:
    """Sample a batch, build a model and plan; nothing is trained.

    Args:
        work: the graph.
        capacity_bytes: memory that every micro-batch's step must fit into.
        fanouts: neighbours a layer, input layer first; as many layers as there are.
        batch_size: seeds, drawn at random; None, or more than there are: all.
        model: of `workbench.build_model`.
        hidden_dim: width of hidden layers.
        heads: of gat; other models have none and leave this out of account.
        method: of `workbench.partition_batch`.
        optimizer: "adam", "adamw" or "sgd".
        kernels: device whose kernels are priced, "cpu" or "cuda"; no GPU needed.
        seed: of batch, sample, partition and weights.

    Raises:
        CapacityError: no number of micro-batches fits.
        ValueError: what sampling, model or planning refuse.
    """
    batch = NeighborSampler(fanouts, seed=seed).sample(work.graph, _seeds(work, batch_size, seed))
    net = build_model(
        model,
        in_dim=work.in_dim,
        hidden_dim=hidden_dim,
        out_dim=work.out_dim,
        num_layers=len(fanouts),
        heads=heads if model == "gat" else 1,
        seed=seed,
    )
    return plan_micro_batches(
        net,
        batch,
        capacity_bytes=capacity_bytes,
        method=method,
        optimizer=optimizer,
        seed=seed,
        kernels=Kernels(kernels),
    )


def plan_table(plans: Iterable[Plan]) -> pd.DataFrame:
    """Plans beside each other, those with the fewest micro-batches first.

    Args:
        plans: of one batch and capacity, by different methods.
    """
    rows = [
        {
            "method": plan.method_name,
            "micro-batches": plan.num_parts,
            "largest needs": format_bytes(plan.peak_bytes),
            "input nodes, parts ÷ batch": round(plan.redundancy.ratio, 2),
            "partition (s)": round(plan.seconds["partition"], 2),
            "in all (s)": round(sum(plan.seconds.values()), 2),
        }
        for plan in sorted(plans, key=lambda plan: (plan.num_parts, plan.redundancy.total_inputs))
    ]
    return pd.DataFrame(rows).set_index("method")


def _view(work: Workload, *, layers: int, capacity: int, **values: Any) -> "go.Figure":
    """`plan_view` from the controls' values."""
    fanouts = [values.pop(f"fanout_{place}") for place in range(1, _DEEPEST + 1)]
    return plan_view(work, capacity_bytes=capacity, fanouts=fanouts[:layers], **values)


def _is_a_layer(place: int, values: Mapping[str, Any]) -> bool:
    return place <= values["layers"]


def _seeds(work: Workload, batch_size: int | None, seed: int) -> Tensor:
    """As `workbench plan` takes them."""
    if batch_size is None or batch_size >= len(work.seeds):
        return work.seeds
    check_at_least("batch_size", batch_size, 1)
    return work.seeds[permutation(seed, len(work.seeds))[:batch_size]]


def _powers(limit: int) -> list[int]:
    return [2**power for power in range(6, 31) if 2**power < limit]


def _first(value: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values, each once, beginning with one of them or another."""
    return tuple(dict.fromkeys((value, *values)))


def _named(value: int, values: Iterable[int], name: Any) -> dict[str, int]:
    return {name(number): number for number in _first(value, values)}
