"""Betty's partitioners and ours: what a row holds, that every target can be lost, what is drawn and compared."""

from typing import Any

import pandas as pd
import pytest
import torch

import workbench as wb
from tests.experiments.directions import directions
from workbench.core.errors import CapacityError
from workbench.datasets.raw import permute_nodes
from workbench.experiment.figure_loader import load_experiment

MIB = 2**20
GIVEN: dict[str, Any] = {
    "dataset": {"name": "synthetic-products", "scale": 0.001},
    "fanouts": [3, 3],
    "num_parts": 4,
    "timed_passes": 2,
}
# Excess, largest part, seconds and bytes relative to REG's.
CHOICES = {
    ("range", None): (3.0, 1.5, 0.001, 0.1),
    ("random", None): (3.1, 1.5, 0.002, 0.1),
    ("metis", None): (1.2, 1.0, 0.1, 0.3),
    ("reg", None): (1.0, 1.1, 1.0, 1.0),
    ("auto", "total"): (0.7, 1.2, 0.9, 0.5),
    ("auto", "largest"): (0.9, 0.8, 0.9, 0.5),
    ("fast", "largest"): (0.95, 1.0, 0.2, 0.2),
}
CASES = [(data, fanouts, k) for data in ("x", "y") for fanouts in ("[10, 25]", "[10, 10, 10]") for k in (4, 8, 16)]


def table() -> pd.DataFrame:
    """Every target is met; REG's graph is large for x and small for y."""
    return pd.DataFrame([_row(*case, *choice) for case in CASES for choice in CHOICES])


def _row(dataset: str, fanouts: str, k: int, method: str, objective: str | None) -> dict[str, Any]:
    excess, largest, seconds, nbytes = CHOICES[method, objective]
    return {
        "dataset": dataset,
        "fanouts": fanouts,
        "num_parts": k,
        "method": method,
        "objective": objective,
        "reg_nonzeros": 5_000_000 if dataset == "x" else 40_000,
        "full_inputs": 1000,
        "total_inputs": 1000 + round(100 * k * excess),
        "excess": 0.1 * k * excess,
        "largest_inputs": 2000 * largest / k,
        "largest_ratio": 2 * largest / k,
        "partition_seconds": seconds,
        "split_seconds": 0.0,
        "host_bytes": nbytes * 100 * MIB,
        "status": "FINISHED",
    }


@pytest.fixture
def module() -> Any:
    return load_experiment("betty/partitioners").module


def row(module: Any, **given: Any) -> dict[str, Any]:
    (found,) = module.run(module.Config(**GIVEN | given))
    return found


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("betty/partitioners", rows) if not finding.held}


@pytest.mark.parametrize("outputs", ["train", "half"])
@pytest.mark.parametrize("method", ["random", "reg", "cluster"])
def test_a_row_is_of_the_batch_of_all_outputs_under_permuted_ids(module: Any, method: str, outputs: str) -> None:
    found = row(module, method=method, outputs=outputs)
    data = permute_nodes(wb.load_dataset(**GIVEN["dataset"]))
    batch = module.sample(data, (3, 3), outputs, 0)
    expected_outputs = len(data.train_idx) if outputs == "train" else data.graph.num_nodes // 2
    assert found["num_outputs"] == batch.num_seeds == expected_outputs
    node_parts = wb.partition_graph(data.graph, 4, seed=0) if method == "cluster" else None
    micro = batch.split(wb.partition_batch(batch, 4, method=method, seed=0, node_parts=node_parts))
    inputs = wb.redundancy(micro, batch)
    assert (found["total_inputs"], found["full_inputs"]) == (inputs.total_inputs, inputs.full_inputs)
    assert found["excess"] == inputs.total_inputs / inputs.full_inputs - 1
    assert (found["largest_inputs"], found["largest_ratio"]) == (inputs.largest, inputs.largest / batch.num_inputs)
    assert found["passes"] == 2 and ("partition_graph_seconds" in found) == (method == "cluster")


def test_half_of_the_nodes_are_drawn_by_the_seed(module: Any) -> None:
    data = permute_nodes(wb.load_dataset(**GIVEN["dataset"]))
    first, other = (module.sample(data, (3,), "half", seed).seeds for seed in (0, 1))
    assert first.unique().equal(first) and not first.equal(other)
    assert abs(float(first.double().mean()) / data.graph.num_nodes - 0.5) < 0.05


def test_nonzeros_of_regs_graph_are_pairs_that_share_a_source(module: Any) -> None:
    data = permute_nodes(wb.load_dataset(**GIVEN["dataset"]))
    batch = module.sample(data, (3, 3), "train", 0)
    block = batch.blocks[-1]
    dense = torch.zeros(block.num_dst, block.num_src, dtype=torch.int64)
    dense[block.destinations.long(), block.indices.long()] = 1
    shared = dense @ dense.T
    assert row(module, method="range")["reg_nonzeros"] == int((shared.fill_diagonal_(0) > 0).sum())


def test_the_objective_is_passed_on(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def partition(mb: wb.MiniBatch, num_parts: int, **options: Any) -> torch.Tensor:
        asked.append(options)
        return torch.arange(mb.num_seeds) % num_parts

    monkeypatch.setattr(wb, "partition_batch", partition)
    row(module, method="auto", objective="total")
    row(module, method="auto")
    assert [options.get("objective") for options in asked] == ["total"] * 3 + [None] * 3


def test_no_pass_begins_once_the_seconds_are_spent(module: Any) -> None:
    assert row(module, method="range", timed_passes=5)["passes"] == 5
    assert row(module, method="range", timed_passes=5, timed_seconds=1e-9)["passes"] == 1


def test_what_is_too_large_is_a_row_that_says_so(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(mb: wb.MiniBatch, *args: Any, **options: Any) -> torch.Tensor:
        if mb.num_seeds > module.WARM_UP_SEEDS:
            raise CapacityError("needs 9 GiB")
        return torch.zeros(mb.num_seeds, dtype=torch.int64)

    monkeypatch.setattr(wb, "partition_batch", refuse)
    found = row(module, method="reg", outputs="half")
    assert found["refused"] == "needs 9 GiB" and "excess" not in found and found["full_inputs"] > 0


class Peak:
    """Says 5 MiB, or nothing."""

    def __init__(self, nbytes: int | None = 5 * MIB) -> None:
        self.nbytes = nbytes

    def __enter__(self) -> "Peak":
        return self

    def __exit__(self, *error: object) -> None: ...


def test_processes_that_partition_count_on_top(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HostPeak", Peak)
    assert row(module, method="range")["host_bytes"] == 5 * MIB
    assert row(module, method="metis")["host_bytes"] > 5 * MIB + 1000
    monkeypatch.setattr(module, "HostPeak", lambda: Peak(None))
    assert row(module, method="metis")["host_bytes"] is None


def test_targets_are_met_where_they_are() -> None:
    found = directions("betty/partitioners", table())
    assert lost(table()) == set() and len(found) == 11
    assert {f.name for f in found if f.timed} == {f.name for f in found if "seconds" in f.name}


@pytest.mark.parametrize(
    ("where", "column", "factor", "names"),
    [
        ("objective == 'total' and num_parts < 16", "excess", 1.2, {"total-excess"}),
        ("objective == 'total' and dataset == 'x' and num_parts == 4", "excess", 1.5, {"total-excess"}),
        ("objective == 'total' and dataset == 'x' and num_parts == 4", "excess", 1.4, set()),
        ("method == 'auto' and objective == 'largest'", "largest_inputs", 1.1, {"largest-part"}),
        ("method == 'metis' and num_parts == 8", "largest_inputs", 0.77, {"largest-part"}),
        ("method == 'auto' and objective == 'largest'", "excess", 1.2, {"largest-excess"}),
        ("objective == 'total' and dataset == 'x'", "partition_seconds", 1.2, {"total-seconds-large"}),
        ("objective == 'total' and dataset == 'y'", "partition_seconds", 3.2, set()),
        ("objective == 'total' and dataset == 'y'", "partition_seconds", 3.4, {"total-seconds-small"}),
        ("method == 'auto' and objective == 'largest' and dataset == 'x'", "split_seconds", 0.0, set()),
        ("choice == 'auto (largest)'", "partition_seconds", 4.0, {"largest-seconds-large", "largest-seconds-small"}),
        ("method == 'fast'", "partition_seconds", 1.3, {"fast-seconds"}),
        ("method == 'fast' and dataset == 'x'", "excess", 1.1, {"fast-excess"}),
        ("method == 'fast' and dataset == 'x'", "largest_inputs", 1.2, {"fast-largest"}),
        ("method == 'fast' and dataset == 'y'", "largest_inputs", 9.0, set()),
        ("method == 'range' and num_parts == 16", "excess", 0.3, {"reg-beats-blind-cuts"}),
    ],
)  # fmt: skip
def test_a_spoiled_table_loses_just_that_target(where: str, column: str, factor: float, names: set[str]) -> None:
    rows = load_experiment("betty/partitioners").shown(table())
    rows.loc[rows.query(where).index, column] *= factor
    assert lost(rows) == names


def test_a_grid_without_a_choice_says_nothing_of_its_targets() -> None:
    rows = table().query("objective.isnull()").drop(columns="objective")
    assert [f.name for f in directions("betty/partitioners", rows)] == ["reg-beats-blind-cuts"]


def test_the_figure_has_a_marker_a_choice_and_data_set(module: Any) -> None:
    rows = table()
    rows.loc[rows.method == "range", "host_bytes"] = 0
    one = load_experiment("betty/partitioners").draw(rows)
    assert len([trace for trace in one.data if trace.mode == "markers"]) == len(CHOICES) * 2
    assert "The largest part by auto has" in one.layout.title.text
    figure = module.draw_every_pair(rows)
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(markers) == len(CHOICES) * 2 * 4
    fast = next(trace for trace in markers if trace.name == "fast (largest)")
    assert (fast.x, fast.y) == ((pytest.approx(0.2),), (pytest.approx(0.95),))
    assert "partition + split" in figure.layout.xaxis.title.text


def test_medians_are_relative_to_reg_in_the_same_case(module: Any) -> None:
    found = module.medians(table()).set_index(["dataset", "choice"])
    assert found.loc[("y", "auto (total)"), ["excess_to_reg", "largest_to_reg"]].tolist() == pytest.approx(
        [0.7, 1.2 / 1.1]
    )
    assert found.loc[("x", "reg"), "host_bytes"] == 100 * MIB


def test_comparison_has_the_papers_reductions_beside_ours() -> None:
    found = load_experiment("betty/partitioners").compare(table()).set_index(["where", "choice"])
    assert found.loc[("paper", "reg")].tolist() == [0.284, 0.492, 0.235]
    saved = [1 - (1 + 0.1 * k) / (1 + 0.1 * k * (3.0 + 3.1 + 1.2) / 3) for k in (4, 8, 16)]
    assert found.loc[("x", "reg")].tolist() == pytest.approx([sum(saved) / 3, max(saved), 1.96 / 1.8 - 1], rel=2e-3)
    assert ("y", "auto (total)") in found.index and ("y", "fast (largest)") in found.index
