"""Summary of estimates beside measurements."""

from typing import Any

import pandas as pd


def error_summary(name: str, table: pd.DataFrame, *, error: str, by: str) -> pd.DataFrame:
    """Relative errors in a few numbers, over all cases and by kind.

    Args:
        name: description of all cases.
        table: rows; those without an error do not count.
        error: column of what was estimated over what was measured, less 1.
        by: column of kinds.

    Returns:
        Columns `measured` (the description), `cases`, `exact` (cases with no error), `median` and `largest` (of the
        absolute errors), `from` and `to` (of the signed errors).
    """
    known = table.dropna(subset=[error])
    kinds = {f"{name}: {kind}": rows for kind, rows in known.groupby(by)}
    return pd.DataFrame([_summary(group, rows[error]) for group, rows in {name: known, **kinds}.items() if len(rows)])


def _summary(name: str, errors: Any) -> dict[str, Any]:
    off = {"median": errors.abs().median(), "largest": errors.abs().max()}
    return {"measured": name, "cases": len(errors), "exact": int((errors == 0).sum()), **off} | {
        "from": errors.min(),
        "to": errors.max(),
    }
