"""Work of batches in a notebook: the lines and the subtitle are the counts of `measure_work`."""

from math import log10
from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from tests.widgets.controls import control
from workbench.core.dataset import Dataset
from workbench.features.cache.simulate import CacheCost
from workbench.widgets import (
    CACHE_SHARES,
    WORK_SAMPLERS,
    cache_explorer,
    cache_view,
    cooperation_explorer,
    cooperation_view,
    work_explorer,
    work_view,
)
from workbench.widgets.cooperation_explorers import _around_hub


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_lines_are_means_of_the_measured_work(data: Any) -> None:
    figure: Any = work_view(data, samplers=["NS"], fanouts=(3, 3), batch_size=32, repetitions=3)
    (line,) = figure.data
    assert list(line.x) == [8, 16, 32, 128]
    works = wb.cooperative.measure_work(
        data.graph, data.train_idx, sampler=wb.NeighborSampler((3, 3)), batch_sizes=[32], repetitions=3
    )
    inputs = sorted(w.num_inputs for w in works)
    assert line.y[2] == pytest.approx(inputs[1] / 32)
    epoch = sum(inputs) / 3 * len(data.train_idx) / 32
    assert f"batches of 32 (and of 128): NS {epoch:,.0f} (" in figure.layout.title.text


def test_all_samplers_are_compared_by_default(data: Any) -> None:
    figure: Any = work_view(data, fanouts=(2,), batch_size=16, repetitions=1)
    assert {trace.name for trace in figure.data} == set(WORK_SAMPLERS)


def test_batches_do_not_exceed_the_training_nodes(data: Any) -> None:
    figure: Any = work_view(data, samplers=["NS"], fanouts=(2,), batch_size=len(data.train_idx), repetitions=1)
    assert max(figure.data[0].x) == len(data.train_idx)
    with pytest.raises(ValueError, match="a batch size is"):
        work_view(data, samplers=["NS"], fanouts=(2,), batch_size=len(data.train_idx) + 1)


def test_no_sampler(data: Any) -> None:
    with pytest.raises(ValueError, match="no sampler is chosen; choose from"):
        work_view(data, samplers=[])


def test_the_axes_stay_while_controls_move(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    box: Any = work_explorer(data, fanouts=((2,), (3, 3)), batch_sizes=(32, 64))
    controls = {widget.description: widget for widget in box.children[0].children}
    controls["fanouts"].value = (3, 3)
    controls["batch size"].value = 64
    controls["samplers"].value = ("LABOR-0",)
    assert len(shown) == 4 and len({(f.layout.xaxis.range, f.layout.yaxis.range) for f in shown}) == 1
    for figure in shown:
        for axis, values in (("xaxis", "x"), ("yaxis", "y")):
            low, high = figure.layout[axis].range
            assert all(low < log10(v) < high for line in figure.data for v in line[values])


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
    box = cooperation_explorer(dataset, **OPTIONS)
    assert control(box, "num ranks").value == 4
    assert control(box, "ownership").options == ("random", "metis", "range")
    assert control(box, "sampler").options == ("LABOR-0", "NS", "RW")


def test_more_ranks_than_colours_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="there are 8 ranks; pass 1 to 7"):
        cooperation_view(dataset, num_ranks=8, **OPTIONS)


ROWS: dict[str, Any] = {"num_rows": 100, "row_bytes": 1024, "batch_size": 10}


def costs(reads: str, *rates: float, policy: str = "lru") -> list[CacheCost]:
    """Costs at 10 and 50 of 100 rows, of reads of 200 rows."""
    both = zip((10, 50), rates, strict=True)
    return [CacheCost(reads, policy, rows, 200, rate, 200 * rate * 1024) for rows, rate in both]


GIVEN = [
    *costs("near", 0.8, 0.4),
    *costs("near", 0.6, 0.5, policy="static"),
    *costs("near", 0.1, 0.1, policy="belady-bypass"),
    *costs("far", 0.9, 0.7),
    *costs("far", 0.95, 0.3, policy="static"),
]


def test_lines_are_the_miss_rates_on_fixed_axes() -> None:
    figure: Any = cache_view(GIVEN, capacity_rows=10, **ROWS)
    lines = {(trace.xaxis, trace.name): (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines["x", "LRU"] == ([0.1, 0.5], [0.8, 0.4]) and lines["x2", "LRU"] == ([0.1, 0.5], [0.9, 0.7])
    assert lines["x", "Belady, bypass"][1] == [0.1, 0.1] and len(lines) == 5
    other: Any = cache_view([*costs("near", 0.2, 0.1), *costs("far", 0.3, 0.2)], capacity_rows=50, **ROWS)
    for axis in ("xaxis", "xaxis2", "yaxis", "yaxis2"):
        assert figure.layout[axis].range == other.layout[axis].range is not None
    assert list(figure.layout.xaxis.ticktext) == ["10%", "50%"]
    sizes = (10, 11, 12, 20, 40, 80)  # too close to each other for a text at each
    close = [CacheCost(reads, "lru", rows, 200, 0.5, 1024.0) for reads in ("near", "far") for rows in sizes]
    for axis in cache_view(close, capacity_rows=20, **ROWS).select_xaxes():
        assert 2 < len(axis.tickvals) < 6 and axis.ticktext == tuple(f"{share:.0%}" for share in axis.tickvals)


@pytest.mark.parametrize(
    ("capacity", "title", "bytes_per_seed"),
    [
        (10, "Misses fall from 90% (far; LRU) to 60% (near; static)", ["12.00 KiB", "18.00 KiB"]),
        (50, "Misses fall from 40% (near; LRU) to 30% (far; static)", ["8.00 KiB", "6.00 KiB"]),
    ],
)
def test_the_title_names_the_best_policy_that_does_not_know_the_future(
    capacity: int, title: str, bytes_per_seed: list[str]
) -> None:
    figure: Any = cache_view(GIVEN, capacity_rows=capacity, title="toy", **ROWS)
    text = figure.layout.title.text
    assert text.startswith(title + "<br>") and f"toy with the best policy for a cache of {capacity}% of the row" in text
    assert f"of the rows, {capacity:.2f} KiB (dashed)" in text
    headings = [f"<b>{name}: {size} per seed</b>" for name, size in zip(("near", "far"), bytes_per_seed, strict=True)]
    assert [annotation.text for annotation in figure.layout.annotations] == headings
    one: Any = cache_view(GIVEN[:2], capacity_rows=capacity, **ROWS)
    assert one.layout.title.text.startswith(f"Misses: {0.8 if capacity == 10 else 0.4:.0%} (near; LRU)<br>")


def test_what_the_view_refuses() -> None:
    for given, capacity in ((GIVEN, 11), (costs("near", 0.1, 0.1, policy="belady"), 10), ([], 10)):
        with pytest.raises(ValueError, match=f"no policy that works without the future has a cost at {capacity} rows"):
            cache_view(given, capacity_rows=capacity, **ROWS)


def test_the_explorer_compares_two_settings_each_sampled_once(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setattr("workbench.widgets.cooperation_explorers._POLICIES", ("lru", "static"))
    built: list[Any] = []

    def labor(fanouts: Any, dependence: Any) -> wb.Sampler:
        built.append((tuple(fanouts), dependence))
        return wb.LaborSampler(fanouts, dependence=dependence)

    box = cache_explorer(
        data, samplers={"NS": wb.NeighborSampler, "LABOR-0": labor}, fanouts=(3, 3), kappas=(1, 4), batch_size=16
    )  # fmt: skip
    assert control(box, "left").value == control(box, "right").value == "LABOR-0"
    assert (control(box, "left kappa").value, control(box, "right kappa").value) == (1, 4)
    assert built == [((3, 3), wb.Smoothed(1)), ((3, 3), wb.Smoothed(4))]
    control(box, "cache size").value = 0.4
    assert len(built) == 2, "moving the slider samples nothing"
    figure = shown[-1]
    trace = wb.AccessTrace.of(
        mb.node_ids
        for _, mb in wb.batches(
            data.graph, data.train_idx, sampler=wb.LaborSampler((3, 3), dependence=wb.Smoothed(4)), batch_size=16,
            drop_last=True,
        ).steps(16)
    )  # fmt: skip
    expected = [
        wb.features.simulate_cache(trace, -int(-share * 2449 // 1), warmup=8).miss_rate for share in CACHE_SHARES
    ]
    assert data.graph.num_nodes == 2449
    line = next(t for t in figure.data if t.name == "LRU" and t.xaxis == "x2")
    assert list(line.y) == pytest.approx(expected)
    control(box, "right kappa").value = 1
    assert {t.xaxis for t in shown[-1].data} == {"x"}, "equal settings are one panel"


def test_the_explorer_without_enough_training_nodes(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    cache_explorer(data, batch_size=10**6, fanouts=(2,))
    assert "but an epoch has 0 batches" in shown[-1].data
