"""`place_rows`: choose the rows that each device holds; `Placement`: where it finds a row, at what expected cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed, check_vector
from workbench.core.randomness import Purpose, permutation, stream
from workbench.kernels.jit import compiled
from workbench.placement.algorithm1 import trade_duplicates
from workbench.placement.problem import Costs, PlacementProblem, make_problem
from workbench.placement.search import search


class RowLookup(NamedTuple):
    """Where one device finds every row: in its own buffer, otherwise at the cheapest peer, otherwise on the host.

    Args:
        holder: int16 [num_rows], the device to read from; −1: the host.
        slot: int64 [num_rows], position in that device's buffer; −1: the host.
    """

    holder: Tensor
    slot: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """The rows that each device holds. Costs are expectations per batch of one device.

    Args:
        problem: probabilities, capacities and costs.
        method: that placed the rows.
        buffers: per device int64 [at most its capacity], the ids that it holds, each once, in the order of its slots.
    """

    problem: PlacementProblem
    method: str
    buffers: tuple[Tensor, ...]

    @property
    def num_devices(self) -> int:
        return self.problem.num_devices

    @property
    def num_rows(self) -> int:
        """Number of rows of the store."""
        return self.problem.num_rows

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"method": self.method, "rows_per_device": [len(rows) for rows in self.buffers]}

    @property
    def predicted(self) -> Mapping[str, float]:
        """Expected costs per batch, in the unit of the costs given, and how many rows are on devices."""
        return {"largest_cost": self.largest_cost, "total_cost": self.total_cost, "held_rows": self.num_distinct}

    @property
    def error(self) -> float:
        """0: the costs are those of the probabilities given."""
        return 0.0

    def code(self) -> str:
        """Lines in which a rank of `rank` reads the rows `x` as this placement, `placement`, has placed them."""
        return "rows = wb.placement.PlacedRows(placement, rank, host=wb.MemoryRows(x))\n"

    def lookup(self, device: int) -> RowLookup:
        """Return where a device finds every row. Of peers that cost the same, the next in cyclic order is read.

        Args:
            device: number of the device.

        Raises:
            ValueError: there is no such device.
        """
        check_at_least("device", device, 0, most=self.num_devices - 1)
        costs, n = self.problem.costs[device], self.num_devices
        holder = torch.full((self.num_rows,), -1, dtype=torch.int16)
        slot = torch.full((self.num_rows,), -1, dtype=torch.int64)
        nearest = sorted(range(n), key=lambda peer: (peer != device, float(costs[peer]), (peer - device) % n))
        for peer in reversed(nearest):  # the nearest is written last
            if peer == device or costs[peer] < costs[n]:
                holder[self.buffers[peer]] = peer
                slot[self.buffers[peer]] = torch.arange(len(self.buffers[peer]))
        return RowLookup(holder, slot)

    def count_reads(self, device: int, ids: Tensor) -> Tensor:
        """Count where a device reads rows from, without reading them.

        `problem.costs[device] @ counts.double()` is what the reads cost.

        Args:
            device: number of the device.
            ids: int64 or int32 [n], such as those of an `AccessTrace`; an id that occurs again counts again.

        Returns:
            int64 [num_devices + 1], rows read from each device's buffer, last from the host.

        Raises:
            ValueError: there is no such device.
            IndexError: an id out of range.
        """
        holder = self.lookup(device).holder[check_ids("ids", ids, self.num_rows).cpu()].long()
        n = self.num_devices
        return torch.bincount(torch.where(holder < 0, n, holder), minlength=n + 1)

    @cached_property
    def holders(self) -> Tensor:
        """int64 [num_rows], bit i is set if device i holds the row."""
        bits = torch.zeros(self.num_rows, dtype=torch.int64)
        for device, rows in enumerate(self.buffers):
            bits[rows] += 1 << device
        return bits

    @cached_property
    def expected_cost(self) -> Tensor:
        """float64 [num_devices]: Σ p(v) · cost of v, over all rows."""
        problem = self.problem
        cost = torch.zeros(self.num_devices, dtype=torch.float64)
        _expected_cost(problem.p.numpy(), self.holders.numpy(), problem.costs.numpy(), cost.numpy())
        return cost

    @property
    def total_cost(self) -> float:
        """Sum of the devices' expected costs."""
        return float(self.expected_cost.sum())

    @property
    def largest_cost(self) -> float:
        """Expected cost of the device that pays most."""
        return float(self.expected_cost.max())

    @property
    def cost(self) -> float:
        """The problem's objective: the largest or the total cost."""
        return self.largest_cost if self.problem.objective == "largest" else self.total_cost

    @cached_property
    def lower_bound(self) -> float:
        """A cost that no placement of these capacities can fall below, for the problem's objective.

        It is the optimum of a relaxation in which rows may be divided (`placement/search.py`).
        """
        from workbench.placement.search import lower_bound

        return lower_bound(self.problem)

    @property
    def gap(self) -> float:
        """By what fraction the cost exceeds the lower bound; 0 if both are 0."""
        return self.cost / self.lower_bound - 1 if self.lower_bound else float(self.cost > 0)

    @cached_property
    def num_distinct(self) -> int:
        """Number of rows that at least one device holds."""
        return int((self.holders != 0).sum())

    @property
    def num_duplicates(self) -> int:
        """Number of copies beyond the first of each row."""
        return sum(map(len, self.buffers)) - self.num_distinct

    @cached_property
    def coverage(self) -> float:
        """Share of the reads that some device's buffer can serve, whatever it costs."""
        total = float(self.problem.p.sum())
        return float(self.problem.p[self.holders != 0].sum()) / total if total else 0.0

    def row(self) -> dict[str, float]:
        """A table row: the costs, their bound, and what the buffers contain."""
        return {
            "largest_cost": self.largest_cost,
            "total_cost": self.total_cost,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "coverage": self.coverage,
            "distinct_rows": self.num_distinct,
            "duplicate_rows": self.num_duplicates,
        }

    def __repr__(self) -> str:
        kind = self.problem.objective
        return (
            f"Placement({self.method}: {self.num_distinct:,} of {self.num_rows:,} rows on {self.num_devices} devices, "
            f"{self.num_duplicates:,} duplicates; {kind} cost {self.cost:.4g})"
        )


@compiled
def _expected_cost(p, holders, costs, out):
    """Add every row's cost to each device: that of the cheapest holder, 0 if it is the device itself."""
    n = len(out)
    on_host = 0.0
    for row in range(len(p)):
        bits = holders[row]
        if bits == 0:
            on_host += p[row]
            continue
        for device in range(n):
            if (bits >> device) & 1:
                continue
            cheapest = costs[device, n]
            for peer in range(n):
                if (bits >> peer) & 1:
                    cheapest = min(cheapest, costs[device, peer])
            out[device] += p[row] * cheapest
    for device in range(n):
        out[device] += on_host * costs[device, n]


PLACEMENT_METHODS = ("algorithm-1", "algorithm-1-printed", "search", "hottest", "naive", "random", "parts")
"""Names of the placement methods. "parts" needs the part of each row."""

Parts = Tensor | Sequence[Tensor]


def place_rows(
    p: Tensor,
    *,
    num_devices: int,
    rows_per_device: int | Sequence[int] | Tensor,
    peer_cost: Costs,
    host_cost: float | Sequence[float] | Tensor = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    method: str = "algorithm-1",
    objective: str = "largest",
    threshold: float | None = None,
    parts: Parts | None = None,
    seed: int = 0,
) -> Placement:
    """Choose which feature rows each device holds, so that few reads cross slow links.

    A device reads a row from its own buffer (free), otherwise from the cheapest peer that holds it, otherwise from the
    host. All devices read every row v with the same probability p(v).

    Args:
        p: float64 or float32 [num_rows], how likely a batch reads each row, or anything proportional to it
            (`inclusion_probability`).
        num_devices: number of devices, 1 to 62.
        rows_per_device: rows that each device has room for: one number, or one per device.
        peer_cost: cost of a row held by another device, in any unit: one number, or a matrix [num_devices, num_devices]
            of what a device (row) pays for a row of another (column). At most the host's; equal to it: no link.
        host_cost: cost of a row of the host: one number, or one per device.
        groups: lists of devices with links among each other; across groups a peer costs as much as the host. None: all
            devices have links.
        method: a name of `PLACEMENT_METHODS`. "algorithm-1": the paper's trade of duplicates for coverage, corrected;
            one peer cost and one buffer size per group. "algorithm-1-printed": as printed, which skips every n-th row.
            "search": any costs and buffer sizes, by a linear relaxation, rounding and exchanges; at most 12 devices per
            group. "hottest": the most probable rows on every device. "naive", "random": the most probable rows of
            contiguous ids, or of a random part. "parts": those of each device's part.
        objective: "largest": expected cost of the device that pays most; "total": the sum over all devices.
        threshold: α of Algorithm 1: duplicates p(old) are given up for p(new) > α · p(old). None: peer cost / host cost
            = α for "largest", α / (n (1 − α) + α) for "total", n devices per group. For Algorithm 1 alone.
        parts: for "parts" alone: int64 or int32 [num_rows], the device of each row (`partition_graph`), or per device
            the ids of its part, which may overlap (`pagraph_parts`).
        seed: of "random".

    Returns:
        The placement: buffers, lookup, expected costs, and a lower bound of the cost.

    Raises:
        TypeError: an argument of another type.
        ValueError: an impossible value, arguments that do not belong to the method, or a group that it does not take.
        IndexError: a part or an id out of range.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs".

    >>> import torch
    >>> p = torch.tensor([0.0, 5, 4, 3, 2, 1])  # hottest first: 1, 2, 3, 4, 5, 0
    >>> placed = place_rows(p, num_devices=2, rows_per_device=2, peer_cost=0.3)
    >>> [rows.tolist() for rows in placed.buffers]
    [[1, 3], [4, 2]]
    """
    check_choice("method", method, PLACEMENT_METHODS)
    check_seed(seed)
    _check_options(method, threshold, parts)
    problem = make_problem(
        p,
        num_devices=num_devices,
        rows_per_device=rows_per_device,
        peer_cost=peer_cost,
        host_cost=host_cost,
        groups=groups,
        objective=objective,
    )
    return Placement(problem, method, tuple(_buffers(problem, method, threshold, parts, seed)))


def _buffers(
    problem: PlacementProblem, method: str, threshold: float | None, parts: Parts | None, seed: int
) -> list[Tensor]:
    match method:
        case "search":
            return search(problem)
        case "hottest":
            return hottest_rows(problem)
        case "naive":
            return naive_rows(problem)
        case "random":
            return random_rows(problem, seed)
        case "parts":
            return hottest_of_parts(problem, parts)
        case _:
            return trade_duplicates(problem, threshold=threshold, printed=method == "algorithm-1-printed")


def _check_options(method: str, threshold: float | None, parts: Parts | None) -> None:
    if threshold is not None and not method.startswith("algorithm-1"):
        raise ValueError(f'threshold= is for Algorithm 1 alone, but method is "{method}"; leave threshold out')
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold!r}; α must be in [0, 1]")
    if parts is not None and method != "parts":
        raise ValueError(f'parts= is for method="parts" alone, but method is "{method}"; leave parts out')


def hottest_rows(problem: PlacementProblem) -> list[Tensor]:
    """Every device holds the most probable rows: the best placement if peers are as expensive as the host (rule 1)."""
    return [problem.order[:size] for size in problem.capacity.tolist()]


def naive_rows(problem: PlacementProblem) -> list[Tensor]:
    """Contiguous ids: each device holds the hottest rows of its share of the ids."""
    return _hottest_of_shares(problem, torch.arange(problem.num_rows))


def random_rows(problem: PlacementProblem, seed: int) -> list[Tensor]:
    """Each device holds the hottest rows of its share of a random permutation of the ids."""
    return _hottest_of_shares(problem, permutation(stream(seed, Purpose.PARTITION), problem.num_rows))


def _hottest_of_shares(problem: PlacementProblem, ids: Tensor) -> list[Tensor]:
    ends = [problem.num_rows * i // problem.num_devices for i in range(problem.num_devices + 1)]
    return hottest_of_parts(problem, [ids[first:end] for first, end in pairwise(ends)])


def hottest_of_parts(problem: PlacementProblem, parts: Parts | None) -> list[Tensor]:
    """Each device holds the most probable rows of its part of the graph.

    Args:
        parts: int64 [num_rows], the device of each row; or the ids of each device, which may overlap.
    """
    n = problem.num_devices
    if parts is None:
        raise ValueError('method="parts" needs parts=, the device of each row, such as wb.partition_graph(graph, n)')
    if isinstance(parts, Tensor):
        check_vector("parts", parts, problem.num_rows, (torch.int64, torch.int32))
        owner = check_ids("parts", parts, n).cpu()[problem.order]
        sorted_ids = [problem.order[owner == device] for device in range(n)]
    else:
        if len(parts) != n:
            raise ValueError(f"parts has {len(parts)} entries for {n} devices; pass the ids of each device")
        sorted_ids = [_by_rank(problem, check_ids("parts", ids, problem.num_rows, unique=True).cpu()) for ids in parts]
    return [ids[:size] for ids, size in zip(sorted_ids, problem.capacity.tolist(), strict=True)]


def _by_rank(problem: PlacementProblem, ids: Tensor) -> Tensor:
    chosen = torch.zeros(problem.num_rows, dtype=torch.bool)
    chosen[ids] = True
    return problem.order[chosen[problem.order]]
