"""The benchmarks of training: an epoch against DGL with equal models, and a batch against its micro-batches."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

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


def test_overheads_are_those_of_the_parts_of_one_batch() -> None:
    config = micro_batches.Config(**GIVEN, model="sage-mean", method="random", num_parts=4)
    (row,) = micro_batches.run(config)
    assert row["redundancy"] >= 1
    assert row["overhead"] == row["parts_seconds"] / row["whole_seconds"]
    assert row["overhead_with_split"] > 0
