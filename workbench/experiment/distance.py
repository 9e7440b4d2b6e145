"""How far measured numbers are from the paper's: a comparison with ratios, worst deviations first."""

import math
import re
from typing import Any

import pandas as pd

RATIO = "here ÷ paper"
_PAPER = re.compile(r"\bpaper\b(?!')")


def with_ratios(comparison: pd.DataFrame) -> pd.DataFrame:
    """Add the ratio of here to the paper to every pair of numbers, and order the rows by the worst of their ratios.

    Pairs are columns whose names differ by "paper" and "here" (or nothing in its place), a paper's column and those of
    the same quantity here, measurements of the paper and what is modelled here, and rows whose first cells differ by
    " (paper)"; the paper's only row is beside all others, and its rows of "any" data set beside those of every one. Of
    "mean ± half width" the mean counts. Numbers that are not positive have no ratio. A comparison without pairs is
    returned as it is.

    Args:
        comparison: as `Experiment.compare` returns it.
    """
    if not comparison.columns.is_unique:
        return comparison
    named = any(name is not None for name in comparison.index.names)
    table = comparison.reset_index(drop=not named)
    table = table.rename(columns={name: str(name) for name in table if isinstance(name, int | float)})
    if not table.columns.is_unique:
        return comparison
    pairs = _column_pairs(table)
    return _with_columns(table, pairs) if pairs else _with_rows(table)


def ratio_range(compared: pd.DataFrame) -> tuple[float, float] | None:
    """The least and the largest ratio of here to the paper; None without any.

    Args:
        compared: as `with_ratios` returns it.
    """
    of_columns = [name for name in compared if isinstance(name, str) and name.startswith(RATIO)]
    if of_columns:
        found = compared[of_columns]
    else:
        texts: Any = compared.select_dtypes(exclude="number").astype(str)
        is_ratio: Any = texts.apply(lambda column: column.str.endswith(f" ({RATIO})")).any(axis=1)
        found = (
            compared.loc[is_ratio.to_numpy(dtype=bool)].select_dtypes("number").drop(columns=[*_KEYS], errors="ignore")
        )
    values: Any = found.to_numpy(dtype=float).ravel()
    known = values[values > 0]
    return (float(known.min()), float(known.max())) if len(known) else None


def ratio_words(compared: pd.DataFrame | None) -> str:
    """Format the least and the largest ratio of here to the paper; "" without any.

    Args:
        compared: as `with_ratios` returns it, or None.

    >>> ratio_words(with_ratios(pd.DataFrame({"s, paper": [1.0, 2.0], "s": [0.5, 3.0]})))
    '0.5 to 1.5'
    """
    found = None if compared is None else ratio_range(compared)
    if found is None:
        return ""
    low, high = (f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}" for ratio in found)
    return low if low == high else f"{low} to {high}"


def _numbers(column: Any) -> Any:
    """A column as numbers, the means of "mean ± half width"; None if it is text."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    texts = column.dropna().astype(str)
    if not len(texts) or not texts.str.fullmatch(r"[-+]?[\d.]+ ± [\d.]+").all():
        return None
    return pd.to_numeric(column.astype(str).str.partition(" ± ")[0], errors="coerce")


def _column_pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """(paper's column, column of here) of columns of numbers."""
    numeric = [name for name in table if isinstance(name, str) and _numbers(table[name]) is not None]
    pairs = []
    for name in (name for name in numeric if _PAPER.search(name)):
        bare = re.sub(r"^paper, |, paper\b|: paper\b|\bpaper | \(paper\)", "", name)
        twins = [
            twin for twin in (_PAPER.sub("here", name), bare, f"{bare}, here") if twin in numeric and twin != name
        ][:1]
        panels = [one for one in numeric if _measure(one) == _measure(name) and not _PAPER.search(one)]
        if name == "paper, measured":
            panels = [one for one in numeric if _measure(one) == "modelled"]
        pairs += [(name, twin) for twin in twins or (panels if ", " in name else [])]
    return pairs


def _measure(name: str) -> str:
    """The quantity of a column per panel: "memory" of "memory, ogbn-arxiv"."""
    return name.partition(", ")[0]


def _with_columns(table: pd.DataFrame, pairs: list[tuple[str, str]]) -> pd.DataFrame:
    found: Any = table.copy()
    ratios = {}
    for paper, here in pairs:
        ratio = _ratio(_numbers(found[here]), _numbers(found[paper]))
        named = RATIO if len(pairs) == 1 else f"{RATIO}, {_bare(here)}"
        ratios[named] = ratio
        found.insert(max(found.columns.get_loc(paper), found.columns.get_loc(here)) + 1, named, ratio)
    worst = pd.DataFrame({name: ratio.map(_distance) for name, ratio in ratios.items()}).max(axis=1)
    return found.iloc[worst.fillna(-1.0).to_numpy().argsort(kind="stable")[::-1]]


def _bare(name: str) -> str:
    return re.sub(r"^here, |, here\b|: here\b", "", name)


def _with_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows "x (paper)" beside rows "x", matched by all columns that are not numbers measured."""
    names = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    first = next((n for n in names if table[n].astype(str).str.fullmatch(_OF_PAPER).any()), None)
    if first is None:
        return table
    is_paper: Any = table[first].astype(str).str.fullmatch(_OF_PAPER)
    names = [name for name in names if table.loc[is_paper, name].notna().any()]
    keys = list(dict.fromkeys([*names, *(name for name in table if name in _KEYS)]))
    bare: Any = table[first].astype(str).str.replace(r" \((paper|reported)\)", "", regex=True)
    paper = table[is_paper].assign(**{first: bare})
    here = table[~is_paper].assign(**{first: table[first].astype(str).str.removeprefix("synthetic-")})
    values = [name for name in table if name not in keys and pd.api.types.is_numeric_dtype(table[name])]
    anywhere = len(paper) > 0 and bool(paper[first].eq("any").all()) and len(keys) > 1
    on = [key for key in keys if key != first] if anywhere else keys
    paper = paper.drop(columns=first) if anywhere else paper
    both: Any = here.merge(paper.drop_duplicates(on), on=on, suffixes=("", "_paper"))
    if not len(both) and len(paper) == 1:  # the paper's graph is not among those here
        both = here.merge(paper[values], how="cross", suffixes=("", "_paper"))
    rows = pd.DataFrame({name: _ratio(both[name], both[f"{name}_paper"]) for name in values if f"{name}_paper" in both})
    if not rows.notna().any(axis=None):
        return table
    rows = both[keys].assign(**{first: both[first] + f" ({RATIO})"}).join(rows)
    worst = rows[[name for name in values if name in rows]].map(_distance).max(axis=1)
    rows = rows.iloc[worst.fillna(-1.0).to_numpy().argsort(kind="stable")[::-1]]
    return pd.concat([rows.reindex(columns=table.columns).dropna(axis=0, how="all", subset=values), table])


_OF_PAPER = r".+ \((paper|reported)\)|paper"
_KEYS = {"num_ranks", "num_pes", "num_layers", "num_parts", "K", "kappa", "batch_size", "degree", "in-degree"}
_KEYS |= {"num_logical", "group_partitions", "num_partitions", "p", "c"}


def _ratio(here: Any, paper: Any) -> Any:
    return (here.astype(float) / paper.astype(float)).where((here > 0) & (paper > 0))


def _distance(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio > 0 and ratio != math.inf else math.nan
