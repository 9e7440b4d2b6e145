"""Rows of Table 2's sweep in which the claims hold."""

import pandas as pd

SEEDS = {1: [100], 2: [51, 49], 4: [26, 25, 25, 24]}
LAST = {1: [60], 2: [36, 24], 4: [21, 15, 15, 9]}


def parts() -> pd.DataFrame:
    """A hundred outputs of in-degree 1, 2 (twenty) and 3, in one, two and four parts, which need 1 MiB an edge."""
    return pd.DataFrame([_row(count, part) for count in SEEDS for part in range(count)])


def _row(num_parts: int, part: int) -> dict:
    seeds, last = SEEDS[num_parts][part], LAST[num_parts][part]
    middle = 20 // num_parts
    edges = 3 * last + 2 * middle + (seeds - last - middle)
    return {
        "dataset": "x",
        "num_parts": num_parts,
        "part": part,
        "num_seeds": seeds,
        "num_edges": edges,
        "num_inputs": 2 * seeds,
        "estimate_bytes": edges * 2**20,
        "peak_bytes": edges * 2**20,
        "degree_0": 0,
        "degree_1": seeds - last - middle,
        "degree_2": middle,
        "degree_3": last,
        "status": "FINISHED",
    }
