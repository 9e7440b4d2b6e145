"""Cooperative Minibatching, Table 5: speedup of cooperative over independent minibatching, modelled. A view of
Table 4."""

from typing import Any

import pandas as pd

from experiments.cooperative.table4 import CASE, shown, speedups
from workbench.experiment import claims
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

KEYS = ["dataset", "sampler", "num_pes"]
MODELS = {
    "speedup": "bytes alone",
    "speedup_with_arithmetic": "bytes and products",
    "speedup_by_stage": "stage by stage, weighted by the paper's independent times",
}
"""Column of a modelled speedup to what it counts."""
SHORT = {"speedup": "bytes", "speedup_with_arithmetic": "bytes and products", "speedup_by_stage": "by stage"}
_SUFFIXES = {"speedup": "", "speedup_with_arithmetic": "-with-arithmetic", "speedup_by_stage": "-by-stage"}


def modelled(table: pd.DataFrame) -> pd.DataFrame:
    """The modelled speedups of every case."""
    return speedups(table).merge(_by_stage(shown(table)), on=[*CASE, "num_pes"])


def _by_stage(rows: pd.DataFrame) -> pd.DataFrame:
    """Speedups if independent stages took as long as in Table 4, and cooperation sped each up as modelled: the stages'
    shares are the paper's, so that costs which the model does not know (launches, hashing) count as they did there."""
    stages = {
        "sampling_ms": rows.sampling_seconds,
        "last_ms": rows.kappa_seconds.astype(float).where(rows.sampler != "NS", rows.cache_seconds),
        "forward_backward_ms": rows.forward_backward_seconds + rows.arithmetic_seconds,
    }
    seconds: Any = rows[[*CASE, "num_pes", "approach"]].assign(**stages)
    seconds = seconds.pivot_table([*stages], [*CASE, "num_pes"], "approach", sort=False)
    paper: Any = load_experiment("cooperative/table4").reported.query("approach == 'independent'").set_index(CASE)
    paper = paper.assign(last_ms=paper.kappa_ms.fillna(paper.cache_ms))
    found = pd.DataFrame({name: seconds[name]["cooperative"] / seconds[name]["independent"] for name in stages})
    predicted = found.reset_index("num_pes", drop=True).mul(paper[[*stages]]).sum(axis=1, skipna=False)
    return found.reset_index()[[*CASE, "num_pes"]].join(
        (paper.total_ms / predicted).to_frame("speedup_by_stage"), on=CASE
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    here: Any = modelled(table).set_index(KEYS).speedup_by_stage
    return Title(
        "Modelled speedups by stage of {here:.2f}; {paper:.2f} in the paper", here=here, paper=reported.speedup
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    names = {"speedup": "modelled_speedup", "speedup_by_stage": "modelled_speedup_by_stage"}
    rows = modelled(table).rename(columns=names)
    return lines(
        rows,
        x="num_pes",
        log_x=True,
        y=[*names.values()],
        group="sampler",
        facet="dataset",
        reported=reported.assign(**dict.fromkeys(names.values(), reported.speedup)),
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = modelled(table)
    faster = [
        claims.within(
            f"faster{suffix}",
            f"in the model, cooperative minibatching is faster in all cases, {MODELS[column]}",
            rows,
            value=column,
            by=KEYS,
            least=claims.MORE,
        )
        for column, suffix in _SUFFIXES.items()
    ]
    grows = [
        claims.monotone(
            f"grows{suffix}",
            f"the modelled speedup grows with the number of GPUs, {MODELS[column]}",
            rows,
            value=column,
            along="num_pes",
            by=["dataset", "sampler"],
        )
        for column, suffix in _SUFFIXES.items()
    ]
    return [*faster, *grows]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Speedups by system: the paper's, from the totals of Table 4, and the modelled ones, with their deviations."""
    both = reported.rename(columns={"speedup": "paper"}).merge(modelled(table), on=KEYS)
    columns: dict[str, Any] = {key: both[key] for key in KEYS} | {"paper, measured": both.paper}
    for column, what in SHORT.items():
        columns[f"modelled, {what}"] = both[column]
        columns[f"deviation, {what}"] = (both[column] / both.paper - 1).map("{:+.0%}".format)
    return pd.DataFrame(columns)
