"""Miss rates of caches in a notebook: lines, title and subtitle are the counts of `simulate_cache`."""

from typing import Any

import pytest

import workbench as wb
from workbench.features.cache.simulate import CacheCost
from workbench.widgets import CACHE_SHARES, cache_explorer, cache_view

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


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def control(box: Any, name: str) -> Any:
    return next(widget for widget in box.children[0].children if widget.description == name)


def test_the_explorer_compares_two_settings_each_sampled_once(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    built: list[Any] = []

    def labor(fanouts: Any, dependence: Any) -> wb.Sampler:
        built.append((tuple(fanouts), dependence))
        return wb.LaborSampler(fanouts, dependence=dependence)

    box = cache_explorer(
        data, samplers={"NS": wb.NeighborSampler, "LABOR-0": labor}, fanouts=(3, 3), kappas=(1, 4), batch_size=16,
        policies=("lru", "static"),
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
