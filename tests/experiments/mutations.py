"""Spoils recorded tables, to see which verdicts they lose: `python -m tests.experiments.mutations [PAPER …]`.

A finding speaks of the measured columns that its evidence depends on. Every finding that holds must be lost by some
mutation of each of them, and by a NaN in a cell that it depends on. The command finds these mutations and writes them
to `mutations.json`, which the tests replay.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.all_figures import FIGURES, TABLES
from workbench.experiment.experiment import Experiment
from workbench.experiment.finding import Finding
from workbench.files import locked

FILE = Path(__file__).with_suffix(".json")
FACTORS, LAST_RESORT = (1.5, 3, 10), 1000
"""A column may be a small part of a sum, of which no smaller factor turns the claim."""
MOST_LEVELS, MOST_TRIED, CELLS = 16, 96, 2
NOT_MEASURED = {"status", "error", "point_seconds", "seed", "repetition", "run", "device"}
KEYS = {"epoch", "step", "num_pes", "num_partitions", "num_threads", "case_seed"}
"""Columns of rows that tell them apart."""
KEYS_OF = {
    "performance/": {"num_parts"},
    "batchgnn/fig3": {"macrobatch"},
    "betty/fig16": {"num_parts", "share_of_nodes"},
    "cooperative/density": {"permutation"},
    "data_placement/las_movement": {"factor"},
    "data_placement/las_variance": {"factor"},
    "data_placement/worked_example": {"gpu"},
}
"""Beginning of figures' names to further keys: elsewhere, these are measured."""
MISSING_BY_DESIGN = {
    ("betty/fig2", "peak_bytes"): "the estimate takes its place where the machine has too little memory to measure",
    ("betty/fig3", "peak_bytes"): "of a model that the machine has too little memory for there is only the estimate",
    ("betty/fig10", "cut_peak_bytes"): "missing where the machine has too little memory to run the parts",
    ("betty/fig10", "num_parts"): "missing where no number of parts fits, which all-fit says",
    ("betty/table2", "peak_bytes"): "the estimate takes its place where the machine has too little memory to measure",
    ("betty/table7", "peak_bytes"): "a step that would not fit in memory is not run",
}
"""Figure and column whose NaN has a meaning."""

Found = dict[str, tuple[bool, str]]


def measured(experiment: Experiment, table: Any) -> list[str]:
    """Columns that are not of the configuration; last those that are no numbers."""
    configured = set(experiment.sweep.module.Config.model_fields) | NOT_MEASURED | KEYS
    configured |= {key for name, keys in KEYS_OF.items() if experiment.name.startswith(name) for key in keys}
    found = [c for c in table if c.split(".")[0] not in configured and not table[c].isna().all()]
    return sorted(found, key=lambda column: table[column].dtype.kind not in "iuf")


def findings(experiment: Experiment, table: pd.DataFrame) -> Found | None:
    """Held and evidence by name; None if the check raises."""
    try:
        found: list[Finding] = experiment.check(table)
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError, AttributeError, AssertionError):
        return None
    return {one.name: (one.held, one.evidence) for one in found}


def spoiled(table: Any, column: str, how: str) -> pd.DataFrame:
    """A copy with one column spoiled.

    Args:
        table: recorded.
        column: measured.
        how: "equal", "reversed" (the largest value for the smallest), "shuffled", "×3", "÷3", …, or the latter two
            "where COLUMN=VALUE"; "+1"; "noise"; "NaN at ROW"; of what is no number, "flipped" or "missing".
    """
    values = table[column]
    if how.startswith("NaN at "):
        at = table.index == int(how.removeprefix("NaN at "))
        return table.assign(**{column: (values.astype(float) if values.dtype.kind in "iuf" else values).mask(at)})
    if how == "shuffled":
        return table.assign(**{column: values.to_numpy()[_random(column).permutation(len(values))]})
    if how == "missing":
        return table.assign(**{column: float("nan")})
    if how == "flipped":
        return table.assign(**{column: ~values})
    if values.dtype.kind not in "iuf":
        return table.assign(**{column: values.dropna().iloc[0] if how == "equal" else values.to_numpy()[::-1]})
    numbers = values.astype(float)
    if how == "equal":
        return table.assign(**{column: numbers.median() + 0 * numbers})
    if how == "reversed":
        low, high = numbers.min(), numbers.max()
        return table.assign(**{column: low * (high / numbers) if low > 0 else low + high - numbers})
    if how == "noise":
        return table.assign(**{column: numbers * (1 + _random(column).random(len(values))) + (not numbers.any())})
    if how.startswith("+"):
        return table.assign(**{column: numbers + float(how)})
    factor, _, where = how.partition(" where ")
    by = float(factor[1:]) if factor[0] == "×" else 1 / float(factor[1:])
    name, _, level = where.partition("=")
    rows = table[name].astype(str) == level if where else pd.Series(True, table.index)
    return table.assign(**{column: numbers.where(~rows, numbers * by)})


def mutations(experiment: Experiment, table: pd.DataFrame, column: str) -> Iterator[str]:
    """Ways to spoil a column, those that turn most verdicts first."""
    yield from ("reversed", "equal", "shuffled")
    if table[column].dtype.kind not in "iuf":
        yield from (["flipped"] if table[column].dtype.kind == "b" else ["missing"])
        return
    scales = [f"{sign}{factor:g}" for factor in (*reversed(FACTORS), LAST_RESORT) for sign in "×÷"]
    yield from (*scales, "+1", "+1000000")
    names = [name for name in table if name not in {*NOT_MEASURED, column} and table[name].dtype.kind != "f"]
    levels = {name: table[name].astype(str).unique() for name in names}
    yield from (
        f"{scale} where {name}={level}"
        for scale in scales[-2:] + scales[:-2]
        for name, found in levels.items()
        if 1 < len(found) <= MOST_LEVELS
        for level in found
    )


def _random(text: str) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16))


def lost(before: Found, after: Found | None, names: set[str]) -> set[str]:
    """Of some findings that held, those that hold no more; all, if the check refuses the table. One that vanished does
    not count: the others would make the claim hold."""
    return {name for name in names if after is None or (name in after and not after[name][0])}


def changed(before: Found, after: Found | None) -> set[str]:
    """Findings that hold, and of which a mutation changes verdict or evidence."""
    held = {name for name, (holds, _) in before.items() if holds}
    return held if after is None else {name for name in held if after.get(name) != before[name]}


def explore(experiment: Experiment, table: pd.DataFrame) -> dict[str, dict]:
    """For every finding that holds: by column that it speaks of, the mutation that it is lost by (None: no one), and
    the cell whose NaN it is lost by (None: it holds nevertheless; "": the cells tried change nothing)."""
    before = findings(experiment, table)
    assert before is not None
    found: dict[str, dict] = {name: {} for name, (holds, _) in before.items() if holds}
    for column in measured(experiment, table):
        if table[column].dtype.kind not in "iuf":  # the name of a method
            break
        noise = findings(experiment, spoiled(table, column, "noise"))
        waiting = changed(before, noise)
        if noise is None:  # a key of the check, not a value
            continue
        by_design = (experiment.name, column) in MISSING_BY_DESIGN
        cells = {} if by_design else nan_cells(experiment, table, column, before, waiting)
        for name in waiting:
            found[name][column] = {"lost by": None, "NaN": cells.get(name, "")}
        for how in islice(mutations(experiment, table, column), MOST_TRIED):
            if not waiting:
                break
            gone = lost(before, findings(experiment, spoiled(table, column, how)), waiting)
            for name in gone:
                found[name][column]["lost by"] = how
            waiting -= gone
    blind = {name for name, columns in found.items() if not columns}  # their evidence is rounded
    for column in measured(experiment, table) if blind else ():
        for how in (*islice(mutations(experiment, table, column), 3 + 2 * len(FACTORS)), f"NaN at {table.index[0]}"):
            for name in lost(before, findings(experiment, spoiled(table, column, how)), blind):
                found[name][column] = {"lost by": how, "NaN": ""}
                blind.discard(name)
    return found


def nan_cells(experiment: Experiment, table: Any, column: str, before: Found, names: set[str]) -> dict[str, str | None]:
    """By finding a cell whose NaN it is lost by; None if it holds in spite of a NaN in a cell that it depends on."""
    told: dict[str, str | None] = {}
    rows = table.index[table[column].notna()]
    numeric = table[column].dtype.kind in "iuf"
    for row in _random(column).permutation(rows)[:CELLS] if names and numeric else []:
        how = f"NaN at {row}"
        after = findings(experiment, spoiled(table, column, how))
        depends = changed(before, after) & names
        gone = lost(before, after, depends)
        told |= {name: how for name in gone if told.get(name, "") is not None}
        told |= dict.fromkeys(depends - gone)
    return told


def won(experiment: Experiment, table: Any) -> list[str]:
    """Findings that do not hold, and would if the values of one method, or of another part of the grid, were lost."""
    before = findings(experiment, table)
    assert before is not None
    failed = {name for name, (holds, _) in before.items() if not holds}
    names = [c for c in table if c not in NOT_MEASURED and table[c].dtype.kind not in "iufb"]
    levels = [(name, level) for name in names for level in table[name].dropna().unique()]
    levels = [(name, level) for name, level in levels if 1 < table[name].nunique() <= MOST_LEVELS]
    told = []
    for column in measured(experiment, table) if failed else []:
        numeric = table[column].dtype.kind in "iuf" and (experiment.name, column) not in MISSING_BY_DESIGN
        noise = findings(experiment, spoiled(table, column, "noise")) if numeric else None
        depends = {name for name in failed if noise is not None and noise.get(name) != before[name]}
        for part, level in levels if depends else []:
            without = table.assign(**{column: table[column].astype(float).mask(table[part] == level)})
            after = findings(experiment, without) or {}
            told += [f"{n}: {column} of {part}={level}" for n in depends & set(after) if after[n][0]]
    return told


def problems(found: dict[str, dict]) -> list[str]:
    """Findings that can't be lost, by a mutation of a column that they speak of or by a NaN."""
    told = [f"{name}: speaks of no measured column" for name, columns in found.items() if not columns]
    for name, columns in found.items():
        told += [f"{name}: no mutation of {c} turns it" for c, how in columns.items() if how["lost by"] is None]
        told += [f"{name}: held with a NaN in {c}" for c, how in columns.items() if how["NaN"] is None]
    return told


def tables(papers: tuple[str, ...] = ()) -> Iterator[tuple[Experiment, str, pd.DataFrame]]:
    """All recorded tables with each figure that shows them: experiment, key in the file, rows."""
    for name, kept in TABLES:
        if not papers or name.startswith(papers):
            yield FIGURES[name], f"{name} {kept.file.stem}", kept.table


def main() -> None:
    """Finds the mutations of all figures, or of the papers or figures given, and writes them."""
    warnings.simplefilter("ignore")
    for experiment, key, table in tables(tuple(sys.argv[1:])):
        found = explore(experiment, table)
        for line in problems(found):
            print(f"{key}: {line}", flush=True)  # noqa: T201
        with locked(FILE.with_suffix(".lock")):  # figures are explored side by side
            kept = (json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}) | {key: found}
            text = json.dumps({k: kept[k] for k in sorted(kept)}, indent=0, ensure_ascii=False)
            FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
