"""Betty's Figure 3: what its rows hold, that the claim can be lost, that nothing too large is run."""

from typing import Any

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.memory.estimate import TERMS
from workbench.training.profile import profile_epoch

SHARES = {
    "sage-mean": {"inputs": 55, "aggregator": 35, "gradients": 10},
    "sage-lstm": {"inputs": 10, "aggregator": 85, "gradients": 5},
}


@pytest.fixture(scope="module")
def fig3() -> Experiment:
    return load_experiment("betty/fig3")


def rows(peak_bytes: float | None = 1000) -> pd.DataFrame:
    """A table as it would be if the claims held."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "model": model,
            "counted": counted,
            "term": term,
            "term_bytes": 10 * shares.get(term, 0),
            "share": shares.get(term, 0) / 100,
            "estimate_bytes": 1000,
            "peak_bytes": peak_bytes,
        }
        for dataset in ("x", "y")
        for model, shares in SHARES.items()
        for counted in ("ours", "betty")
        for term in TERMS
    )


def lost(fig3: Experiment, table: pd.DataFrame) -> set[str]:
    return {finding.name for finding in fig3.check(table) if not finding.held}


def test_claims_hold_where_they_do(fig3: Experiment) -> None:
    assert lost(fig3, rows()) == set()


@pytest.mark.parametrize(
    ("where", "column", "value", "names"),
    [
        ("model == 'sage-mean' and term == 'hidden' and dataset == 'y'", "term_bytes", 560, {"inputs-largest"}),
        ("model == 'sage-mean' and term == 'inputs' and counted == 'betty'", "share", 0.49, {"inputs-half"}),
        ("model == 'sage-lstm' and term == 'workspace'", "term_bytes", 101, {"inputs-second"}),
        ("model == 'sage-lstm' and term == 'inputs'", "term_bytes", 851, {"inputs-second"}),
        ("model == 'sage-lstm' and dataset == 'x'", "peak_bytes", 1040, {"terms-add-up"}),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(
    fig3: Experiment, where: str, column: str, value: float, names: set[str]
) -> None:
    table = rows().astype({column: float})
    table.loc[table.query(where).index, column] = value
    assert lost(fig3, table) == names


def test_a_peak_that_was_not_measured_is_not_drawn(fig3: Experiment) -> None:
    measured = [trace for trace in fig3.draw(rows()).data if trace.name == "measured"]
    assert [len(trace.y) for trace in measured] == [2, 2]
    unknown = rows()
    unknown.loc[unknown.dataset == "x", "peak_bytes"] = None
    measured = [trace for trace in fig3.draw(unknown).data if trace.name == "measured"]
    assert [trace.y for trace in measured] == [(1000 / 1,)] * 2
    assert lost(fig3, unknown) == set()


def test_the_title_states_the_finding(fig3: Experiment) -> None:
    assert "Input features are 55% of the memory" in fig3.draw(rows()).layout.title.text


def test_comparison_has_the_papers_share(fig3: Experiment) -> None:
    shown = fig3.compare(rows()).set_index("component")
    assert shown.loc["inputs", "sage-mean, ogbn-products, paper"] == 0.55
    assert shown.loc["inputs", "sage-lstm, x, our terms"] == 0.1
    assert list(shown.index) == ["inputs", "aggregator", "gradients"]


def run(fig3: Experiment, **config: Any) -> pd.DataFrame:
    given = {"dataset": {"name": "synthetic-products", "scale": 0.001}, "model": "sage-mean", "fanouts": [4]}
    module = fig3.module
    return pd.DataFrame(module.run(module.Config(**given, hidden_dim=8, learning_rate=0.01, **config)))


def test_rows_are_what_is_estimated_and_measured(fig3: Experiment) -> None:
    table = run(fig3)
    data = wb.load_dataset("synthetic-products", scale=0.001)
    batch = wb.NeighborSampler([4], seed=0).sample(data.graph, data.train_idx)
    model = wb.build_model("sage-mean", in_dim=data.num_features, hidden_dim=8, out_dim=data.num_classes, num_layers=1)
    optimizer = torch.optim.Adam(model.parameters())
    peak = profile_epoch(model, [[batch]], data.x, data.y, cross_entropy, optimizer).peak_bytes
    ours = table.query("counted == 'ours'").set_index("term")
    assert ours.term_bytes.to_dict() == dict(wb.estimate_memory(model, batch).terms)
    assert table.peak_bytes.unique() == [peak]
    assert table.groupby("counted").share.sum().tolist() == pytest.approx([1, 1])


def test_what_does_not_fit_is_not_run(fig3: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig3.module, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(fig3.module, "profile_epoch", None)
    assert run(fig3).peak_bytes.isna().all()
