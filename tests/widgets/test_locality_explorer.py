"""Rows to move by f: the picture against counts of the batches."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.test_micro_batch_explorer import control
from workbench.core.dataset import Dataset
from workbench.sampling.batches import EpochOrder
from workbench.widgets import LOCALITY_FACTORS, locality_explorer, locality_view

OPTIONS: dict[str, Any] = {"fanouts": (3, 4), "batch_size": 20}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    nodes = torch.arange(600)
    x, (train, val, test) = torch.zeros(600, 8), nodes.split([400, 200, 0])
    graph = random_graph(600, 9000, edge_ids=False)
    return Dataset.build(graph, x, nodes % 3, train_idx=train, val_idx=val, test_idx=test, name="toy")


def values(figure: Any) -> dict[tuple[str, str], list[float]]:
    return {(trace.name, trace.yaxis): list(trace.y) for trace in figure.data if trace.name}


def test_lines_are_means_of_batches_and_plain_sampling_is_where_they_start(dataset: Dataset) -> None:
    found = values(locality_view(dataset, factor=4, **OPTIONS))
    assert len(found) == 4 and all(len(line) == len(LOCALITY_FACTORS) for line in found.values())
    moved, read = (found["unbiased", axis] for axis in ("y", "y2"))
    assert all(0 < a < b for a, b in zip(moved, read, strict=True)) and moved[-1] < moved[0]
    plain = wb.placement.LocalitySampler((3, 4), torch.ones(600))
    counts = [
        plain.sample(dataset.graph, dataset.train_idx[order], step=step).num_inputs
        for step, order in EpochOrder(400, 20).positions(0)
        if step < 8
    ]
    assert read[0] == pytest.approx(sum(counts) / 8)


def test_a_factor_of_ones_own_is_drawn_and_told(dataset: Dataset) -> None:
    figure: Any = locality_view(dataset, factor=8, hops=1, **OPTIONS)
    assert list(figure.data[0].x) == [1, 2, 4, 8, 16, 64]
    assert "f = 8:" in figure.layout.title.text
    with pytest.raises(ValueError, match="factor is 0"):
        locality_view(dataset, factor=0, **OPTIONS)


def test_the_explorer_offers_the_given_choices(dataset: Dataset) -> None:
    box = locality_explorer(dataset, factor=[2, 1], **OPTIONS)
    assert control(box, "factor").value == 2 and control(box, "buffer share").value == 0.1
