"""Rows of Betty's training curves as they would be if the claims held, to be spoiled by tests."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

EPOCHS = 20


def curve(
    dataset: str, model: str, approach: str, num_parts: int, precision: str, seed: int
) -> Iterator[dict[str, Any]]:
    """One run: its loss halves in three epochs; that of mini-batches in one, in a zigzag, to a lower accuracy."""
    mini, rounding = approach == "mini", 1e-7 * (approach == "micro") * (precision == "float32")
    for epoch in range(1, EPOCHS + 1):
        loss = (3 + seed / 100) * 2 ** (-epoch / (1 if mini else 3)) * (1 + 0.2 * (-1) ** epoch * mini)
        accuracy = (0.7 if mini else 0.8) * (1 - (0.2 if mini else 0.7) ** epoch) - seed / 100
        yield {
            "dataset": dataset,
            "model": model,
            "approach": approach,
            "num_parts": num_parts,
            "moved": 0,
            "precision": precision,
            "seed": seed,
            "epoch": epoch,
            "evaluate_every": 1 if precision == "float32" else EPOCHS,
            "num_steps": num_parts if mini else 1,
            "loss": loss + rounding,
            "train_accuracy": accuracy + 0.1,
            "val_accuracy": accuracy,
            "majority": 0.3,
            "test_accuracy": accuracy if precision == "float32" or epoch == EPOCHS else None,
            "status": "FINISHED",
        }


def against_mini_batches() -> pd.DataFrame:
    """Rows of Figure 4."""
    ways = [("whole", 1), ("mini", 16), ("micro", 16)]
    runs = [(way, k, "float32", seed) for way, k in ways for seed in (0, 1, 2)]
    runs += [("whole", 1, "float64", 0), ("micro", 16, "float64", 0)]
    return pd.DataFrame(row for data in ("x", "y") for run in runs for row in curve(data, "sage-mean", *run))


def by_number_of_parts() -> pd.DataFrame:
    """Rows of Figure 13."""
    ways = [("whole", 1), ("micro", 2), ("micro", 4), ("micro", 8)]
    runs = [(way, k, "float32", seed) for way, k in ways for seed in (0, 1)]
    runs += [(way, k, "float64", 0) for way, k in ways]
    return pd.DataFrame(row for run in runs for row in curve("x", "sage-mean", *run))


def with_independent_seeds() -> pd.DataFrame:
    """Rows of Table 5: the whole batch has seeds 0 to 2, micro-batches 0 and 3 to 5, which are a point lower."""
    runs = [("whole", 1, "float32", seed) for seed in (0, 1, 2)]
    runs += [("micro", 4, "float32", seed) for seed in (0, 3, 4, 5)]
    runs += [("whole", 1, "float64", 0), ("micro", 4, "float64", 0)]
    cases = [(data, model) for data in ("cora", "y") for model in ("sage-mean", "gat")]
    table = pd.DataFrame(row for case in cases for run in runs for row in curve(*case, *run))
    later = table.seed > 2  # as spread as the first three, and 0.75 points higher than they would be
    return table.assign(test_accuracy=table.test_accuracy + 0.005 * table.seed + 0.0075 * later)
