"""All placements of a few rows, and random cases to compare them with."""

import random
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
import torch


@dataclass
class Case:
    """Arguments of `place_rows`."""

    p: torch.Tensor
    capacity: list[int]
    options: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        return {"num_devices": len(self.capacity), "rows_per_device": self.capacity, **self.options}


def random_case(seed: int, kind: str) -> Case:
    """A case of 2 or 3 devices and 3 to 12 rows: "equal" buffers and costs, "unequal" buffers, or a cost "matrix"."""
    rng = random.Random(seed)
    n = rng.choice((2, 3))
    num_rows = rng.randint(3, 12)
    most = min(num_rows, 6 if n == 2 else 4 if num_rows <= 9 else 2)
    skew = rng.choice((0.0, 0.5, 1.0, 2.0))
    p = torch.tensor([rng.random() * (i + 1) ** -skew for i in range(num_rows)], dtype=torch.float64)
    p = p[torch.tensor(rng.sample(range(num_rows), num_rows))]
    capacity = [rng.randint(1, most)] * n if kind == "equal" else [rng.randint(0, most) for _ in range(n)]
    if kind != "matrix":
        return Case(p, capacity, {"peer_cost": rng.random()})
    host = [rng.uniform(0.5, 1.5) for _ in range(n)]
    peers = [[rng.choice((1.0, rng.random())) * host[i] for _ in range(n)] for i in range(n)]
    return Case(p, capacity, {"peer_cost": peers, "host_cost": host})


def cheapest(costs: torch.Tensor, p: torch.Tensor, capacity: list[int], objective: str) -> float:
    """The least cost of all placements that fill the buffers.

    Args:
        costs: float64 [n, n + 1], as in `PlacementProblem`.
        p: float64 [num_rows].
        capacity: rows per device.
        objective: "largest" or "total".
    """
    n, rows, price = len(capacity), len(p), costs.numpy()
    choices = [
        np.array([[r in chosen for r in range(rows)] for chosen in combinations(range(rows), c)]) for c in capacity
    ]
    best = np.inf
    for first in product(*choices[:-1]):
        held = [*(rows[None] for rows in first), choices[-1]]  # every choice of the last device at once
        cost = []
        for i in range(n):
            each = np.full(choices[-1].shape, price[i, n])
            for j in range(n):
                if j != i:
                    each = np.where(held[j], np.minimum(each, price[i, j]), each)
            cost.append(np.where(held[i], 0.0, each) @ p.numpy())
        found = np.max(cost, axis=0) if objective == "largest" else np.sum(cost, axis=0)
        best = min(best, float(found.min()))
    return best
