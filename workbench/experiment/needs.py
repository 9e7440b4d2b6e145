"""Memory and time that points need, from their configurations alone, so that they are known before any work starts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import expm1
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.core.errors import CapacityError, available_bytes
from workbench.core.units import format_bytes
from workbench.experiment.config import DataConfig, PointConfig, dataset_of
from workbench.experiment.grid import rows_of_points

if TYPE_CHECKING:
    from workbench.memory.estimate import BatchSizes
    from workbench.standin.stand_in import StandIn

_FEW_NODES, _FEW_EDGES = 20_000, 400_000  # of published sets without a stand-in, all of which are small
_RELATIONS = 6  # of MAG240M's three kinds of edges, in both directions


@dataclass(frozen=True)
class Needs:
    """What one point needs.

    Args:
        host_bytes: memory that building its data set takes, which is then mapped from a file; 0 for one that is read.
        device_bytes: peak of its largest training step on a GPU; None if it trains no such model there.
        work: edges that it samples times the width of what it computes on them, to compare points of one figure.
    """

    host_bytes: int
    device_bytes: int | None
    work: float


def needs_of(config: PointConfig) -> Needs:
    """What a point needs, from the published sizes of its data set and the expected sizes of its batches.

    Neighbours are counted as if drawn uniformly. Real ones repeat more often, so the bytes are rather too many.

    Args:
        config: of the point, with the data set that it will read.
    """
    data = dataset_of(config)
    if data is None:
        return Needs(0, None, 1.0)
    size = _GraphSize.of(data)
    fanouts: Sequence[int] = getattr(config, "fanouts", ())
    seeds = int(getattr(config, "batch_size", None) or getattr(config, "num_seeds", None) or size.num_train)
    cuts = getattr(config, "num_parts", 1)
    parts = min(cuts) if isinstance(cuts, tuple) else int(cuts)
    rows, edges = expected_batch(fanouts, max(1, min(seeds, size.num_nodes) // parts), size.num_nodes, size.num_edges)
    width = int(getattr(config, "hidden_dim", 1))
    per_epoch = max(1, size.num_train // seeds)
    steps = getattr(config, "steps", None) or getattr(config, "epochs", 1) * per_epoch
    work = float(steps) * parts * (sum(edges) or size.num_edges) * width
    trains = config.device != "cpu" and fanouts and all(hasattr(config, name) for name in ("model", "hidden_dim"))
    return Needs(size.host_bytes, _model_step_bytes(config, size, rows, edges) if trains else None, work)


def check_needs(points: Iterable[PointConfig], where: str) -> list[str]:
    """Check that the points of a sweep can start, and describe those that may not end.

    Args:
        points: configurations, with data sets that are available.
        where: file that they come from, for messages.

    Returns:
        Lines for the user: steps that a GPU of this size is expected to be too small for. Such a point may still run
        in micro-batches, or fail alone.

    Raises:
        CapacityError: a data set that has to be built needs more memory than is available.
    """
    found = [(config, needs_of(config)) for config in points]
    config, most = max(found, key=lambda pair: pair[1].host_bytes)
    data = dataset_of(config)
    if data is not None and most.host_bytes > available_bytes() and not _is_built(data):
        from workbench.standin.catalog import STANDINS

        scale = data.scale or STANDINS[data.name].default_scale
        raise CapacityError(
            f"{where}: building {data.name} needs {format_bytes(most.host_bytes)} of memory, but "
            f"{format_bytes(available_bytes())} are available; pass a smaller one, such as --set dataset.scale="
            f"{scale * available_bytes() / most.host_bytes / 2:.1g}"
        )
    steps = [(each.device_bytes, config) for config, each in found if each.device_bytes is not None]
    return _too_large(steps) if steps else []


def _too_large(steps: list[tuple[int, PointConfig]]) -> list[str]:
    import torch

    device = steps[0][1].device
    capacity = torch.cuda.get_device_properties(device).total_memory
    larger = [nbytes for nbytes, _ in steps if nbytes > capacity]
    line = f"largest training step: about {format_bytes(max(nbytes for nbytes, _ in steps))}"
    if larger:
        line += f"; {len(larger)} of {len(steps)} points may need more than the {format_bytes(capacity)} of {device}"
    return [line]


def expected_seconds(
    points: Iterable[PointConfig], table: pd.DataFrame, recorded_points: Sequence[PointConfig]
) -> float | None:
    """Seconds that points are expected to take at the speed of a recorded table.

    The seconds of a recorded point are divided by its work, and their median is multiplied by the work of the points.
    A GPU takes less where it trains, and as much where the host samples.

    Args:
        points: configurations of a sweep.
        table: recorded rows of the same sweep at another size.
        recorded_points: configurations of that size.

    Returns:
        None if the table has no seconds of these points.
    """
    if "point_seconds" not in table:
        return None
    places = rows_of_points(table, recorded_points)
    rates = [
        float(table.point_seconds.iloc[rows[0]]) / needs_of(config).work
        for config, rows in zip(recorded_points, places, strict=True)
        if rows
    ]
    return median(rates) * sum(needs_of(config).work for config in points) if rates else None


def expected_batch(
    fanouts: Sequence[int], num_seeds: int, num_nodes: int, num_edges: int
) -> tuple[list[int], list[int]]:
    """Sizes that a sampled batch is expected to have if neighbours are drawn uniformly.

    Of n nodes, e draws leave n·exp(−e/n) undrawn.

    Args:
        fanouts: per layer, input layer first; -1: all neighbours.
        num_seeds: of the batch.
        num_nodes: of the graph.
        num_edges: of the graph.

    Returns:
        Nodes per layer, inputs first and seeds last, one more than fanouts; edges per layer.

    >>> expected_batch([10, 25], 4, 10**9, 10**10)
    ([1144, 104, 4], [1040, 100])
    """
    rows, edges = [num_seeds], list[int]()
    for fanout in reversed(fanouts):
        edges.insert(0, min(num_edges, rows[0] * fanout) if fanout >= 0 else num_edges)
        others = num_nodes - rows[0]
        rows.insert(0, rows[0] + round(others * -expm1(-edges[0] / num_nodes)))
    return rows, edges


@dataclass(frozen=True)
class _GraphSize:
    """Published sizes of a data set at its scale."""

    num_nodes: int
    num_edges: int
    num_train: int
    num_features: int
    num_classes: int
    host_bytes: int

    @staticmethod
    def of(data: DataConfig) -> "_GraphSize":
        from workbench.standin.build import required_bytes
        from workbench.standin.catalog import STANDINS
        from workbench.standin.stand_in import KnowledgeStandIn, scaled

        generated = data.name.startswith("synthetic-")
        name = data.name if generated else f"synthetic-{data.name.removeprefix('ogbn-')}"
        spec: StandIn | KnowledgeStandIn | None = STANDINS.get(name)
        if spec is None:
            return _GraphSize(_FEW_NODES, _FEW_EDGES, _FEW_NODES, 128, 64, 0)
        scale = (data.scale or spec.default_scale) if generated else 1.0
        host_bytes = required_bytes(name, scale)[0] if generated else 0
        train = scaled(spec.splits[0], scale)
        if isinstance(spec, KnowledgeStandIn):
            entities = scaled(spec.entities, scale)
            return _GraphSize(entities, scaled(sum(spec.splits), scale), train, 0, spec.relations, host_bytes)
        nodes, edges = scaled(spec.nodes, scale), scaled(spec.edges, scale)
        if spec.authors is not None:
            nodes += scaled(spec.authors.authors + spec.authors.institutions, scale)
            edges += scaled(spec.authors.writes + spec.authors.affiliations, scale)
        both = 2 if data.undirected and spec.directed else 1
        widths = {"given": spec.features, "degree": 1}
        width = widths[data.features] if data.features in widths else int(data.features.partition(":")[2])
        return _GraphSize(nodes, both * edges, train, width, spec.classes, host_bytes)


def _is_built(data: DataConfig) -> bool:
    """Whether some form of the data set was built; then the check that precedes every build is enough."""
    from workbench.paths import cache_folder

    return (cache_folder() / "datasets" / data.name).exists()


def _model_step_bytes(config: Any, size: _GraphSize, rows: list[int], edges: list[int]) -> int:
    heads, dropout = getattr(config, "heads", 1), getattr(config, "dropout", 0.0)
    dims = size.num_features, config.hidden_dim, size.num_classes
    kind = getattr(config, "model_kind", config.model)
    return _step_bytes(kind, dims, heads, dropout, tuple(rows), tuple(edges))


@cache
def _step_bytes(
    kind: str, dims: tuple[int, int, int], heads: int, dropout: float, rows: tuple[int, ...], edges: tuple[int, ...]
) -> int:
    """Peak of a step of Adam; points of a grid often share it."""
    from torch.nn.functional import cross_entropy

    from workbench.memory.analytic.layers import loss_simulation
    from workbench.memory.analytic.training_step import simulate_step
    from workbench.memory.training_setup import Backend, OptimizerMemory
    from workbench.nn.model import TYPED_MODEL_KINDS, build_model

    in_dim, hidden_dim, out_dim = dims
    relations: dict[str, Any] = {"num_relations": _RELATIONS} if kind in TYPED_MODEL_KINDS else {}
    model = build_model(
        kind,
        in_dim=in_dim,
        hidden_dim=hidden_dim,
        out_dim=out_dim,
        num_layers=len(edges),
        heads=heads,
        dropout=dropout,
        **relations,
    )
    memory = OptimizerMemory.of("adam", model, on_cuda=True)
    sizes = _batch_sizes(rows, edges)
    return simulate_step(model, sizes, memory, Backend("cuda"), loss_simulation(cross_entropy)).peak_bytes


def _batch_sizes(rows: Sequence[int], edges: Sequence[int]) -> "BatchSizes":
    """Sizes of a batch whose destinations have equal degrees."""
    import torch

    from workbench.memory.estimate import BatchSizes, BlockSizes

    blocks, arrays = [], [8 * rows[0]]
    for num_src, num_dst, count in zip(rows, rows[1:], edges, strict=False):
        counts = torch.zeros(count // num_dst + 2, dtype=torch.int64)
        counts[-1], counts[-2] = count % num_dst, num_dst - count % num_dst
        blocks.append(BlockSizes(num_src, num_dst, count, degree_counts=counts))
        arrays += [8 * (num_dst + 1), 4 * count]
    return BatchSizes(tuple(blocks), tuple(arrays), rows[0])
