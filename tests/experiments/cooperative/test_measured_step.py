"""Measured steps beside the model: claims that can be lost, and the rows of a small run."""

from typing import Any

import pandas as pd
import pytest

from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment


def table(ratio: float = 0.8, modelled: float = 0.9, spread: float = 0.05) -> pd.DataFrame:
    """A table in which every claim holds."""
    return pd.DataFrame(
        {
            "dataset": "a",
            "model": "gcn",
            "sampler": sampler,
            "num_pes": 2,
            "side": side,
            "sampling_seconds": 0.1,
            "training_seconds": times - 0.1,
            "total_seconds": times,
            "modelled_sampling_seconds": 0.05,
            "modelled_training_seconds": 0.35,
            "modelled_total_seconds": 0.4,
            "ratio": ratio,
            "ratio_low": ratio - spread,
            "ratio_high": ratio + spread,
            "modelled_ratio": modelled,
        }
        for sampler in ("NS", "LABOR-0")
        for side, times in {"independent": 1.0, "cooperative": ratio}.items()
    )


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, set()),
        ({"ratio": 1.2}, {"faster", "as-modelled"}),
        ({"ratio": 1.2, "modelled": 1.1}, {"faster"}),
        ({"modelled": 1.1}, {"as-modelled"}),
        ({"ratio": 1.02, "modelled": 0.9}, {"faster", "as-modelled"}),  # no case tells, so the latter is undecided
    ],
)
def test_claims_are_lost_where_measurements_tell(changes: dict[str, float], names: set[str]) -> None:
    found = directions("cooperative/measured_step", table(**changes))
    assert {finding.name for finding in found if not finding.held} == names
    assert all(finding.decided for finding in found) == (changes.get("ratio") != 1.02)


def test_the_figure_and_the_comparison() -> None:
    experiment = load_experiment("cooperative/measured_step")
    title = experiment.draw(table()).layout.title.text.replace("<br>", " ")
    assert title.startswith("A cooperative step takes 0.80 times an independent one's time, modelled 0.90 times")
    compared = experiment.compare(table())
    assert compared["cooperative, measured ÷ modelled"].tolist() == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("model", ["gcn", "rgcn"])
def test_rows_of_a_small_run(model: str) -> None:
    name = "synthetic-mag240M" if model == "rgcn" else "synthetic-papers100M"
    values: dict[str, Any] = {
        "dataset": {"name": name, "scale": 0.0005, "undirected": True},
        "model": model,
        "sampler": "NS",
        "fanouts": (3, 3),
        "batch_size": 4,
        "hidden_dim": 4,
        "steps": 3,
        "copied_bytes": 1 << 14,
    }
    module: Any = load_experiment("cooperative/measured_step").module  # as ranks import it
    independent, cooperative = module.run(module.Config(**values))
    assert (independent["side"], cooperative["side"]) == ("independent", "cooperative")
    assert independent["ratio_low"] <= independent["ratio"] == cooperative["ratio"] <= cooperative["ratio_high"]
    for row in (independent, cooperative):
        for prefix in ("", "modelled_"):
            parts = [row[f"{prefix}{stage}_seconds"] for stage in ("sampling", "training", "total")]
            assert min(parts) > 0
            assert prefix == "" or sum(parts[:2]) == pytest.approx(parts[2])
