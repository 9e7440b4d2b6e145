"""Tables 1, 4, 5, 6 and section 4.3: the transcription of the paper, and claims that hold where they do."""

from typing import Any

import pytest

from tests.experiments.cooperative.cost_tables import scaling, stages
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

TABLES = {"table1": stages, "table4": stages, "table5": stages, "table6": stages, "scaling": scaling}
STAGES = ["sampling_ms", "copy_ms", "cache_ms", "kappa_ms", "forward_backward_ms", "total_ms"]


def reported(figure) -> Any:
    return load_experiment(f"cooperative/{figure}").reported


def verdicts(figure, table):
    return {finding.name: finding.held for finding in directions(f"cooperative/{figure}", table)}


def test_the_24_totals_of_table_4_are_the_sums_of_their_stages():
    rows = reported("table4")
    assert len(rows) == 24 and not rows.duplicated(["system", "dataset", "sampler", "approach"]).any()
    assert (rows.kappa_ms.isna() == (rows.sampler == "NS")).all() and not rows.drop(
        columns="kappa_ms"
    ).isna().any().any()
    copy = rows.kappa_ms.fillna(rows.cache_ms)
    assert (rows.sampling_ms + copy + rows.forward_backward_ms - rows.total_ms).abs().max() < 0.1 + 1e-9


def test_caches_and_dependence_make_every_published_copy_faster():
    rows, dependent = reported("table4"), reported("table4").dropna()
    assert (rows.cache_ms < rows.copy_ms).all() and (dependent.kappa_ms < dependent.cache_ms).all()


def test_table_5_divides_the_totals_of_table_4():
    totals = reported("table4").pivot_table("total_ms", ["dataset", "sampler", "system"], "approach")
    expected = totals.independent / totals.cooperative
    found = reported("table5")
    assert len(found) == 12
    row: Any
    for row in found.itertuples():
        system = {4: "4 A100", 8: "8 A100", 16: "16 V100"}[row.num_pes]
        assert row.speedup == pytest.approx(expected[row.dataset, row.sampler, system], abs=0.0051)
    assert found.speedup.max() == 1.64  # "up to 64 % speedup"


def test_table_6_divides_the_copies_of_table_4():
    rows = reported("table4").dropna()
    expected = (rows.cache_ms / rows.kappa_ms).groupby([rows.dataset, rows.approach, rows.system]).first()
    found = reported("table6")
    assert len(found) == 12
    row: Any
    for row in found.itertuples():
        system = {4: "4 A100", 8: "8 A100", 16: "16 V100"}[row.num_pes]
        assert row.gain == pytest.approx(expected[row.dataset, row.approach, system], abs=0.0051)


def test_times_of_table_1_and_section_4_3_are_those_of_table_4():
    rows = reported("table4").query("system == '4 A100' and sampler == 'LABOR-0'").set_index(["dataset", "approach"])
    row: Any
    for row in reported("table1").query("ownership == 'random'").itertuples():
        found = rows.loc[(row.dataset, row.approach)]
        assert (row.copy_ms, row.forward_backward_ms) == (found.copy_ms, found.forward_backward_ms)
        assert row.halo_3 < row.needed_3 and row.owned_3 <= row.needed_3
    four = reported("scaling").query("num_pes == 4 and model == 'gcn'").set_index("ownership").forward_backward_ms
    metis = reported("table1").query("ownership == 'metis'").set_index("dataset").forward_backward_ms
    assert (
        four["random"] == rows.forward_backward_ms["papers100M", "cooperative"] and four["metis"] == metis["papers100M"]
    )


@pytest.mark.parametrize("figure", TABLES)
def test_claims_hold_where_they_do(figure):
    found = verdicts(figure, TABLES[figure]())
    assert len(found) >= 2 and all(found.values()), found


@pytest.mark.parametrize(
    ("figure", "where", "column", "factor", "lost"),
    [
        ("table1", "approach == 'cooperative' and num_pes == 8", "owned_3", 2, {"fewer-inputs"}),
        ("table1", "approach == 'cooperative' and num_pes == 8", "work_bytes", 2, {"less-model-work"}),
        ("table1", "approach == 'cooperative' and sampler == 'NS'", "copy_exchange_seconds", 60, {"storage-dominates"}),
        ("table1", "approach == 'cooperative' and num_pes == 4", "cross_ratio", 1.2, {"cross-ratio"}),
        ("table4", "approach == 'cooperative' and num_pes == 4", "total_seconds", 2, {"total-faster"}),
        ("table4", "approach == 'cooperative' and num_pes == 4", "total_with_arithmetic_seconds", 2,
         {"total-faster-with-arithmetic"}),
        ("table4", "approach == 'independent' and sampler == 'NS'", "sampling_seconds", 0.5, {"sampling-faster"}),
        ("table4", "approach == 'independent' and sampler == 'NS'", "copy_seconds", 0.5, {"copy-faster"}),
        ("table4", "approach == 'independent' and sampler == 'NS'", "cache_seconds", 0.5, {"cached-copy-faster"}),
        ("table4", "approach == 'cooperative' and model == 'rgcn'", "arithmetic_seconds", 2, {"rgcn-faster"}),
        ("table4", "approach == 'cooperative' and model == 'gcn'", "forward_backward_seconds", 0.5, {"gcn-not-faster"}),
        ("table5", "approach == 'cooperative' and num_pes == 4", "total_seconds", 3, {"faster"}),
        ("table5", "approach == 'cooperative' and num_pes == 8", "total_seconds", 0.5, {"grows"}),
        ("table5", "approach == 'independent' and num_pes == 16", "total_with_arithmetic_seconds", 0.8,
         {"grows-with-arithmetic"}),
        ("table5", "approach == 'cooperative' and num_pes == 4", "total_with_arithmetic_seconds", 3,
         {"faster-with-arithmetic"}),
        ("table5", "approach == 'cooperative' and num_pes == 4", "sampling_seconds", 4, {"faster-by-stage"}),
        ("table5", "approach == 'independent' and num_pes == 16", "sampling_seconds", 0.2,
         {"faster-by-stage", "grows-by-stage"}),
        ("table6", "num_pes == 8", "kappa_seconds", 5, {"dependence-gains"}),
        ("table6", "approach == 'cooperative' and num_pes == 8", "kappa_seconds", 1.9, {"cooperation-gains-more"}),
        ("scaling", "num_pes == 3", "edges_3", 1.2, {"work-falls"}),
        ("scaling", "num_pes == 3 and model == 'gat'", "forward_backward_seconds", 1.2, {"heavy-models-faster"}),
        ("scaling", "num_pes == 2 and model == 'gcn'", "alone_bandwidth_seconds", 2, {"gcn-slower"}),
        ("scaling", "num_pes == 2 and ownership == 'metis'", "exchange_seconds", 3, {"metis-exchanges-less"}),
        ("scaling", "num_pes == 2 and ownership == 'random'", "imbalance", 1.2, {"metis-imbalanced"}),
        ("scaling", "num_pes == 4 and ownership == 'metis' and model == 'gcn'", "bandwidth_seconds", 1.4,
         {"metis-helps-gcn"}),
    ],
)  # fmt: skip
def test_a_spoiled_table_loses_just_that_claim(figure, where, column, factor, lost):
    table = TABLES[figure]()
    rows = table.query(where).index
    assert len(rows)
    table = table.astype({column: float})
    table.loc[rows, column] *= factor
    assert {name for name, held in verdicts(figure, table).items() if not held} == lost


@pytest.mark.parametrize(("figure", "rows"), [("table1", 6), ("table4", 24), ("table5", 12), ("table6", 12)])
def test_comparisons_have_a_row_per_published_one(figure, rows):
    shown = load_experiment(f"cooperative/{figure}").compare(TABLES[figure]())
    assert len(shown) == rows and any("modelled" in str(column) for column in shown)


def test_speedups_by_stage_weigh_modelled_ratios_by_published_times():
    table = stages()
    found = load_experiment("cooperative/table5").module.modelled(table).set_index(["dataset", "sampler", "system"])
    of: Any = table.query("system == '8 A100' and model == 'gcn' and sampler == 'NS'").set_index("approach")
    share = {name: of[name]["cooperative"] / of[name]["independent"] for name in ("sampling_seconds", "cache_seconds")}
    model = of.forward_backward_seconds + of.arithmetic_seconds
    expected = 15.8 * share["sampling_seconds"] + 24.5 * share["cache_seconds"] + 10.3 * model.iloc[1] / model.iloc[0]
    assert found.speedup_by_stage["papers100M", "NS", "8 A100"] == pytest.approx(50.6 / expected)


def test_the_comparison_of_scaling_is_relative_to_one_pe():
    shown = load_experiment("cooperative/scaling").compare(scaling()).set_index(["model", "ownership", "num_pes"])
    assert (shown.loc["rgcn", "random", 4]["paper, measured"], len(shown)) == (183 / 200, 24)
    assert shown.loc["gcn", "metis", 4]["paper, measured"] == 12.0 / 8.9
    assert shown.loc["gat", "random", 1]["modelled"] == pytest.approx(1)


@pytest.mark.parametrize("figure", TABLES)
def test_every_figure_says_that_it_is_modelled(figure):
    experiment = load_experiment(f"cooperative/{figure}")
    drawn = experiment.draw(TABLES[figure]())
    assert "odelled" in drawn.layout.title.text
    assert all("modelled" in axis.title.text for axis in drawn.select_yaxes())
    assert sum(len(trace.x) for trace in drawn.data)


def test_the_model_on_the_papers_counts_is_near_its_ratios():
    experiment = load_experiment("cooperative/table1")
    rows = experiment.module.on_paper_counts(experiment.shown(stages()), experiment.reported)
    ratio = rows.set_index(["dataset", "ownership", "approach"])[["copy_ms", "copy_modelled_ms"]]
    papers, mag = (
        ratio.loc[name, "random", "independent"] / ratio.loc[name, "random", "cooperative"]
        for name in ("papers100M", "mag240M")
    )
    assert papers.copy_modelled_ms == pytest.approx(papers.copy_ms, rel=0.01)  # 1.31
    assert mag.copy_modelled_ms == pytest.approx(mag.copy_ms, rel=0.12)  # 1.13 measured, 1.24 modelled


def test_the_model_on_the_papers_counts_orders_forward_and_backward_as_measured():
    experiment = load_experiment("cooperative/table1")
    rows = experiment.module.on_paper_counts(experiment.shown(stages()), experiment.reported)
    alone = rows[rows.approach == "independent"].set_index("dataset").modelled_ms
    cooperative = rows[rows.approach == "cooperative"].set_index(["dataset", "ownership"]).modelled_ms
    assert alone["papers100M"] < cooperative["papers100M", "random"]
    assert cooperative["papers100M", "metis"] < cooperative["papers100M", "random"]
    assert cooperative["mag240M", "random"] < cooperative["mag240M", "metis"] < alone["mag240M"]
