"""`PlacementProblem`: how often rows are read, how many each device has room for, and what a row costs from where."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_finite, check_vector

OBJECTIVES = ("largest", "total")
MAX_DEVICES = 62  # the devices that hold a row are the bits of an int64
Costs = float | Sequence[Sequence[float]] | Tensor


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Inputs of a placement, checked.

    Args:
        p: float64 [num_rows], how often one device reads each row per batch; the same for all devices.
        capacity: int64 [num_devices], rows that each device has room for.
        costs: float64 [num_devices, num_devices + 1]: what a device (row) pays for a row held by a device (column), or
            by the host (last column). Its own rows are free.
        objective: "largest" (expected cost of the device that pays most) or "total" (sum over devices).
    """

    p: Tensor
    capacity: Tensor
    costs: Tensor
    objective: str = "largest"

    @property
    def num_devices(self) -> int:
        return len(self.capacity)

    @property
    def num_rows(self) -> int:
        return len(self.p)

    @cached_property
    def order(self) -> Tensor:
        """int64 [num_rows], ids by descending probability, equal ones in the order of their ids."""
        return torch.from_numpy(np.argsort(-self.p.numpy(), kind="stable"))

    @cached_property
    def ranked(self) -> Tensor:
        """float64 [num_rows], probabilities in descending order."""
        return self.p[self.order]

    @cached_property
    def mass(self) -> Tensor:
        """float64 [num_rows + 1], sums of the first 0, 1, … of `ranked`."""
        return torch.cat([self.p.new_zeros(1), self.ranked.cumsum(0)])

    @cached_property
    def groups(self) -> list[list[int]]:
        """Devices that can gain from each other's rows, directly or not; across groups the host is as cheap."""
        host = self.costs[:, -1:]
        linked = (self.costs[:, :-1] < host) | (self.costs[:, :-1] < host).T
        groups: list[list[int]] = []
        for device in range(self.num_devices):
            if not any(device in group for group in groups):
                groups.append(sorted(_reachable(linked, device)))
        return groups

    def restricted(self, devices: list[int]) -> "PlacementProblem":
        """Return the problem of some devices alone, in that order; it shares the sorted rows."""
        part = PlacementProblem(
            self.p, self.capacity[devices], self.costs[devices][:, [*devices, self.num_devices]], self.objective
        )
        part.__dict__.update(order=self.order, ranked=self.ranked, mass=self.mass)
        return part


def _reachable(linked: Tensor, start: int) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        new = set(linked[waiting.pop()].nonzero()[:, 0].tolist()) - found
        found |= new
        waiting += new
    return found


def make_problem(
    p: Tensor,
    *,
    num_devices: int,
    rows_per_device: int | Sequence[int] | Tensor,
    peer_cost: Costs,
    host_cost: float | Sequence[float] | Tensor,
    groups: Sequence[Sequence[int]] | None,
    objective: str,
) -> PlacementProblem:
    """Check the arguments of `place_rows`, which documents them, and return the problem that they state."""
    check_choice("objective", objective, OBJECTIVES)
    check_at_least("num_devices", num_devices, 1, most=MAX_DEVICES)
    n = int(num_devices)
    check_vector("p", p, None, (torch.float64, torch.float32))
    p = p.detach().to("cpu", torch.float64).contiguous()
    check_finite("p", p)
    if len(p) and p.min() < 0:
        raise ValueError(f"p contains {float(p.min())} at row {int(p.argmin())}; probabilities must not be negative")
    costs = _costs(peer_cost, host_cost, groups, n)
    if not bool((p.sum() * costs.sum()).isfinite()):
        raise ValueError(
            f"p has the sum {float(p.sum()):.4g} and the largest cost is {float(costs.max()):.4g}, so that expected "
            f"costs exceed {torch.finfo(p.dtype).max:.4g}; divide p by its largest value, and costs by theirs"
        )
    return PlacementProblem(p, _capacity(rows_per_device, n, len(p)), costs, objective)


def _capacity(rows_per_device: int | Sequence[int] | Tensor, n: int, num_rows: int) -> Tensor:
    given = rows_per_device.tolist() if isinstance(rows_per_device, Tensor) else rows_per_device
    rows = list(given) if isinstance(given, Sequence) else [given] * n
    if len(rows) != n:
        raise ValueError(f"rows_per_device has {len(rows)} entries for {n} devices; pass one number, or one per device")
    for count in rows:
        check_at_least("rows_per_device", count, 0)
        if count > num_rows:
            raise ValueError(
                f"rows_per_device is {count}, but there are {num_rows} rows; pass at most that: a device then holds all"
            )
    return torch.tensor(rows, dtype=torch.int64)


def _costs(peer_cost: Costs, host_cost: object, groups: Sequence[Sequence[int]] | None, n: int) -> Tensor:
    host = _numbers("host_cost", host_cost)
    if host.dim() > 1 or (host.dim() == 1 and len(host) != n):
        raise ValueError(f"host_cost has shape {tuple(host.shape)}; pass one number, or one for each of {n} devices")
    host = host.expand(n)[:, None]
    peer = _numbers("peer_cost", peer_cost)
    if peer.dim() and peer.shape != (n, n):
        raise ValueError(
            f"peer_cost has shape {tuple(peer.shape)}; pass one number, or a square matrix [{n}, {n}] of what a device "
            "(row) pays for a row held by another (column)"
        )
    peer = peer.expand(n, n).clone()
    if groups is not None:
        peer = torch.where(_same_group(groups, n), peer, host)
    peer.fill_diagonal_(0)
    if bool((peer > host).any()):
        i, j = (peer > host).nonzero()[0].tolist()
        raise ValueError(
            f"peer_cost[{i}, {j}] is {float(peer[i, j])}, above the host's {float(host[i, 0])}: device {i} would never "
            f"read from device {j}; pass the host's cost there"
        )
    return torch.cat([peer, host], dim=1)


def _numbers(name: str, value: object) -> Tensor:
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {value!r}; pass numbers") from None
    check_finite(name, numbers)
    if numbers.numel() and numbers.min() < 0:
        raise ValueError(f"{name} contains {float(numbers.min())}; costs must not be negative")
    return numbers


def _same_group(groups: Sequence[Sequence[int]], n: int) -> Tensor:
    groups = [list(group) for group in groups]
    listed = [int(device) for group in groups for device in group]
    if sorted(listed) != list(range(n)):
        raise ValueError(f"groups list the devices {listed}; list each of 0 to {n - 1} once: [[0, 1], [2, 3]]")
    number = torch.empty(n, dtype=torch.int64)
    for index, group in enumerate(groups):
        number[group] = index
    return number[:, None] == number
