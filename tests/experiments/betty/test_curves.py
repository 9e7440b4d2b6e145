"""Training curves of the experiments: rows against the primitives, differences and means on tables made by hand."""

from typing import Any

import pandas as pd
import pytest
import torch
from pydantic import ValidationError

import workbench as wb
from experiments.betty import curves
from experiments.betty.curves import CurveConfig, curve_gaps, mean_curves, same_curves, training_curve
from workbench.training.evaluate import full_neighbour_logits

GIVEN: dict[str, Any] = {
    "dataset": {"name": "synthetic-products", "scale": 0.001},
    "model": "sage-mean",
    "fanouts": [3, 3],
    "hidden_dim": 8,
    "dropout": 0.5,
    "learning_rate": 0.01,
    "epochs": 3,
    "method": "random",
}


def rows(**given: Any) -> list[dict[str, Any]]:
    return list(training_curve(CurveConfig(**{**GIVEN, **given})))


def test_rows_of_the_whole_batch_are_those_of_a_loop_of_ones_own() -> None:
    data = wb.load_dataset(**GIVEN["dataset"])
    sizes = {"in_dim": data.num_features, "hidden_dim": 8, "out_dim": data.num_classes}
    model: Any = wb.build_model("sage-mean", **sizes, dropout=0.5, seed=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    expected = []
    for epoch in range(3):
        ((_, mb),) = wb.batches(
            data.graph,
            data.train_idx,
            sampler=wb.NeighborSampler([3, 3], seed=4),
            batch_size=len(data.train_idx),
            epoch=epoch,
            seed=4,
        )
        expected.append(float(wb.train_step(model, mb, data.x, data.y, torch.nn.functional.cross_entropy, optimizer)))
    found = rows(approach="whole", seed=4, evaluate_every=2)
    assert [row["loss"] for row in found] == pytest.approx(expected, rel=1e-6)
    assert [("test_accuracy" in row) for row in found] == [False, True, True]
    right = full_neighbour_logits(model, data.graph, data.x).argmax(1) == data.y
    assert found[-1]["test_accuracy"] == pytest.approx(float(right[data.test_idx].double().mean()), abs=1e-3)


def table_of(**points: dict[str, Any]) -> pd.DataFrame:
    """Rows of several points with the configuration that tells them apart."""
    common = {"dataset": "x", "model": GIVEN["model"], "seed": 0, "num_parts": 1, "moved": 0, "precision": "float32"}
    return pd.DataFrame([{**common, **point, **row} for point in points.values() for row in rows(**point)])


@pytest.mark.parametrize("model", ["sage-mean", "gat"])
def test_micro_batches_follow_the_whole_batch_in_both_precisions(model: str) -> None:
    whole, micro = {"approach": "whole", "model": model}, {"approach": "micro", "num_parts": 5, "model": model}
    wide = {"precision": "float64"}
    table = table_of(a=whole, b=micro, c={**whole, **wide}, d={**micro, **wide})
    found = same_curves(table)
    assert [finding.name for finding in found] == ["same-losses-float32", "same-losses-float64", "same-accuracies"]
    assert all(finding.held for finding in found), found
    gaps = curve_gaps(table).set_index("precision").gap
    assert gaps.float32 > 0, "added up in another order"
    assert gaps.float64 < 1e-12


def test_mini_batches_take_several_steps_and_another_way() -> None:
    table = table_of(a={"approach": "whole"}, b={"approach": "mini", "num_parts": 4})
    assert table.groupby("approach").num_steps.unique().map(list).to_dict() == {"whole": [1], "mini": [4]}
    assert curve_gaps(table, among="mini").gap.item() > 0.01


@pytest.mark.parametrize(("approach", "num_parts"), [("whole", 4), ("micro", 1), ("mini", 1)])
def test_parts_that_do_not_suit_the_approach_are_refused(approach: str, num_parts: int) -> None:
    with pytest.raises(ValidationError, match="the whole batch has one part"):
        CurveConfig(**GIVEN, approach=approach, num_parts=num_parts)  # pyright: ignore[reportArgumentType]


def test_a_unit_in_the_last_place_moves_the_losses_a_little() -> None:
    whole = {"approach": "whole"}
    table = table_of(a=whole, b={**whole, "moved": 1}, c={**whole, "moved": 2}, d={"approach": "micro", "num_parts": 5})
    gaps = curve_gaps(table, among="moved")
    assert gaps.moved.tolist() == [1, 2] and 0 < gaps.gap.max() < 1e-4
    (finding,) = [f for f in same_curves(table) if f.name == "no-farther-than-rounding"]
    assert finding.held


def test_half_of_the_weights_are_moved_by_one_unit() -> None:
    before, after, other = (torch.nn.Linear(40, 30) for _ in range(3))
    for number, model in enumerate((before, after, other)):
        model.load_state_dict(before.state_dict())
        if number:
            curves._move(model, number)
    changed = after.weight != before.weight
    assert 0.4 < changed.double().mean() < 0.6 and not torch.equal(after.weight, other.weight)
    larger = torch.nextafter(before.weight, torch.tensor(torch.inf))
    assert torch.equal(after.weight[changed], larger[changed])


@pytest.mark.parametrize(("gap", "off", "held"), [(1e-3, 9e-3, 1), (1e-3, 1.1e-2, 0), (0, 9e-5, 1), (0, 2e-4, 0)])
def test_what_rounding_does_not_explain_is_found(gap: float, off: float, held: bool) -> None:
    table = by_hand()
    whole, micro = table.query("num_parts == 1"), table.query("num_parts == 2")
    moved = [whole.assign(loss=whole.loss + share * gap, moved=number) for number, share in ((1, 0.3), (2, 1))]
    rows = pd.concat([whole, micro.assign(loss=micro.loss + off), *moved])
    (finding,) = [f for f in same_curves(rows) if f.name == "no-farther-than-rounding"]
    assert finding.held == held


def by_hand() -> pd.DataFrame:
    """Two seeds, three epochs: of micro-batches in 2 and 4 parts, these a little off at the second epoch."""
    return pd.DataFrame(
        {
            "dataset": "x",
            "model": "gat",
            "precision": "float32",
            "seed": seed,
            "epoch": epoch,
            "approach": approach,
            "num_parts": parts,
            "moved": 0,
            "loss": 3.0 - epoch + seed + (5e-5 * parts if epoch == 2 and parts > 2 else 0),
            "test_accuracy": None if epoch == 1 else 0.1 * epoch,
        }
        for seed in (0, 1)
        for approach, parts in (("whole", 1), ("micro", 2), ("micro", 4))
        for epoch in (1, 2, 3)
    )


def test_gaps_are_the_largest_over_epochs_of_each_pair() -> None:
    gaps = curve_gaps(by_hand())
    assert gaps[["seed", "num_parts"]].to_numpy().tolist() == [[0, 2], [0, 4], [1, 2], [1, 4]]
    assert gaps.gap.tolist() == pytest.approx([0, 2e-4, 0, 2e-4])
    assert curve_gaps(by_hand(), value="test_accuracy").gap.tolist() == [0] * 4


BROKEN = "approach == 'micro' and num_parts == 2 and seed == 1"


def test_a_run_that_breaks_off_or_turns_nan_is_infinitely_far_off() -> None:
    table = by_hand()
    nan = table.assign(loss=table.loss.mask(table.index.isin(table.query(f"{BROKEN} and epoch == 3").index)))
    short = table.drop(table.query(f"{BROKEN} and epoch == 3").index)
    failed = pd.concat([table.query(f"not ({BROKEN})"), table.query(f"{BROKEN} and epoch == 1").assign(epoch=None)])
    for spoiled in (nan, short, failed):
        gaps = curve_gaps(spoiled).set_index(["seed", "num_parts"]).gap
        assert gaps[1, 2] == float("inf") and gaps.drop((1, 2)).max() == pytest.approx(2e-4)
        assert "same-losses-float32" in {finding.name for finding in same_curves(spoiled) if not finding.held}
    accuracy = curve_gaps(short, value="test_accuracy").set_index(["seed", "num_parts"]).gap
    assert accuracy[1, 2] == float("inf")


def test_what_the_whole_batch_lacks_is_a_gap_too_unless_it_failed_or_was_not_run() -> None:
    table = by_hand()
    assert (curve_gaps(table.query("not (approach == 'whole' and epoch == 2)")).gap == float("inf")).all()
    first = table.query("approach != 'whole' or seed == 0")
    assert curve_gaps(first).seed.tolist() == [0, 0]
    failed = table.query("approach == 'whole' and seed == 1 and epoch == 1").assign(epoch=None, loss=None)
    assert curve_gaps(pd.concat([first, failed])).seed.tolist() == [0, 0]


def test_a_moved_run_that_broke_off_explains_nothing() -> None:
    table = by_hand()
    whole, micro = table.query("num_parts == 1"), table.query("num_parts == 2")
    moved = whole.assign(moved=1, loss=whole.loss + 1e-6)
    nan = whole.assign(moved=2, loss=None)
    rows = pd.concat([whole, micro.assign(loss=micro.loss + 1e-3), moved, nan])
    (finding,) = [f for f in same_curves(rows) if f.name == "no-farther-than-rounding"]
    assert not finding.held


def test_what_is_too_far_apart_is_found() -> None:
    found = {finding.name: finding for finding in same_curves(by_hand())}
    assert set(found) == {"same-losses-float32", "same-accuracies"}, "no claim on a precision that was not run"
    assert not found["same-losses-float32"].held and "2 of 4 cases" in found["same-losses-float32"].evidence
    assert found["same-accuracies"].held
    spoiled = by_hand()
    spoiled.loc[spoiled.query("approach == 'micro' and epoch == 3 and seed == 1").index, "test_accuracy"] += 0.002
    assert not {f.name: f for f in same_curves(spoiled)}["same-accuracies"].held


def test_means_over_seeds_at_every_epoch() -> None:
    found = mean_curves(by_hand(), values=["loss", "test_accuracy"], by=["dataset", "num_parts"])
    whole = found.query("num_parts == 1").set_index("epoch")
    assert whole.loss.tolist() == [2.5, 1.5, 0.5]
    assert (whole.loss_high - whole.loss).tolist() == pytest.approx([12.706 * 0.5] * 3, rel=1e-4)
    assert whole.loss_low.tolist() == [0] * 3, "no loss is below 0"
    assert pd.isna(whole.test_accuracy[1]) and whole.test_accuracy[3] == pytest.approx(0.3)
    assert len(found) == 9
