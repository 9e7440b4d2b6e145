"""MariusGNN, link prediction on FB15k-237: MRR in memory and from disk in the orders of COMET, BETA and our own."""

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pydantic import PositiveInt
from torch import Tensor

from experiments.mariusgnn.link_systems import BALANCED, BETA, COMET, DGL, MEMORY, SYSTEMS, InMemory, LinkConfig
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title

CASE = ["dataset", "encoder"]
NAMES = {"none": "DistMult", "sage-mean": "SAGE", "gat": "GAT, all neighbours", "gat-self": "GAT"}
LOOKS = (3, 8, 32)
"""Numbers of runs at which differences of MRR were looked at."""
PAPER_DATASET, ARTIFACT = "fb15k-237", "gat-self"
WITHIN, KEPT, NEAR = 0.015, 0.01, 0.02
"""Of MRR: how far below the paper's, below COMET's in the balanced order, and from disk below that in memory."""


class Config(LinkConfig):
    """Training with one system.

    Args:
        epochs: number of epochs; the test triples are ranked after each.
    """

    epochs: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row per epoch; none of DGL where it is not installed."""
    if config.system == DGL and not find_spec("dgl"):
        return
    kg = config.dataset.load()
    with TemporaryDirectory() as folder:
        system = SYSTEMS[config.system](config, kg, Path(folder) / "store")
        for epoch in range(config.epochs):
            start = time.perf_counter()
            losses = [float(loss) for loss in system.epoch(epoch)]
            seconds = time.perf_counter() - start
            found = system.metrics(kg.test)
            last = epoch == config.epochs - 1
            yield {
                "epoch": epoch + 1,
                "num_steps": len(losses),
                "epoch_seconds": seconds,
                "loss": sum(losses) / len(kg.train),
                "mrr": found.mrr,
                "hits_at_1": found.hits_at_1,
                "hits_at_3": found.hits_at_3,
                "hits_at_10": found.hits_at_10,
                **system.columns(),
                **(other_evaluations(system, kg.test, epoch) if last and config.in_fanout else {}),
            }


def other_evaluations(system: InMemory, triples: Tensor, epoch: int) -> dict[str, Any]:
    """MRR with other neighbours than those that training draws from, or with those in the buffer alone."""
    in_buffer = system.metrics_in_buffer(triples, epoch)
    return {
        "mrr_all_neighbours": system.metrics_of_all(triples).mrr,
        "mrr_in_buffer": None if in_buffer is None else in_buffer.mrr,
    }


def comparison(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of systems, without those of the control, whose encoder does not see the batch's own edges."""
    rows: Any = table[table.exclude == "none"] if "exclude" in table else table
    return rows


def last_epochs(table: pd.DataFrame) -> pd.DataFrame:
    """The rows after the last epoch of every run, with the paper's names of the models."""
    table = comparison(table)
    rows: Any = table[table.epoch == table.groupby([*CASE, "system", "seed"]).epoch.transform("max")]
    return rows.assign(model=rows.encoder.map(NAMES))


def differences(table: pd.DataFrame, minuend: str, subtrahend: str) -> pd.DataFrame:
    """Differences of MRR between two systems, by run."""
    run, rows = [*CASE, "seed"], last_epochs(table)
    one, other = (rows.loc[rows.system == name, [*run, "mrr"]] for name in (minuend, subtrahend))
    both: Any = one.merge(other, on=run, suffixes=("", "_other"))
    return both[run].assign(difference=both.mrr - both.mrr_other)


def learnt(rows: pd.DataFrame, by: list[str]) -> Finding:
    """Whether systems rank far better than at random, which gives an MRR of about ln n / n among n entities."""
    statement = f"every system has learnt to rank: its MRR is {claims.BEATEN:g} or more"
    found = claims.within("learnt", statement, rows, value="mrr", by=by, least=claims.BEATEN)
    return replace(found, decided=found.held, trained=found.held)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    apart, below = (
        100 * sign * differences(table, COMET, other).groupby(CASE).difference.mean()
        for other, sign in ((BETA, 1), (MEMORY, -1))
    )
    text = "COMET's MRR: {apart:.1f} points above BETA's, {below:.1f} below that in memory"
    return Title(text, apart=apart, below=below)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = last_epochs(table)
    found = mean_intervals(rows.assign(case=rows.model + " · " + rows.dataset), value="mrr", by=["case", "system"])
    runs = " to ".join(str(number) for number in sorted({found.runs.min(), found.runs.max()}))
    return interval_dots(
        found,
        x="case",
        y="mrr",
        group="system",
        title=title(table, reported).text,
        subtitle=f"filtered, mean and 95 % interval of {runs} runs, after {rows.epoch.max()} epochs",
    ).update_yaxes(tickformat=".3f", title_text="filtered MRR")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    comet_beta, comet_memory = differences(table, COMET, BETA), differences(table, COMET, MEMORY)
    balanced_comet = differences(table, BALANCED, COMET)
    distmult: Any = comet_memory[(comet_memory.encoder == "none") & (comet_memory.dataset == PAPER_DATASET)]
    near = f"in COMET's order MRR is at most {NEAR} below that in memory, means over the runs"
    above = "MRR is higher in COMET's order than in BETA's"
    higher = "as in the slides, DistMult's MRR is higher in COMET's order than in memory"
    kept = f"the balanced order loses at most {100 * KEPT:.0f} point of COMET's MRR"
    compared = [
        *_decided("comet-above-beta", above, comet_beta, least=0.0),
        *_of_means("near-memory", near, comet_memory, "difference", -NEAR),
        *_decided("distmult-above-memory", higher, distmult, least=0.0),
        *_decided("balanced-as-comet", kept, balanced_comet, least=-KEPT),
    ]
    found = claims.once_trained(compared, learnt(last_epochs(table), [*CASE, "system", "seed"]))
    below = beside_paper(table, reported, MEMORY)
    if len(below):
        statement = f"in memory, MRR is at most {WITHIN} below the paper's"
        found.append(decided_within("reaches-paper", statement, below, value="above", by=CASE, least=-WITHIN))
    statement = f"in COMET's order, MRR is at most {WITHIN} below the paper's, means over the runs"
    found += _of_means("comet-reaches-paper", statement, beside_paper(table, reported, COMET), "above", -WITHIN)
    return [*found, *_of_neighbours(table), _loads(table)]


def _of_means(name: str, statement: str, rows: pd.DataFrame, value: str, least: float) -> list[Finding]:
    """A finding on means over the runs; none without rows."""
    if not len(rows):
        return []
    means: Any = rows.groupby(CASE, sort=False)[[value]].mean(skipna=False)
    return [claims.within(name, statement, means.reset_index(), value=value, by=CASE, least=least)]


def _decided(
    name: str, statement: str, rows: pd.DataFrame, *, least: float = float("-inf"), most: float = float("inf")
) -> list[Finding]:
    """A finding on differences of MRR; none without rows."""
    options: dict[str, Any] = {"value": "difference", "by": CASE, "least": least, "most": most, "looks": LOOKS}
    return [decided_within(name, statement, rows, **options)] if len(rows) else []


def _of_neighbours(table: pd.DataFrame) -> list[Finding]:
    """The same trained models, evaluated with other neighbours than those that training draws from."""
    rows: Any = last_epochs(table)
    if "mrr_all_neighbours" not in rows:
        return []
    rows = rows[rows.encoder == ARTIFACT]
    memory, disk = rows[rows.system == MEMORY], rows[rows.system == COMET]
    return [
        *_decided(
            "mismatch-costs",
            "in memory, GAT trained on ten incoming neighbours ranks worse when all neighbours are read in evaluation",
            memory.assign(difference=memory.mrr_all_neighbours - memory.mrr),
            most=0.0,
        ),
        *_decided(
            "in-buffer-ranks-better",
            "from disk, the mean of an entity's outputs over the buffer's graphs, which training sees, ranks better "
            "than its output with neighbours drawn from the whole graph",
            disk.assign(difference=disk.mrr_in_buffer - disk.mrr),
            least=0.0,
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """MRR in COMET's order relative to that in memory and in BETA's order, on the paper's data set, means over runs."""
    rows: Any = last_epochs(table)
    lost: Any = rows[rows.dataset == PAPER_DATASET].groupby(["encoder", "system"]).mrr
    means: Any = lost.mean().mask(lost.apply(lambda mrr: mrr.isna().any())).unstack("system")
    models = [encoder for encoder in ("none", "sage-mean", ARTIFACT) if encoder in means.index]
    if not {MEMORY, COMET, BETA} <= set(means):
        return {}
    of_memory, over_beta = means[COMET] / means[MEMORY], means[COMET] / means[BETA]
    sizes = {f"{NAMES[encoder].lower()}-of-memory": of_memory[[encoder]] for encoder in models}
    return {**sizes, "comet-over-beta": over_beta[models]}


def _loads(table: pd.DataFrame) -> Finding:
    """Loads of the balanced order over COMET's."""
    ways: dict[str, Any] = {"among": "system", "between": (BALANCED, COMET), "by": CASE}
    ratio = claims.method_ratios(comparison(table), value="num_loads", **ways).reset_index(name="ratio")
    statement = "the balanced order loads as many partitions as COMET's"
    return claims.within("equal-loads", statement, ratio, value="ratio", by=CASE, least=1.0, most=1.0)


def beside_paper(table: pd.DataFrame, reported: pd.DataFrame, system: str) -> pd.DataFrame:
    """A system's MRR minus the paper's, by run, on its data set; both forms of GAT beside the paper's."""
    rows: Any = last_epochs(table)
    rows = rows[rows.system == system].assign(model=lambda found: found.model.str.removesuffix(", all neighbours"))
    paper: Any = reported[reported.system == system] if len(reported) else reported
    if not len(rows) or not len(paper):
        return pd.DataFrame()
    both = rows.merge(paper[["dataset", "model", "mrr"]], on=["dataset", "model"], suffixes=("", "_paper"))
    return both.assign(above=both.mrr - both.mrr_paper)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MRR by data set, model and system, after the last epoch; the paper's first."""
    rows: Any = last_epochs(table)
    by = ["dataset", "model", "system"]
    of_runs: Any = (
        rows.assign(bias=rows.get("bias"))
        .groupby(by)
        .agg(
            hits_at_10=("hits_at_10", "mean"),
            fastest_epoch_seconds=("epoch_seconds", "min"),  # what else the machine does only adds time
            bias=("bias", "mean"),
            num_loads=("num_loads", "mean"),
        )
    )
    here = mean_intervals(rows, value="mrr", by=by).merge(of_runs.reset_index(), on=by)
    paper: Any = reported.assign(dataset=reported.dataset + " (paper)")
    columns = [*by, "mrr", "half_width", *of_runs.columns]
    return pd.concat([paper.reindex(columns=columns), here.reindex(columns=columns)])
