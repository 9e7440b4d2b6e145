"""`Placement`: which rows each device holds, where a device finds a row, and what that is expected to cost."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids
from workbench.kernels.jit import compiled
from workbench.placement.problem import PlacementProblem


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

        `problem.costs[device] @ counts` is what the reads cost.

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
