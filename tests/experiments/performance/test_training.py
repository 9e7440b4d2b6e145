"""The benchmarks of training: an epoch against DGL with equal models, and a batch against its micro-batches."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

import workbench as wb
from experiments.performance import epoch, micro_batches

GIVEN: dict[str, Any] = {
    "dataset": {"name": "synthetic-arxiv", "scale": 0.002},
    "fanouts": (3, 3),
    "hidden_dim": 4,
    "batch_size": 32,
    "repeats": 1,
}


def test_an_epoch_trains_both_models_on_the_same_number_of_batches() -> None:
    pytest.importorskip("dgl")
    config = epoch.Config(**GIVEN, max_batches=2)
    (row,) = epoch.run(config)
    assert (row["graph"], row["num_batches"]) == ("synthetic-arxiv", 2)
    assert row["ratio_best"] == row["dgl_seconds"] / row["ours_seconds"]


def test_epochs_train() -> None:
    pytest.importorskip("dgl")
    config = epoch.Config(**GIVEN)
    data = config.dataset.load()
    peer = epoch.DglSage(data.num_features, 4, data.num_classes, config.fanouts)
    model = config.build(data)
    sides = (
        (model, epoch.our_epoch(config, data, data.train_idx, model)),
        (peer, epoch.dgl_epoch(config, data, data.train_idx, peer)),
    )
    for model, train in sides:
        before = [p.detach().clone() for p in model.parameters()]
        train()
        assert not any(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_models_that_differ_are_noticed() -> None:
    pytest.importorskip("dgl")
    config = epoch.Config(**GIVEN)
    data = config.dataset.load()
    peer = epoch.DglSage(data.num_features, 4, data.num_classes, config.fanouts)
    with pytest.raises(AssertionError, match="not close"):
        epoch.check_equal(config, data, config.build(data), peer)


def test_dgl_is_compared_in_one_model_alone() -> None:
    with pytest.raises(ValidationError, match="sage-mean"):
        epoch.Config(**GIVEN, model="gat")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("reading", ["gather", "aggregate"])
def test_overheads_are_those_of_the_parts_of_one_batch(reading: Any) -> None:
    config = micro_batches.Config(**GIVEN, method="random", num_parts=4, reading=reading)
    (row,) = micro_batches.run(config)
    assert row["redundancy"] >= 1
    assert all(row[f"{work}_ratio"] >= 1 for work in ("edge", "row", "read", "product"))
    assert (row["read_ratio"] == row["redundancy"]) == (reading == "gather")
    assert row["overhead"] == row["parts_seconds"] / row["whole_seconds"]
    assert row["overhead_with_split"] > 0


def test_work_is_counted_by_hand() -> None:
    inner = wb.Block(torch.tensor([0, 2, 3]), torch.tensor([1, 2, 2], dtype=torch.int32), num_src=3, num_dst=2)
    outer = wb.Block(torch.tensor([0, 2, 4, 5]), torch.tensor([3, 4, 3, 0, 4], dtype=torch.int32), num_src=5, num_dst=3)
    batch = wb.MiniBatch(torch.arange(5), (outer, inner))
    micro = batch.split(torch.tensor([0, 1]))
    model = wb.build_model("sage-mean", in_dim=10, hidden_dim=1, out_dim=1)
    gathered = micro_batches.work_ratios(micro, batch, model, aggregates_on_read=False)
    # seed 0 reads 1 and 2, seed 1 reads 2: the first block of the parts has 3 and 2 rows, 5 and 3 edges, 5 and 5 inputs
    assert gathered["edge_ratio"] == (5 + 3 + 2 + 1) / 8
    assert gathered["row_ratio"] == (3 + 2 + 1 + 1) / 5
    assert gathered["read_ratio"] == (5 + 5) / 5
    assert gathered["product_ratio"] == (10 * (5 + 3) + 10 * (5 + 2) + 2 + 2) / (10 * (5 + 3) + 4)
    on_read = micro_batches.work_ratios(micro, batch, model, aggregates_on_read=True)
    assert on_read["read_ratio"] == (5 + 3 + 3 + 2) / (5 + 3)
    assert on_read["product_ratio"] == (10 * 2 * (3 + 2) + 2 + 2) / (10 * 2 * 3 + 4)
