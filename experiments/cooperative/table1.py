"""Cooperative Minibatching, Table 1: the terms of the complexity analysis, evaluated. A view of Table 4."""

from typing import Any

import pandas as pd

from experiments.cooperative.step_costs import PAPER_BATCH, SYSTEMS, machine_name
from experiments.cooperative.table4 import shown as rows_of
from workbench.cooperative.cost_model import PeCounts, StepSeconds, step_seconds
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.nn.model import LayerSize, model_work

STAGES = {"sampling": "sampling", "copy": "feature loading", "forward_backward": "F/B"}
CASE = ["dataset", "sampler", "num_pes"]
PAPER_MODELS = {"papers100M": ("gcn", (128, 1024, 1024, 172), 512), "mag240M": ("rgcn", (768, 1024, 1024, 153), 1536)}
"""Kind of model, widths, and bytes of a row of features, of the paper's data sets."""


def shown(table: pd.DataFrame, *, here: bool = False) -> pd.DataFrame:
    """The rows of Table 4 with the local term of each stage, without a cache (ρ = 1)."""
    rows = rows_of(table, here=here)
    local = {f"{stage}_local_seconds": rows[f"{stage}_seconds"] - rows[f"{stage}_exchange_seconds"] for stage in STAGES}
    return rows.assign(**local)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    rows: Any = shown(table).query("sampler == 'LABOR-0' and system == '4 A100'")
    bars = [
        StageBar(
            f"{row['dataset']} · {name}",
            row["sampler"],
            row["approach"],
            {
                "own memory or storage (γ, β)": row[f"{stage}_local_seconds"],
                "other PEs (α)": row[f"{stage}_exchange_seconds"],
            },
        )
        for dataset in dict.fromkeys(rows.dataset)
        for stage, name in STAGES.items()
        for row in rows[rows.dataset == dataset].to_dict("records")
    ]
    row, cross = rows.iloc[0], rows[rows.approach == "cooperative"].cross_ratio.mean()
    inputs = f"γ = {row.gamma / 1e9:g}, α = {row.alpha / 1e9:g}, β = {row.beta / 1e9:g} GB/s"
    return stage_bars(
        bars,
        axis="modelled time",
        title="Modelled: what each term of Table 1 costs on 4 A100",
        subtitle=f"{inputs}; no cache, ρ = 1; random ownership, c = {cross:.2f}",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    cooperative = rows.query("approach == 'cooperative'")
    among: dict[str, Any] = {"among": "approach", "winner": "cooperative", "rivals": ["independent"], "by": CASE}
    return [
        claims.least(
            "fewer-inputs",
            "a PE loads fewer rows if PEs cooperate: |S³(PB)| / P is less than |S³(B)|",
            rows,
            value="owned_3",
            **among,
        ),
        claims.least(
            "less-model-work", "M is less per PE if they cooperate, in bytes", rows, value="work_bytes", **among
        ),
        claims.within(
            "storage-dominates",
            "the exchange of features between PEs (α) takes less time than loading them (β)",
            cooperative.assign(share=cooperative.copy_exchange_seconds / cooperative.copy_local_seconds),
            value="share",
            by=CASE,
            most=claims.LESS,
        ),
        claims.within(
            "cross-ratio",
            "with random ownership a share c of at most (P − 1) / P of the needed nodes is of other PEs",
            cooperative.assign(excess=cooperative.cross_ratio / (1 - 1 / cooperative.num_pes)),
            value="excess",
            by=CASE,
            most=1.0,
        ),
    ]


def on_paper_counts(rows: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Table 7's counts on 4 A100, priced: `copy_modelled_ms`, and forward/backward without (`bandwidths_ms`) and with
    (`modelled_ms`) arithmetic.

    Args:
        rows: of `shown`, for the number of relations that a destination's in-edges have.
        reported: rows of Table 7, in thousands.
    """
    relations = rows.groupby("dataset").relations.mean()
    priced = [_price(row, relations[row["dataset"]]) for row in reported.to_dict("records")]
    return reported.assign(
        copy_modelled_ms=[1e3 * cost.features.total for cost, _ in priced],
        bandwidths_ms=[1e3 * cost.forward_backward.total for cost, _ in priced],
        modelled_ms=[1e3 * exact.forward_backward.total for _, exact in priced],
    )


def _price(row: dict[str, Any], relations: float) -> tuple[StepSeconds, StepSeconds]:
    """Without and with arithmetic; the hop next to the seeds, which the table omits, is |S̃¹| ≈ |S¹|."""
    kind, dims, row_bytes = PAPER_MODELS[row["dataset"]]
    near = row["owned_1"], row["owned_1"] * row["halo_2"] / row["needed_2"], row["owned_1"] - PAPER_BATCH / 1e3
    needed, halo, edges = (
        (1e3 * first, 1e3 * row[f"{name}_2"], 1e3 * row[f"{name}_3"])
        for name, first in zip(("needed", "halo", "edges"), near, strict=True)
    )
    counts = PeCounts((PAPER_BATCH, *(1e3 * row[f"owned_{hop}"] for hop in (1, 2, 3))), needed, halo, edges)
    layers = [LayerSize(*hop) for hop in zip(needed, counts.owned[:-1], edges, strict=True)][::-1]
    work = model_work(kind, layers, dims, relations=relations if kind == "rgcn" else 1)
    sizes = {"row_bytes": row_bytes, "hidden_bytes": 4 * dims[1], "work_bytes": work.nbytes, "work_flops": work.flops}
    system = SYSTEMS["4 A100"]
    return step_seconds(counts, system.machine, **sizes), step_seconds(counts, system.with_arithmetic, **sizes)


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Counts and modelled milliseconds of rows with random ownership."""
    columns = ["dataset", "ownership", "approach", "owned_3", "halo_3", "copy_ms", "products_ms"]
    products_ms = 1e3 * (rows.forward_backward_seconds + rows.arithmetic_seconds)
    found: Any = rows.assign(ownership="random", products_ms=products_ms)[columns]
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's counts per PE (Table 7) beside those of stand-ins, and the stages of 4 A100 with LABOR-0: measured in
    the paper, modelled from its counts, and modelled from counts here; then modelled for this machine by its measured
    speeds."""
    paper = on_paper_counts(shown(table), reported)
    here = _counted(shown(table).query("sampler == 'LABOR-0' and system == '4 A100'"))
    keys = ["dataset", "ownership", "approach"]
    both = paper.merge(here, on=keys, how="left", suffixes=("", "_here"))
    if len(rows := shown(table, here=True)):
        names = ["random; " + machine_name(row) for row in rows.to_dict("records")]
        counts = ["owned_3", "halo_3", "copy_ms"]
        own = _counted(rows).assign(ownership=names).rename(columns={name: f"{name}_here" for name in counts})
        both = pd.concat([both, own], ignore_index=True)
    return pd.DataFrame(
        {
            **{key: both[key] for key in keys},
            "|S³|, paper": 1e3 * both.owned_3,
            "|S³|, here": both.owned_3_here,
            "c|S̃³|, paper": 1e3 * both.halo_3,
            "c|S̃³|, here": both.halo_3_here,
            "copy, measured in the paper (ms)": both.copy_ms,
            "copy, modelled from the paper's counts (ms)": both.copy_modelled_ms,
            "copy, modelled here (ms)": both.copy_ms_here,
            "F/B, measured in the paper (ms)": both.forward_backward_ms,
            "F/B, modelled by bandwidths (ms)": both.bandwidths_ms,
            "F/B, modelled with products (ms)": both.modelled_ms,
            "F/B, modelled with products here (ms)": both.products_ms,
        }
    )
