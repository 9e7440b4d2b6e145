"""What the figures share: topologies, placements by name, the rows that epochs read, and what moving them takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from workbench.core.machine import Machine
from workbench.experiment.config import DataPointConfig
from workbench.meter.stopwatch import measure_machine

TopologyName = Literal["2 GPUs", "4 GPUs", "8 GPUs", "2+2 GPUs", "2×4 GPUs"]
PARTITIONERS = ("METIS", "PaGraph")
OWN = ", own seeds"
"""After a partitioner's name: every device's batches have seeds of its own part alone, as DGL and PaGraph train."""

SUM = "algorithm-1, sum"
"""Algorithm 1 with the threshold that minimises the devices' total cost instead of α."""

METHODS = (
    "naive",
    "random",
    "METIS",
    f"METIS{OWN}",
    "PaGraph",
    f"PaGraph{OWN}",
    "hottest",
    "algorithm-1-printed",
    "algorithm-1",
    SUM,
    "search",
)


@dataclass(frozen=True)
class Topology:
    """GPUs of one machine.

    Args:
        num_devices: their number.
        groups: GPUs that have links among each other; None: all have.
    """

    num_devices: int
    groups: tuple[tuple[int, ...], ...] | None = None


TOPOLOGIES: Mapping[TopologyName, Topology] = {
    "2 GPUs": Topology(2),
    "4 GPUs": Topology(4),
    "8 GPUs": Topology(8),
    "2+2 GPUs": Topology(4, ((0, 1), (2, 3))),
    "2×4 GPUs": Topology(8, ((0, 1), (2, 3), (4, 5), (6, 7))),
}
"""Behind one switch, or in pairs joined by a bridge; across pairs a peer costs as much as the host."""


_measured = cache(measure_machine)


class MovementConfig(DataPointConfig):
    """Epochs of several GPUs, each with its own batches.

    Args:
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch and device.
        buffer_share: rows that each device has room for, as a share of all rows.
        machine: published link speeds (`wb.core.MACHINES`), or those of the GPU that this runs on.
        row_bytes: bytes of a feature row; None: those of the data set.
    """

    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    buffer_share: float = Field(gt=0, le=1)
    machine: Literal["V100", "A100", "measured"] = "V100"
    row_bytes: PositiveInt | None = None

    def speeds(self) -> Machine:
        """Bytes per second of the device (γ), of peers (α) and of the host (β)."""
        return _measured(self.device) if self.machine == "measured" else wb.core.MACHINES[self.machine]

    def bytes_of_row(self, data: Any) -> int:
        """Bytes of a feature row."""
        return self.row_bytes or data.num_features * data.x.element_size()


class Placed(NamedTuple):
    """A placement, and the training nodes that each device's batches are drawn from.

    Args:
        placement: which rows each device holds.
        seeds: per device; None: all devices share the epoch's batches.
    """

    placement: wb.placement.Placement
    seeds: list[Tensor] | None = None


def place_all(config: MovementConfig, data: Any, topology: Topology, methods: Sequence[str]) -> dict[str, Placed]:
    """The placement of every method; partitioners run once each."""
    graph, train, speeds = data.graph, data.train_idx, config.speeds()
    p = wb.placement.inclusion_probability(graph, train, fanouts=config.fanouts, batch_size=config.batch_size)
    given: dict[str, Any] = {"num_devices": topology.num_devices, "groups": topology.groups}
    given |= {"rows_per_device": max(1, int(config.buffer_share * graph.num_nodes))}
    given |= {"peer_cost": min(1.0, speeds.beta / speeds.alpha)}  # in rows of the host
    found = {}
    for method in methods:
        name = method.removesuffix(OWN)
        if name not in PARTITIONERS:
            objective = "total" if method == SUM else "largest"
            chosen = {"method": method.partition(",")[0], "objective": objective, "seed": config.seed}
            found[method] = Placed(wb.placement.place_rows(p, **given, **chosen))
        elif name not in found and f"{name}{OWN}" not in found:
            parts, seeds = _partitioned(name, config, data, topology.num_devices)
            placed = wb.placement.place_rows(p, **given, method="parts", parts=parts)
            found |= {name: Placed(placed), f"{name}{OWN}": Placed(placed, seeds)}
    return {method: found[method] for method in methods}


def _partitioned(name: str, config: MovementConfig, data: Any, num_devices: int) -> tuple[Any, list[Tensor]]:
    """The rows of each part, and its training nodes."""
    train = data.train_idx
    if name == "METIS":
        owner = wb.partition_graph(data.graph, num_devices, method="metis", seed=config.seed)
        return owner, [train[owner[train] == device] for device in range(num_devices)]
    found = wb.partition.pagraph_parts(data.graph, train, num_devices, num_hops=len(config.fanouts))
    return found.nodes, [train[found.assignment == device] for device in range(num_devices)]


class Epoch(NamedTuple):
    """The batches of an epoch.

    Args:
        reads: per device, the ids of every batch's input rows.
        layers: per layer, input layer first: mean sources, destinations and edges of a batch.
    """

    reads: list[list[Tensor]]
    layers: list[tuple[float, float, float]]


def sample_epoch(config: MovementConfig, data: Any, num_devices: int, seeds: Sequence[Tensor] | None) -> Epoch:
    """Sample an epoch: one order of all training nodes dealt to the devices in turn, or each device's own.

    Args:
        config: of the point.
        data: graph and training nodes.
        num_devices: number of devices.
        seeds: training nodes per device; None: they share all.

    Raises:
        ValueError: fewer batches than devices.
    """
    reads: list[list[Tensor]] = [[] for _ in range(num_devices)]
    sizes = torch.zeros(len(config.fanouts), 3, dtype=torch.float64)
    for number, nodes in enumerate([data.train_idx] if seeds is None else seeds):
        sampler = wb.NeighborSampler(config.fanouts, seed=config.seed + number)
        size = min(config.batch_size, max(1, len(nodes)))
        given: dict[str, Any] = {"batch_size": size, "drop_last": True, "seed": config.seed, "epoch": 0}
        batches = wb.batches(data.graph, nodes, sampler=sampler, **given)
        whole = len(batches) if seeds is not None else len(batches) // num_devices * num_devices
        for place, (_, mb) in enumerate(batches):
            if place < whole:
                reads[place % num_devices if seeds is None else number].append(mb.node_ids)
                sizes += torch.tensor([[b.num_src, b.num_dst, b.num_edges] for b in mb.blocks])
    if seeds is None and not reads[-1]:
        raise ValueError(
            f"{len(data.train_idx)} training nodes are fewer than {num_devices} batches of {config.batch_size} seeds; "
            "set a smaller batch_size"
        )
    return Epoch(reads, [tuple(row) for row in (sizes / sum(map(len, reads))).tolist()])


def moved_columns(config: MovementConfig, data: Any, placement: wb.placement.Placement, epoch: Epoch) -> dict[str, Any]:
    """Counted rows by link, of all devices, and the modelled seconds of the device that moves rows for longest.

    `alone_seconds`: with the same buffers, if rows of peers came from the host, as in PaGraph.
    """
    speeds, row_bytes = config.speeds(), config.bytes_of_row(data)
    seconds, alone, costs, links = [], [], [], torch.zeros(3, dtype=torch.int64)
    own, peer, host = (row_bytes / speed for speed in (speeds.gamma, speeds.alpha, speeds.beta))
    for device, ids in enumerate(epoch.reads):
        counts = placement.count_reads(device, torch.cat([torch.empty(0, dtype=torch.int64), *ids]))
        by_link = torch.stack([counts[device], counts[:-1].sum() - counts[device], counts[-1]])
        links += by_link
        rows = by_link.tolist()
        seconds.append(rows[0] * own + rows[1] * peer + rows[2] * host)
        alone.append(rows[0] * own + (rows[1] + rows[2]) * host)
        costs.append(float(placement.problem.costs[device] @ counts.double()) / max(1, len(ids)))
    return {
        "batches": max(map(len, epoch.reads)),
        "row_bytes": row_bytes,
        **dict(zip(("device_rows", "peer_rows", "host_rows"), links.tolist(), strict=True)),
        "counted_cost": max(costs),
        "expected_cost": placement.largest_cost,
        "coverage": placement.coverage,
        "duplicate_rows": placement.num_duplicates,
        "loading_seconds": max(seconds),
        "alone_seconds": max(alone),
        "gamma": speeds.gamma,
        "alpha": speeds.alpha,
        "beta": speeds.beta,
    }


def told_speeds(table: Any) -> str:
    """The cost model's inputs, for a subtitle."""
    rows = table[["gamma", "alpha", "beta"]].drop_duplicates().to_numpy() / 1e9
    return "; ".join(f"modelled at {g:,.0f} (own), {a:,.0f} (peer) and {b:,.0f} GB/s (host)" for g, a, b in rows)
