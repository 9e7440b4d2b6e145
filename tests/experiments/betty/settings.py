"""Rows of Figure 2's sweep: the configuration of a tiny point, and a table in which the claims hold."""

from typing import Any

import pandas as pd

MIB = 2**20

GIVEN: dict[str, Any] = {
    "dataset": {"name": "synthetic-products", "scale": 0.001},
    "panel": "layers",
    "model": "sage-mean",
    "fanouts": [3, 3],
    "hidden_dim": 8,
    "learning_rate": 0.01,
    "method": "reg",
    "capacity_bytes": 2**30,
}

PANELS = {
    "aggregator": ("mean", "pool", "lstm"),
    "layers": ("1", "2", "3", "4"),
    "hidden": ("8", "16", "32", "64"),
    "fanout": ("2", "10", "100"),
}


def settings() -> pd.DataFrame:
    """In each panel memory doubles from 2 MiB, or rises fourfold from 1, to 16, beyond the capacity, and is cut."""
    return pd.DataFrame([_row(p, place, s) for p, found in PANELS.items() for place, s in enumerate(found)])


def _row(panel: str, place: int, setting: str) -> dict[str, Any]:
    peak = (4 if len(PANELS[panel]) == 3 else 2) ** place * MIB * (1 if len(PANELS[panel]) == 3 else 2)
    parts = max(1, peak // (6 * MIB))
    return {
        "dataset": "x",
        "panel": panel,
        "setting": setting,
        "model": "sage-mean",
        "fanouts": "[10]",
        "hidden_dim": 32,
        "capacity_bytes": 8 * MIB,
        "peak_bytes": float(peak),
        "estimate_bytes": peak,
        "refused": None,
        "num_parts": float(parts),
        "inputs_ratio": float(parts),
        "plan_bytes": float(peak // parts),
        "cut_peak_bytes": float(peak // parts),
        "cut_again": 0.0,
        "status": "FINISHED",
    }
