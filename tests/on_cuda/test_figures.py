"""A point of a figure of each paper on a GPU: what it counts is what the CPU counts."""

from collections.abc import Iterable
from typing import Any

import pytest

from workbench.experiment.figure_loader import load_experiment

pytestmark = pytest.mark.cuda

COUNTED = {
    "betty/fig16": ["num_parts", "total_inputs", "full_inputs", "largest_inputs"],
    "cooperative/fig5a": ["policy", "kappa", "miss_rate", "num_inputs"],
    "mariusgnn/sampling": ["num_inputs", "num_edges", "new_nodes"],
    "batchgnn/table5": ["fetching", "rows"],
    "data_placement/access_probability": ["estimate", "buffer_rows", "hit_rate"],
}
"""Columns that no device changes."""

SMALLER = {
    "batchgnn/table5": {"runs": 1, "batch_size": 60},
    "cooperative/fig5a": {"kappas": (1, 4), "groups": 1, "policies": ("lru",), "runs": 2},
    "data_placement/access_probability": {"reference_batches": 80, "counted": (10,)},
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_point_counts_as_on_the_cpu(name: str) -> None:
    experiment = load_experiment(name)
    module: Any = experiment.sweep.module
    point: Any = experiment.configs(size="smoke")[0].model_copy(update=SMALLER.get(name, {}))
    here, there = (counts(name, module.run(point.model_copy(update={"device": device}))) for device in ("cpu", "cuda"))
    assert here and there == here


def counts(name: str, rows: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """What no device changes; DGL's sampler, which no seed reaches, is left out."""
    return [[row[column] for column in COUNTED[name]] for row in rows if row.get("sampler") != "DGL"]
