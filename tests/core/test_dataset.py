from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.strategies import random_graph
from workbench.core.dataset import Dataset


def parts(**change):
    """Return arguments of `Dataset.build` for a graph of 12 nodes."""
    return {
        "graph": random_graph(12, 40),
        "x": torch.arange(24, dtype=torch.float32).view(12, 2),
        "y": torch.arange(12) % 4 - 1,
        "train_idx": torch.tensor([0, 1, 2], dtype=torch.int32),
        "val_idx": torch.tensor([3]),
        "test_idx": torch.tensor([11, 4]),
        "name": "tiny <set>",
    } | change


def test_build_counts_classes_and_shows_sizes():
    dataset = Dataset.build(**parts())
    assert (dataset.num_classes, dataset.num_features, dataset.train_idx.dtype) == (3, 2, torch.int64)
    assert Dataset.build(**parts(y=torch.zeros(12, 5))).num_classes == 5
    assert Dataset.build(**parts(num_classes=9)).num_classes == 9
    assert repr(dataset).startswith("Dataset(tiny <set>: nodes 12, edges 40, features 2 float32, classes 3")
    assert "train / val / test 3 / 1 / 2" in repr(dataset)
    assert "<caption>tiny &lt;set&gt;</caption>" in dataset._repr_html_()
    assert dataset.nbytes == dataset.graph.nbytes + 24 * 4 + 12 * 8 + 6 * 8


def test_fingerprint_depends_on_contents_alone():
    dataset = Dataset.build(**parts())
    assert len(dataset.fingerprint) == 64
    assert Dataset.build(**parts(name="other", train_idx=torch.tensor([0, 1, 2]))).fingerprint == dataset.fingerprint
    changes = [
        {"graph": random_graph(12, 40, seed=1)},
        {"graph": random_graph(12, 40, edge_weight=torch.float32)},
        {"x": parts()["x"].double()},
        {"x": parts()["x"] + 1},
        {"y": parts()["y"].flip(0)},
        {"train_idx": torch.tensor([0, 1])},
        {"val_idx": torch.tensor([11, 4]), "test_idx": torch.tensor([3])},
    ]
    prints = {Dataset.build(**parts(**change)).fingerprint for change in changes}
    assert len(prints | {dataset.fingerprint}) == len(changes) + 1


def test_empty_graph():
    none = torch.empty(0, dtype=torch.int64)
    dataset = Dataset.build(random_graph(0, 0), torch.empty(0, 3), none, train_idx=none, val_idx=none, test_idx=none)
    assert dataset.num_classes == 0


def test_to_moves_everything_and_keeps_the_fingerprint():
    dataset = Dataset.build(**parts())
    moved = dataset.to("meta")
    assert {t.device.type for t in moved._tensors().values() if t is not None} == {"meta"}
    assert moved.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.zeros(11, 2)}, ValueError, r"x has shape \(11, 2\); its first dimension must be 12"),
        ({"x": torch.zeros(12)}, ValueError, r"x has shape \(12,\); it must be a matrix$"),
        ({"x": torch.zeros(12, 2, 2)}, ValueError, r"x has shape \(12, 2, 2\)"),
        ({"x": torch.zeros(12, 2, dtype=torch.int64)}, TypeError, "x must be a tensor of torch.float32"),
        ({"x": torch.full((12, 2), float("nan"))}, ValueError, "x contains nan at position 0"),
        ({"y": torch.zeros(12, 1, dtype=torch.int64)}, ValueError, r"\(12, 1\); it must be a vector: pass y\[:, 0\]"),
        ({"y": np.zeros(12)}, TypeError, r"y is a ndarray; pass a tensor: torch\.as_tensor\(y\)"),
        ({"x": np.zeros((12, 2))}, TypeError, r"x is a ndarray; pass a tensor: torch\.as_tensor\(x\)"),
        ({"train_idx": np.arange(2)}, TypeError, r"train_idx must be .* not ndarray; convert with torch\.as_tensor"),
        ({"train_idx": np.ones(12, bool)}, TypeError, r"convert a mask with torch\.as_tensor\(train_idx\)\.nonzero"),
        ({"graph": object()}, TypeError, r"graph is an object; pass a Graph"),
        ({"y": torch.zeros(12)}, ValueError, r"y has shape \(12,\) .*pass classes as y\.long"),
        ({"y": torch.zeros(12, 4), "num_classes": 3}, ValueError, r"\(12, 4\); it must be a matrix of width 3"),
        ({"y": torch.full((12, 2), float("inf"))}, ValueError, r"y\[0, 0\] is inf; floating-point labels are 0 or 1"),
        ({"y": torch.full((12, 2), float("nan"))}, ValueError, r"y\[0, 0\] is nan; floating-point labels are 0 or 1"),
        ({"y": torch.eye(12, 2) * 7}, ValueError, r"y\[0, 0\] is 7.0; .* pass classes as int64"),
        ({"y": torch.eye(12, 2).long()}, ValueError, r"must be a vector: pass several labels per node as y\.float"),
        ({"y": torch.arange(12), "num_classes": 11}, IndexError, r"y contains 11; classes must be in \[0, 11\)"),
        ({"y": torch.full((12,), -2)}, IndexError, "y contains -2"),
        ({"val_idx": torch.tensor([12])}, IndexError, r"val_idx contains 12; ids must be in \[0, 12\)"),
        ({"val_idx": torch.tensor([5, 5])}, ValueError, "val_idx contains 5 more than once"),
        (
            {"val_idx": torch.tensor([2])},
            ValueError,
            r"the split contains 2 more than once, in \w+_idx and \w+_idx; leave",
        ),
        ({"val_idx": torch.tensor([2.0])}, TypeError, "val_idx must be an int64 or int32 tensor"),
    ],
)
def test_build_rejects(change, error, message):
    with pytest.raises(error, match=message):
        Dataset.build(**parts(**change))


def test_construction_checks_sizes():
    with pytest.raises(ValueError, match="y has shape"):
        replace(Dataset.build(**parts()), y=torch.zeros(3, dtype=torch.int64))
