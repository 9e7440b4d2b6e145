"""What Figures 3 and 6 share: means of the work by batch size, and the theorems' claims about its differences."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals

CASE = ["dataset", "task", "sampler"]
ORDER = ("RW", "NS", "LABOR-0", "LABOR-*")
"""The paper's order of concavity, least first."""
EXHAUSTED = 0.1
"""Share of a graph's nodes: batches that read more of them overlap whatever the sampler."""


def work_means(table: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """Means over the permutations at every batch size, with the ends of their 95 % intervals in `…_low` and `…_high`.

    Args:
        table: rows of Figure 3's sweep.
        values: columns to average.
    """
    found: pd.DataFrame | None = None
    for value in values:
        mean = mean_intervals(table, value=value, by=[*CASE, "batch_size"]).drop(columns=["half_width", "runs"])
        mean = mean.rename(columns={"low": f"{value}_low", "high": f"{value}_high"})
        mean[f"{value}_low"] = mean[f"{value}_low"].clip(lower=mean[value] / 2)  # keeps logarithmic axes readable
        found = mean if found is None else found.merge(mean, on=[*CASE, "batch_size"])
    assert found is not None, "there are values"
    return found


def _runs(table: pd.DataFrame) -> Any:
    """The rows of every permutation of every case."""
    return table.groupby([*CASE, "permutation"], sort=False)


def never_rises(name: str, statement: str, table: pd.DataFrame, value: str) -> Finding:
    """Check that a value's expectation does not rise from any batch size to the next.

    Args:
        name: of the finding.
        statement: the part of the claim.
        table: rows of Figure 3's sweep.
        value: positive column.
    """
    rows = []
    for (*case, permutation), run in _runs(table):
        of_size = run.set_index("batch_size")[value].sort_index()
        steps = pairwise(of_size.items())
        rows += [(*case, permutation, f"{a:,} → {b:,}", y / x - 1) for (a, x), (b, y) in steps]
    changes = pd.DataFrame(rows, columns=[*CASE, "permutation", "batch_sizes", "change"])
    return decided_within(
        name, statement, changes, value="change", by=[*CASE, "batch_sizes"], most=0.0, margin=claims.MARGIN
    )


def concave(name: str, statement: str, table: pd.DataFrame, value: str) -> Finding:
    """Check that the slope of a value's expectation does not rise from any interval of batch sizes to the next.

    Args:
        name: of the finding.
        statement: the part of the claim.
        table: rows of Figure 3's sweep.
        value: positive column. Changes of its slope are relative to the value per item at the smallest size.
    """
    rows = []
    for (*case, permutation), run in _runs(table):
        of_size = run.set_index("batch_size")[value].sort_index()
        sizes, values = of_size.index.to_numpy(), of_size.to_numpy()
        slopes = (values[1:] - values[:-1]) / (sizes[1:] - sizes[:-1]) / (values[0] / sizes[0])
        bends = pairwise(zip(sizes[:-1], sizes[1:], slopes, strict=True))
        rows += [(*case, permutation, f"{a:,}, {b:,}, {c:,}", y - x) for (a, _, x), (b, c, y) in bends]
    changes = pd.DataFrame(rows, columns=[*CASE, "permutation", "batch_sizes", "bend"])
    return decided_within(
        name, statement, changes, value="bend", by=[*CASE, "batch_sizes"], most=0.0, margin=claims.MARGIN
    )


def savings(table: pd.DataFrame) -> pd.DataFrame:
    """The fraction of the work of single items that a batch of them saves, a measure of concavity: one row per case and
    permutation, at the batch size at which samplers are compared.

    0: the work grows in proportion to the batch, as on disjoint neighbourhoods.

    Args:
        table: rows of Figure 3's sweep.
    """
    rows = table.query("batch_size == compared_size")
    saved = 1 - rows.num_inputs / rows.batch_size / rows.alone_inputs
    return rows[[*CASE, "permutation"]].assign(saved=saved)


def more_concave(table: pd.DataFrame) -> list[Finding]:
    """Check the order of concavity: every sampler saves more than the one before it, in pairs of equal permutations.

    Args:
        table: rows of Figure 3's sweep.
    """
    by = ["dataset", "task", "permutation"]
    saved: Any = savings(table).pivot_table("saved", by, "sampler").reset_index()
    return [
        decided_within(
            f"{_short(more)}-more-concave-than-{_short(less)}",
            f"the work is more concave with {more} than with {less}: a batch saves more of the work of single items",
            saved.assign(excess=saved[less] - saved[more]),
            value="excess",
            by=["dataset", "task"],
            most=0.0,
        )
        for less, more in pairwise(name for name in ORDER if name in saved)
    ]


def more_concave_where_small(table: pd.DataFrame) -> list[Finding]:
    """Check the order of concavity where a batch does not exhaust the graph, as in the paper; none without such graphs.

    Args:
        table: rows of Figure 3's sweep, with `num_nodes`.
    """
    if "num_nodes" not in table:
        return []
    compared: Any = table[(table.batch_size == table.compared_size) & (table.task == "node")]
    reached = (compared.num_inputs / compared.num_nodes).groupby(compared.dataset).max()
    small = reached.index[reached <= EXHAUSTED]
    rows: Any = table[table.dataset.isin(small) & (table.task == "node")]
    return [
        replace(
            one,
            name=f"{one.name}-in-large-graphs",
            statement=f"it is for nodes where such a batch reads at most {EXHAUSTED:.0%} of the graph, as in the paper "
            f"({one.name.replace('-', ' ')})",
        )
        for one in (more_concave(rows) if len(rows) else ())
    ]


def fewer_inputs(table: pd.DataFrame) -> list[Finding]:
    """Check that LABOR-0 reads fewer nodes than NS, and LABOR-* fewer than LABOR-0, at every batch size.

    Args:
        table: rows of Figure 3's sweep.
    """
    by = ["dataset", "task", "batch_size", "permutation"]
    inputs: Any = table.pivot_table("num_inputs", by, "sampler").reset_index()
    return [
        decided_within(
            f"{_short(fewer)}-fewer-inputs-than-{_short(more)}",
            f"{fewer} reads fewer nodes than {more} at every batch size",
            inputs.assign(excess=inputs[fewer] / inputs[more] - 1),
            value="excess",
            by=["dataset", "task", "batch_size"],
            most=0.0,
        )
        for more, fewer in pairwise(name for name in ORDER[1:] if name in inputs)
    ]


def _short(sampler: str) -> str:
    return sampler.lower().replace("*", "star")
