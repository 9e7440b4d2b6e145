"""The claims of the benchmarks: each can be lost, and by nothing but what it is about."""

import pandas as pd
import pytest

from experiments.performance import cooperation, macrobatch
from experiments.performance.dense import NS  # noqa: F401 - of queries
from tests.experiments.directions import directions
from tests.experiments.performance import tables
from workbench.experiment.figure_loader import load_experiment

FIGURES = (
    "sampling",
    "labor",
    "dense",
    "splitting",
    "partitioning",
    "aggregation",
    "epoch",
    "micro_batches",
    "link_prediction",
    "cooperation",
    "lockstep",
    "macrobatch",
    "boundaries",
    "dropin",
    "estimate",
    "traced",
    "plan",
    "standins",
    "caches",
    "disk_rows",
    "streaming_partition",
    "buffers",
)

LABOR_0 = {"labor-0-faster-in-every-case"}
IMPORTANCE = {"importance-faster-in-every-case"}


def lost(figure: str, table: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(f"performance/{figure}", table) if not finding.held}


@pytest.mark.parametrize("figure", FIGURES)
def test_all_claims_hold_in_a_table_made_for_them(figure: str) -> None:
    assert lost(figure, getattr(tables, figure)()) == set()


@pytest.mark.parametrize(
    ("figure", "rows", "column", "value", "names"),
    [
        ("sampling", "graph == 'power-law' and batch_size == 8192", "ratio_best", 1.4, {"faster-in-every-case"}),
        ("sampling", "graph != 'power-law'", "ratio_best", 2.4, {"faster-at-the-median"}),
        ("labor", "graph == 'power-law' and importance == 0 and threads != 1", "ratio_best", 2.9, LABOR_0),
        ("labor", "graph == 'power-law' and importance == '*' and threads != 1", "ratio_best", 1.9, IMPORTANCE),
        ("labor", "importance == 1 and threads == 1", "ratio_best", 2.4, {"one-thread-faster-in-every-case"}),
        ("dense", "graph == 'cnr-2000' and rival == @NS and threads == 1", "ratio_best", 6.8, {"gain-follows-edges"}),
        ("dense", "rival != @NS and num_layers == 5", "ratio_best", 5.9, {"faster-than-dgl-5"}),
        ("dense", "rival != @NS and num_layers == 4", "ratio_best", 3.9, {"faster-than-dgl-4"}),
        ("dense", "rival == @NS and num_layers == 5 and threads == 1", "rival_edges", 8000, {"fewer-edges"}),
        ("dense", "rival != @NS and graph == 'cnr-2000'", "rival_inputs", 840, {"same-nodes"}),
        ("splitting", "num_parts == 8 and method == 'metis'", "ratio_best", 4.9, {"faster-in-every-case"}),
        ("splitting", "num_parts == 8 or method == 'metis'", "ratio_best", 6.9, {"faster-at-the-median"}),
        ("partitioning", "beside != 'reg' and graph != 'cnr-2000'", "ratio_best", 1.6, {"prepared-once"}),
        ("partitioning", "beside == 'reg' and graph != 'cnr-2000'", "ratio_best", 1.4, {"total-seconds"}),
        ("partitioning", "beside == 'reg' and graph != 'cnr-2000'", "excess_ratio", 0.81, {"total-excess"}),
        ("aggregation", "kind == 'pool' and width == 64", "ratio_best", 0.8, {"faster-in-every-case"}),
        ("aggregation", "kind != 'gat'", "ratio_best", 1.4, {"faster-at-the-median"}),
        ("aggregation", "kind == 'gat'", "ratio_best", 7.9, {"attention-gains-most"}),
        ("epoch", "hidden_dim == 256", "ratio_best", 1.1, {"faster-at-every-width"}),
        ("epoch", "hidden_dim == 16", "ratio_best", 1.9, {"faster-in-narrow-layers"}),
        ("link_prediction", "scoring == 'products' and rows == 'torch'", "ratio_best", 1.9, {"twice-products"}),
        ("link_prediction", "scoring == 'pairs' and encoder == 'sage'", "ratio_best", 1.9, {"twice-pairs"}),
        ("micro_batches", "num_parts == 4 and method == 'reg'", "overhead", 1.11, {"cheap-in-4-parts"}),
        ("micro_batches", "num_parts == 16 and hidden_dim == 16", "overhead", 1.51, {"cheap-in-16-parts"}),
        ("cooperation", "num_ranks == 1 and hidden_dim == 16", "cpu_ratio", 1.11, {"cheap-alone"}),
        ("cooperation", "num_ranks == 2 and ownership == 'metis'", "edges_ratio", 1.01, {"less-work"}),
        ("cooperation", "num_ranks == 2 and ownership == 'random'", "inputs_ratio", 1.01, {"less-work"}),
        ("lockstep", "num_ranks == 1 and sampler == 'NS'", "ratio_median", 1.06, {"cheap-on-1"}),
        ("lockstep", "num_ranks != 1 and sampler == 'NS'", "ratio_median", 1.51, {"cheap-on-4"}),
        ("macrobatch", "window == 8 and sampler == 'NS'", "losses_equal", False, {"same-losses"}),
        ("macrobatch", "window == 8 and sampler == 'NS'", "relays", 25, {"few-relays"}),
        ("macrobatch", "window == 44", "rows_ratio", 1.0, {"fewer-rows"}),
        ("macrobatch", "window == 44", "preparation_ratio", 1.01, {"prepared-sooner"}),
        ("macrobatch", "sampler == 'NS'", "wall_ratio", 1.01, {"shorter-epoch"}),
        ("boundaries", "library == 'dgl' and graph == 'power-law'", "share", 0.021, {"checks-are-cheap"}),
        ("dropin", "num_parts == 4", "of_whole", 1.01, {"never-more-than-the-whole-batch"}),
        ("dropin", "num_parts == 4", "of_native", 1.11, {"within-10-percent-of-native"}),
        ("estimate", "kind == 'gat' and case_seed == 3", "worst_error", 0.031, {"within-3-percent"}),
        ("estimate", "kind == 'gat' and case_seed == 3", "worst_error", -0.0295, {"margin-covers"}),
        ("estimate", "case_seed > 1", "worst_error", 0.002, {"median-0.1-percent"}),
        ("traced", "model == 'Buckets' and num_parts == 4", "peak_error", -0.041, {"within-4-percent"}),
        ("traced", "model == 'Buckets'", "peak_error", 0.01, {"exact-in-most"}),
        ("traced", "model == 'Buckets'", "required_error", -0.01, {"required-is-enough"}),
        ("traced", "model == 'Thresholded'", "required_error", -0.01, {"required-is-enough-for-any-values"}),
        ("plan", "method == 'reg' and case_seed == 4", "measured_bytes", 1001.0, {"fits-in-every-case"}),
        ("plan", "method == 'reg' and case_seed < 3", "hit", False, {"hits-in-most"}),
        ("plan", "method == 'reg' and case_seed == 4", "planned", None, {"found-in-every-case"}),
        ("disk_rows", "direct_reads and num_threads == 1", "cold", False, {"cold-caches"}),
        ("disk_rows", "direct_reads and ids == 'batch'", "disk_amplification", 31.0, {"fewer-bytes"}),
        ("disk_rows", "direct_reads and num_threads == 16 and width == 128", "ratio_median", 0.9, {"faster"}),
        ("standins", "standin == 'synthetic-yelp' and property == 'edges'", "met", False, {"targets-are-met"}),
        ("standins", "standin == 'synthetic-yelp'", "peak_bytes", 1001, {"required-memory-is-enough"}),
        ("caches", "policy == 'static' and graph == 'power-law'", "speed", 4.9, {"fast"}),
        ("caches", "policy == 'belady' and graph == 'power-law'", "speed", 0.9, {"fast-belady"}),
        ("streaming_partition", "method == 'ldg' and order == 'shuffled'", "speed", 1.9, {"fast"}),
        ("streaming_partition", "method == 'ldg' and order == 'shuffled'", "balance", 1.12, {"balanced"}),
        ("streaming_partition", "method == 'fennel' and order == 'bfs'", "cut_share", 0.9, {"fewer-than-random"}),
        ("streaming_partition", "method == 'metis'", "cut_share", 0.5, {"metis-cuts-fewest"}),
        ("buffers", "kind == 'gin'", "bytes_share", 0.06, {"few-bytes"}),
        ("buffers", "kind != 'gin'", "ratio_median", 0.99, {"not-slower"}),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(
    figure: str, rows: str, column: str, value: object, names: set[str]
) -> None:
    table = getattr(tables, figure)()
    table.loc[table.query(rows).index, column] = value
    assert lost(figure, table) == names


def test_findings_on_seconds_are_timed() -> None:
    timed = {
        figure: {finding.timed for finding in directions(f"performance/{figure}", getattr(tables, figure)())}
        for figure in FIGURES
    }
    of_time = {"sampling", "labor", "splitting", "aggregation", "epoch", "micro_batches", "boundaries", "caches"}
    of_time |= {"link_prediction", "lockstep"}
    both_kinds = ("buffers", "cooperation", "dense", "disk_rows", "macrobatch", "partitioning", "streaming_partition")
    for both in both_kinds:
        assert timed.pop(both) == {False, True}
    assert timed == {figure: {figure in of_time} for figure in timed}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_has_a_title_and_marks_every_row(figure: str) -> None:
    table = getattr(tables, figure)()
    drawn = load_experiment(f"performance/{figure}").draw(table)
    assert drawn.layout.title.text
    per_row = {"cooperation": len(cooperation.MEASURES), "macrobatch": len(macrobatch.MEASURES)}.get(figure, 1)
    assert sum(len(trace.y) for trace in drawn.data) == len(table) * per_row


@pytest.mark.parametrize("figure", [figure for figure in FIGURES if figure != "standins"])
def test_the_first_rows_of_a_comparison_summarize_all_cases(figure: str) -> None:
    table = getattr(tables, figure)()
    compared = load_experiment(f"performance/{figure}").compare(table)
    assert list(compared)[:2] == ["measured", "cases"]
    assert {"median", "from", "to"} <= set(compared)
    first = compared.cases.iloc[: 2 if figure in ("sampling", "cooperation") else 1]
    assert first.sum() == len(table)


def test_the_summary_of_ratios() -> None:
    table = tables.sampling()
    table.loc[0, "ratio_best"] = 2.0
    smaller, large = load_experiment("performance/sampling").compare(table).to_dict("records")
    assert smaller == {
        "measured": "neighbour sampling: ogbn-arxiv, power-law",
        "cases": 8,
        "median": 8.0,
        "from": 2.0,
        "to": 8.0,
        "spread": pytest.approx(2 / 7.5),
    }
    assert (large["measured"], large["cases"]) == ("neighbour sampling: synthetic-products", 4)


def test_the_summary_of_errors() -> None:
    everything, gat, gcn = load_experiment("performance/estimate").compare(tables.estimate()).to_dict("records")
    assert (gat["cases"], gcn["cases"]) == (3, 3)
    assert everything == {
        "measured": "estimated peak of the library's layers",
        "cases": 6,
        "exact": 4,
        "median": 0.0,
        "largest": 0.002,
        "from": -0.002,
        "to": 0.0,
        "estimate_seconds": 1e-3,
    }
