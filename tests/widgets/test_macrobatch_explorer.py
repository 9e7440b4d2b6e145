"""Bytes, seconds and memory of macrobatches: the figure against batches sampled by hand."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from workbench.core.dataset import Dataset
from workbench.sampling.batches import EpochOrder
from workbench.widgets import macrobatch_explorer, macrobatch_view

OPTIONS: dict[str, Any] = {"fanouts": (3, 4), "batch_size": 8, "num_ranks": 3, "width": 16}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    nodes = torch.arange(300)
    x, (train, val, test) = torch.zeros(300, 8), nodes.split([200, 100, 0])
    graph = random_graph(300, 1500, edge_ids=False)
    return Dataset.build(graph, x, nodes % 3, train_idx=train, val_idx=val, test_idx=test, name="toy")


def batches_of_rank_0(data: Dataset) -> tuple[torch.Tensor, list[wb.MiniBatch]]:
    owner = wb.partition_graph(data.graph, 3, method="random", seed=0)
    mine = data.train_idx[owner[data.train_idx] == 0]
    sampler = wb.NeighborSampler((3, 4), replace=True)
    order = EpochOrder(len(mine), 8, drop_last=True)
    return owner, [sampler.sample(data.graph, mine[at], step=step) for step, at in order.positions(0)]


def values(figure: Any, panel: int, name: str) -> dict[int, float]:
    (trace,) = [t for t in figure.data if t.name == name and t.yaxis == ("y" if panel == 1 else f"y{panel}")]
    return dict(zip(trace.x, trace.y, strict=True))


def test_one_macrobatch_fetches_the_union_and_keeps_it_in_memory(dataset: Dataset) -> None:
    owner, batches = batches_of_rank_0(dataset)
    count, figure = len(batches), macrobatch_view(dataset, macrobatch=1000, **OPTIONS)
    counts = wb.macrobatch.count_macrobatches(batches, owner=owner, rank=0).sampled
    fetched, kept = (values(figure, panel, "sampled") for panel in (1, 3))
    assert max(fetched) == count and list(fetched.values()) == sorted(fetched.values(), reverse=True)
    assert fetched[count] * 1024 == pytest.approx(
        wb.macrobatch.macrobatch_bytes(counts, size=count, row_bytes=64).total
    )
    held = torch.cat([mb.node_ids for mb in batches]).unique()
    assert kept[count] * 1024 == pytest.approx(len(held) * 64 + sum(mb.nbytes for mb in batches))
    assert f"B = {count}, F = {min(64, count)}" in figure.layout.title.text


def test_smaller_groups_fetch_more_and_keep_less(dataset: Dataset) -> None:
    whole, cut = (macrobatch_view(dataset, macrobatch=4, group=group, **OPTIONS) for group in (4, 1))
    for way in ("sampled", "cached aggregates"):
        assert values(whole, 1, way)[4] < values(cut, 1, way)[4]
        assert values(whole, 3, way)[4] > values(cut, 3, way)[4]
    assert values(whole, 1, "sampled")[1] == values(cut, 1, "sampled")[1]


def test_the_widget_has_a_control_per_argument(dataset: Dataset) -> None:
    widget = macrobatch_explorer(dataset, fanouts=(3, 4), batch_size=8)
    names = [control.description for control in widget.children[0].children]
    assert names == ["macrobatch", "group", "num ranks", "width"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"group": 0}, "group is 0"), ({"batch_size": 500}, r"rank 0 owns \d+ training nodes; choose a batch_size below")],
)
def test_impossible_settings_are_refused(dataset: Dataset, options: dict[str, int], message: str) -> None:
    settings: dict[str, Any] = OPTIONS | options
    with pytest.raises(ValueError, match=message):
        macrobatch_view(dataset, **settings)


def test_the_title_names_the_group_that_was_counted(dataset: Dataset) -> None:
    figure: Any = macrobatch_view(dataset, macrobatch=4, group=3, **OPTIONS)
    assert "B = 4, F = 1:" in figure.layout.title.text
