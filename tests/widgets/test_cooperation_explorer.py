"""Who computes what: the figure against batches sampled by hand."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.test_micro_batch_explorer import control
from workbench.core.dataset import Dataset
from workbench.widgets import cooperation_explorer, cooperation_view
from workbench.widgets.cooperation_explorer import _around_hub

OPTIONS: dict[str, Any] = {"fanouts": (3, 4), "batch_size": 6, "hidden_dim": 8}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    nodes = torch.arange(300)
    x, (train, val, test) = torch.zeros(300, 8), nodes.split([200, 100, 0])
    graph = random_graph(300, 1500, edge_ids=False)
    return Dataset.build(graph, x, nodes % 3, train_idx=train, val_idx=val, test_idx=test, name="toy")


def traces(figure: Any, kind: str) -> list[Any]:
    return [trace for trace in figure.data if trace.type == kind]


@pytest.mark.parametrize(("sampler", "ownership"), [("NS", "random"), ("LABOR-0", "metis"), ("RW", "range")])
def test_the_view_counts_the_batches_of_the_ranks(dataset: Dataset, sampler: str, ownership: str) -> None:
    figure: Any = cooperation_view(dataset, num_ranks=3, ownership=ownership, sampler=sampler, kappa=4, **OPTIONS)
    fresh, again = traces(figure, "bar")
    assert list(fresh.x[1]) == ["PE 0", "PE 1", "PE 2"] * 2
    read = [a + b for a, b in zip(fresh.y, again.y, strict=True)]
    assert sum(read[:3]) > sum(read[3:]) and sum(again.y) > 0
    told = figure.layout.title.text
    assert f"rows read per distinct row: {sum(read[:3]) / sum(read[3:]):.2f} and 1" in told or sampler != "NS"
    (links,) = traces(figure, "heatmap")
    received = torch.tensor(links.z)
    assert received.shape == (3, 3) and not received.diagonal().any() and float(received.sum()) > 0


def test_dependent_batches_read_more_rows_again(dataset: Dataset) -> None:
    shares = []
    for kappa in (1, 64):
        figure: Any = cooperation_view(dataset, num_ranks=2, sampler="NS", kappa=kappa, **OPTIONS)
        fresh, again = traces(figure, "bar")
        shares.append(sum(again.y) / sum(fresh.y))
    assert shares[0] < shares[1]


def test_edges_of_the_picture_belong_to_the_owner_of_the_destination(dataset: Dataset) -> None:
    figure: Any = cooperation_view(dataset, num_ranks=2, sampler="NS", **OPTIONS)
    owner = wb.partition_graph(dataset.graph, 2, method="random", seed=0)
    small, nodes = _around_hub(dataset.graph)
    owner = owner[nodes]
    mb = wb.NeighborSampler([2, 2]).sample(small, small.in_degrees().argsort(descending=True)[1:9])
    dotted = sum(len(t.x) // 3 for t in traces(figure, "scatter") if t.line.dash == "dot")
    ends = [(owner[mb.node_ids[b.indices.long()]], owner[mb.node_ids[b.destinations.long()]]) for b in mb.blocks]
    assert dotted == sum(int((source != destination).sum()) for source, destination in ends) > 0


def test_the_picture_is_of_the_subgraph_around_the_node_with_most_edges(dataset: Dataset) -> None:
    small, nodes = _around_hub(dataset.graph)
    hub = int(dataset.graph.in_degrees().argmax())
    assert hub in nodes.tolist() and len(nodes) <= 24
    indptr, indices = dataset.graph.indptr.tolist(), dataset.graph.indices.tolist()
    for i, node in enumerate(nodes.tolist()):
        row = [s for s in indices[indptr[node] : indptr[node + 1]] if s in nodes]
        assert nodes[small.indices[small.indptr[i] : small.indptr[i + 1]].long()].tolist() == row


def test_the_explorer_offers_the_given_choices(dataset: Dataset) -> None:
    box = cooperation_explorer(dataset, num_ranks=[2, 3], ownerships=["range"], kappas=[1], **OPTIONS)
    assert control(box, "num ranks").value == 2
    assert control(box, "ownership").options == ("range",)
    assert control(box, "sampler").options == ("LABOR-0", "NS", "RW")


def test_more_ranks_than_colours_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="there are 8 ranks; pass 1 to 7"):
        cooperation_view(dataset, num_ranks=8, **OPTIONS)
