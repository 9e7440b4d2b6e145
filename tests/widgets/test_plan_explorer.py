"""Planning behind controls: the figure shows the planner's result for any graph, or why nothing fits."""

from importlib import import_module
from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from workbench.core.errors import CapacityError
from workbench.core.randomness import permutation
from workbench.memory.plan import plan_micro_batches
from workbench.widgets import Workload, make_plan, plan_explorer, plan_table, plan_view

MIB = 2**20
FEW: dict[str, Any] = {"fanouts": (3, 4), "hidden_dim": 16}


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload(random_graph(2000, 16000, edge_ids=False), torch.arange(500, 1500), in_dim=32, out_dim=5)


@pytest.mark.parametrize("size", [None, 300, 5000])
def test_the_plan_is_for_the_requested_batch_and_model(work: Workload, size: int | None) -> None:
    made = make_plan(work, memory=MIB // 4, batch_size=size, method="range", optimizer="sgd", **FEW)
    seeds = work.seeds[permutation(0, 1000)[:size]] if size == 300 else work.seeds
    batch = wb.NeighborSampler((3, 4), seed=0).sample(work.graph, seeds)
    model = wb.build_model("sage-mean", in_dim=32, hidden_dim=16, out_dim=5)
    expected = plan_micro_batches(model, batch, memory=MIB // 4, method="range", optimizer="sgd")
    assert made.num_parts == expected.num_parts > 1
    assert torch.equal(made.assignment, expected.assignment) and made.estimates == expected.estimates


def test_the_workload_of_a_dataset() -> None:
    data = wb.load_dataset("synthetic-products", scale=0.001)
    work = Workload.of(data)
    assert (work.in_dim, work.out_dim) == (data.num_features, data.num_classes)
    assert work.graph is data.graph and work.seeds is data.train_idx


def test_heads_apply_to_gat_only(work: Workload) -> None:
    assert make_plan(work, memory=MIB, model="gcn", heads=4, **FEW).num_parts
    one, four = (make_plan(work, memory=64 * MIB, model="gat", heads=h, **FEW).peak_bytes for h in (1, 4))
    assert four > one


def test_estimates_for_a_gpu_need_none(work: Workload) -> None:
    for device in ("cpu", "cuda"):
        made = make_plan(work, memory=64 * MIB, backend=device, **FEW)
        assert made.estimates[0].backend.startswith(device)


def test_the_view_shows_the_plan(work: Workload) -> None:
    options: dict[str, Any] = {"memory": MIB // 4, "method": "range", **FEW}
    figure: Any = plan_view(work, **options)
    made = make_plan(work, **options)
    assert {len(bars.x) for bars in figure.data} == {made.num_parts}
    assert f"{made.num_parts} micro-batches" in figure.layout.title.text


def test_invalid_options(work: Workload) -> None:
    with pytest.raises(CapacityError, match="a capacity of"):
        plan_view(work, memory=4096, **FEW)
    with pytest.raises(ValueError, match="batch_size is 0"):
        plan_view(work, memory=MIB, batch_size=0)


def test_the_table_is_sorted_by_micro_batches(work: Workload) -> None:
    plans = [make_plan(work, memory=MIB // 8, method=method, **FEW) for method in ("random", "range")]
    table = plan_table(plans)
    assert sorted(table["micro-batches"]) == table["micro-batches"].tolist()
    assert {method: plan.num_parts for method, plan in zip(("random", "range"), plans, strict=True)} == dict(
        table["micro-batches"]
    )


def test_the_explorer_plans_with_the_values_of_its_controls(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    module = import_module("workbench.widgets.plan_explorer")  # the package's attribute is the function
    monkeypatch.setattr(module, "plan_view", lambda _, **options: asked.append(options))
    box = plan_explorer(work, memory=3 * MIB, fanouts=(7, 5), hidden_dim=48, batch_size=100)
    controls = {widget.description: widget for widget in box.children[0].children}
    hidden = [name for name, widget in controls.items() if widget.layout.display == "none"]
    assert hidden == ["heads", "fanout 3", "fanout 4", "fanout 5"]
    begin = {
        "model": "sage-mean", "hidden_dim": 48, "heads": 1, "batch_size": 100, "memory": 3 * MIB,
        "fanouts": [7, 5], "method": "auto", "optimizer": "adam", "backend": "cpu",
    }  # fmt: skip
    assert asked == [begin]
    controls["model"].value, controls["layers"].value, controls["fanout 3"].value = "gat", 3, 2
    assert len(asked) == 1, "only the button plans"
    assert controls["heads"].layout.display is None and controls["fanout 3"].layout.display is None
    box.children[1].click()
    assert asked[1] == begin | {"model": "gat", "fanouts": [7, 5, 2]}
    assert "cluster" not in controls["method"].options


def test_relational_models_are_offered_for_typed_graphs_alone(work: Workload) -> None:
    typed = Workload(random_graph(200, 1600, num_edge_types=3), torch.arange(50), in_dim=32, out_dim=5)
    for each, offered in ((work, False), (typed, True)):
        controls: Any = plan_explorer(each, memory=MIB, **FEW)
        model = next(w for w in controls.children[0].children if w.description == "model")
        names = {control.description for control in controls.children[0].children}
        assert ("rgcn" in model.options) == ("num bases" in names) == offered
    few, many = (make_plan(typed, memory=MIB, model="rgcn", num_bases=b, **FEW).peak_bytes for b in (1, None))
    assert few < many
    with pytest.raises(ValueError, match="rgcn needs edge types"):
        make_plan(work, memory=MIB, model="rgcn", **FEW)
