"""Claims of the data-placement figures: they hold on tables made to satisfy them, and fail on spoiled ones."""

from typing import Any

import pandas as pd
import pytest

from experiments.data_placement import access_probability, brute_force, movement, speedup
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

MACHINE = {"gamma": 9e11, "alpha": 3e11, "beta": 3.2e10}


def speedup_table() -> pd.DataFrame:
    seconds = dict.fromkeys(movement.METHODS, 2.0) | {"algorithm-1": 0.8, "search": 0.799}
    return pd.DataFrame(
        {"dataset": "synthetic-papers100M", "topology": t, "method": m, "loading_seconds": s, "alone_seconds": 2.4}
        | MACHINE
        for t in ("2 GPUs", "2+2 GPUs")
        for m, s in seconds.items()
    )


def share_table() -> pd.DataFrame:
    shares = {"METIS, own seeds": (0.8, 0.2), "PaGraph, own seeds": (0.7, 0.2), "algorithm-1": (0.9, 0.4)}
    rows = {"dataset": "a", "topology": "4 GPUs", "flops": 1e13, "device_rows": 1, "peer_rows": 2, "host_rows": 3}
    return pd.DataFrame(
        {**rows, "method": method, "reads": reads, "loading_share": share, **MACHINE}
        for method, both in shares.items()
        for reads, share in zip(("own buffer, host", "peers too"), both, strict=True)
    )


def preprocessing_table() -> pd.DataFrame:
    seconds = {"Algorithm 1": 0.1, "search": 0.1, "METIS": 3.0, "PaGraph": 9.0}
    about = {"nodes": 10, "edges": 20, "probability_seconds": 0.2, "gap": 0.001}
    return pd.DataFrame(
        {"graph": f"synthetic-{g}", **about, "placement": m, "seconds": s}
        for g in ("reddit", "yelp")
        for m, s in seconds.items()
    )


def brute_force_table() -> pd.DataFrame:
    worst = {"search": 0.01, "algorithm-1": 0.4, "hottest": 0.9}
    about = {"kind": "equal", "compared": 9, "optimal_share": 0.5}
    return pd.DataFrame(
        {**about, "objective": o, "method": m, "mean_excess": w / 2, "quantile": q, "excess": e}
        for o in ("largest", "total")
        for m, w in worst.items()
        for q in brute_force.QUANTILES
        for e in [0.0 if (m, o) == ("algorithm-1", "total") or q <= 0.5 else w * q]
    )


def probability_table() -> pd.DataFrame:
    found = {"inclusion": (0.99, 0.1), "expected mass (paper)": (0.9, 0.8), "presampled, all batches": (1.0, 0.0)}
    found[access_probability.SKETCHED] = (0.98, 0.2)
    return pd.DataFrame(
        {"dataset": "a", "batch_size": 4, "estimate": n, "rank_correlation": c, "hit_rate": 0.9, "points_below": b}
        for n, (c, b) in found.items()
    )


TABLES = {
    "speedup": speedup_table,
    "loading_share": share_table,
    "preprocessing": preprocessing_table,
    "brute_force": brute_force_table,
    "access_probability": probability_table,
}
SPOILED: list[tuple[str, str, str, Any, set[str]]] = [
    ("speedup", "method == 'METIS'", "loading_seconds", 0.7, {"beats-partitions", "search-beats-all"}),
    ("speedup", "method == 'METIS'", "alone_seconds", 0.7, {"beats-partitions-alone"}),
    ("speedup", "method == 'hottest'", "loading_seconds", 0.7, {"beats-hottest", "search-beats-all"}),
    ("speedup", "method == 'search'", "loading_seconds", 0.9, {"search-beats-all"}),
    ("speedup", "method == 'PaGraph, own seeds'", "loading_seconds", 0.7, {"beats-own-seeds"}),
    ("speedup", "method == 'random'", "alone_seconds", 1.8, {"speedup-papers"}),
    ("speedup", "method == 'random'", "alone_seconds", 3.0, {"speedup"}),
    ("loading_share", "method == 'METIS, own seeds' and reads != 'peers too'", "loading_share", 0.45, {"bottleneck"}),
    ("loading_share", "method == 'algorithm-1' and reads == 'peers too'", "loading_share", 0.75, {"share-falls"}),
    ("preprocessing", "placement == 'METIS'", "seconds", 0.2, {"faster"}),
    ("preprocessing", "placement == 'search'", "gap", 0.02, {"gap"}),
    ("brute_force", "method == 'algorithm-1' and objective == 'total'", "excess", 0.01, {"total-optimal"}),
    ("brute_force", "method == 'algorithm-1' and objective == 'largest'", "mean_excess", 0.01, {"largest-not-optimal"}),
    ("brute_force", "method == 'search' and quantile == 0.5", "excess", 0.02, {"search-median"}),
    ("brute_force", "method == 'search' and quantile == 1", "excess", 0.06, {"search-worst"}),
    ("access_probability", "estimate == 'inclusion'", "points_below", 1.1, {"hit-rate"}),
    ("access_probability", f"estimate == '{access_probability.SKETCHED}'", "points_below", 1.1, {"hit-rate-sketched"}),
    ("access_probability", "estimate == 'expected mass (paper)'", "points_below", 1.1, {"hit-rate-mass"}),
    ("access_probability", "estimate == 'inclusion'", "rank_correlation", 0.8, {"ranks"}),
]


def failed(figure: str, table: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(f"data_placement/{figure}", table) if not finding.held}


@pytest.mark.parametrize("figure", TABLES)
def test_a_table_that_satisfies_the_claims_is_drawn_and_compared(figure: str) -> None:
    experiment, table = load_experiment(f"data_placement/{figure}"), TABLES[figure]()
    assert failed(figure, table) == set()
    drawn = experiment.draw(table)
    assert drawn.data and all(len(trace.x) for trace in drawn.data)
    assert len(experiment.compare(table)) > 0


@pytest.mark.parametrize(("figure", "line"), [("speedup", 1.0), ("loading_share", 0.5)])
def test_every_panel_shows_the_line_that_its_dots_are_read_against(figure: str, line: float) -> None:
    layout = load_experiment(f"data_placement/{figure}").draw(TABLES[figure]()).layout
    panels = [axis for axis in layout if axis.startswith("yaxis")]
    assert [shape.y0 for shape in layout.shapes] == [line] * len(panels)
    assert all(layout[axis].autorangeoptions.include == (line,) for axis in panels)


@pytest.mark.parametrize(("figure", "rows", "column", "value", "names"), SPOILED)
def test_claims_can_fail(figure: str, rows: str, column: str, value: float, names: set[str]) -> None:
    table = TABLES[figure]()
    table.loc[table.query(rows).index, column] = value
    assert failed(figure, table) == names


def test_speedups_are_those_over_random_of_the_same_case() -> None:
    table = speedup_table()
    table.loc[(table.topology == "2 GPUs") & (table.method == "random"), "loading_seconds"] = 4.0
    found = speedup.shown(table).set_index(["topology", "method"])
    assert found.speedup["2 GPUs", "algorithm-1"] == 5.0 and found.speedup["2+2 GPUs", "algorithm-1"] == 2.5
    assert found.of_alone["2 GPUs", "algorithm-1"] == pytest.approx(3.0)


def test_the_worked_example_is_that_of_the_slides() -> None:
    experiment = load_experiment("data_placement/worked_example")
    module = experiment.module
    rows = [
        {**config, **row}
        for config in ({"method": "algorithm-1", "alpha": 0.3}, {"method": "algorithm-1-printed", "alpha": 0.3})
        for row in module.run(module.Config(**config))
    ]
    table = pd.DataFrame(rows)
    assert table.holds.tolist() == ["1 3", "2 4", "1 3", "1 2"]
    assert failed("worked_example", table) == {"printed-as-drawn"}
    table.loc[0, "holds"] = "1 2"
    assert "corrected-as-drawn" in failed("worked_example", table)
    assert len(experiment.draw(table).data) == 3
