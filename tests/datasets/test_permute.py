"""Permuted data sets have the same edges, rows and split under other ids."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.core.dataset import Dataset, LinkSplit
from workbench.datasets.raw import permute_nodes


@pytest.fixture
def dataset() -> Dataset:
    """Build a data set whose features and types identify every node and edge."""
    src, dst = torch.tensor([3, 1, 0, 2, 4, 3, 3]), torch.tensor([0, 0, 1, 1, 4, 2, 2])
    types: Any = {"edge_type": torch.arange(7), "edge_weight": torch.arange(7.0), "node_type": torch.arange(5)}
    graph = wb.Graph.from_edges(src, dst, num_nodes=5, **types)
    train, val, test = torch.tensor([4, 0]), torch.tensor([2]), torch.tensor([1, 3])
    x, y = torch.arange(5.0)[:, None], torch.arange(5)
    return Dataset.build(graph, x, y, train_idx=train, val_idx=val, test_idx=test, name="five")


def edges(graph: wb.Graph, name: torch.Tensor) -> list[tuple]:
    """List source, destination, type and weight of all edges, with nodes relabelled by `name`."""
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    assert graph.edge_type is not None and graph.edge_weight is not None
    columns = name[graph.indices.long()], name[dst], graph.edge_type, graph.edge_weight
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_edges_rows_and_split_are_those_of_the_same_nodes(dataset: Dataset) -> None:
    found = permute_nodes(dataset, seed=1)
    name = found.x[:, 0].long()
    assert sorted(name.tolist()) == [0, 1, 2, 3, 4] != name.tolist()
    assert found.y.tolist() == name.tolist()
    assert found.graph.node_type is not None and found.graph.node_type.tolist() == name.tolist()
    assert edges(found.graph, name) == edges(dataset.graph, torch.arange(5))
    for part in ("train_idx", "val_idx", "test_idx"):
        assert set(name[getattr(found, part)].tolist()) == set(getattr(dataset, part).tolist())
    assert (found.num_classes, found.name, found.split) == (5, "five", dataset.split)


def test_nothing_of_the_old_order_remains() -> None:
    data = wb.load_dataset("synthetic-products", scale=0.001)
    found = permute_nodes(data, seed=3)
    rows = found.graph.indices.split(found.graph.in_degrees().tolist())
    assert all(bool((row.diff() >= 0).all()) for row in rows)
    assert bool((found.train_idx.diff() > 0).all())
    assert found.graph.edge_ids is None
    assert (found.graph.in_degrees().sort().values == data.graph.in_degrees().sort().values).all()
    assert found.fingerprint != data.fingerprint


def test_ids_depend_on_the_seed(dataset: Dataset) -> None:
    first, again, other = (permute_nodes(dataset, seed=s) for s in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_split_of_edges_is_refused(dataset: Dataset) -> None:
    pairs = torch.tensor([[0], [1]])
    links = LinkSplit(*[pairs] * 5)
    with pytest.raises(ValueError, match="five has a split of its edges"):
        permute_nodes(replace(dataset, link_split=links))
