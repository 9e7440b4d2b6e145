"""Claims of the figures of locality-aware sampling: hold on tables made to satisfy them, fail on spoiled ones."""

from itertools import product
from typing import Any

import pandas as pd
import pytest

from experiments.data_placement import las_movement
from experiments.data_placement.local_samplers import LOCAL
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

MACHINE = {"gamma": 9e11, "alpha": 3e11, "beta": 3.2e10}
FACTORS = (1.0, 4.0)
METHODS = ("NS", *LOCAL)


def movement_table() -> pd.DataFrame:
    """Seconds of 3 with random buffers, 2 with placed ones, and 2, 1 with local samplers; only one form is biased."""
    rows = []
    for run in range(3):
        plain = [(name, 1.0, 2.0, 0.0) for name in las_movement.REFERENCES]
        local = [(n, f, 3 - (f > 1) - 1.0, (n == "LAS, published") * (f > 1) * 0.2) for n, f in product(LOCAL, FACTORS)]
        for method, factor, seconds, bias in [*plain, *local, (las_movement.RANDOM, 1.0, 2.5, float("nan"))]:
            rows.append(
                {"method": method, "factor": factor, "run": run, "loading_seconds": seconds, "alone_seconds": 3.0}
                | {"device_rows": 5, "peer_rows": 2, "host_rows": 20 * seconds + run}
                | {"variance_ratio": factor + run / 100, "bias_ratio": bias + (run - 1) / 1000}
                | {"bias_sigma": 1.0 + 50 * bias, "draws": 400}
            )
    return pd.DataFrame(rows).assign(dataset="a", topology="2+2 GPUs", hops=0, **MACHINE)


def training_table() -> pd.DataFrame:
    """Losses that fall with the steps, those of local samplers by 0.1 lower than of plain ones, and equal F1."""
    rows = [
        {
            "method": m,
            "seed": s,
            "step": t,
            "loss": 2 - t / 50 - (m != "NS") * (0.1 + s / 1000) - (m == "LADIES + LAS") * (0.1 + s / 1000),
            "val_f1": 0.5 + t / 2000,
            "majority": 0.1,
        }
        for m, s, t in product((*METHODS, "LADIES"), range(4), (10, 20, 30, 40))
    ]
    table = pd.DataFrame(rows).assign(dataset="a", topology="2 GPUs", factor=4.0)
    table["val_f1"] += (table.method != "NS") * (table.seed - 1.5) / 10_000
    return table


def control_table() -> pd.DataFrame:
    states = [(1, 1.0, 0.2, False), (2, 2.0, 0.19, False), (3, 2.0, 0.19, True)]
    rows = [
        {"epoch": e, "factor": f, "settled": s, "loading_seconds": 3 / f, "epoch_seconds": 9 + 3 / f, "ratio": r}
        for e, f, r, s in states
    ]
    return pd.DataFrame(rows).assign(dataset="a", topology="2 GPUs", method="LAS", row_bytes=512, **MACHINE)


TABLES = {
    "las_movement": movement_table,
    "las_variance": movement_table,
    "las_training": training_table,
    "las_control": control_table,
}
SPOILED: list[tuple[str, str, str, Any, set[str]]] = [
    ("las_movement", "method == 'LAS' and factor == 4", "host_rows", 50, {"movement-falls"}),
    ("las_movement", "method == 'LAS' and factor == 4", "loading_seconds", 2.2, {"loads-faster"}),
    ("las_movement", "method == 'LADIES + LAS' and factor == 4", "loading_seconds", 0.5, {"speedup"}),
    ("las_movement", "method == 'LAS' and factor == 4 and run == 1", "bias_sigma", 4.1, {"unbiased"}),
    ("las_movement", "method == 'LAS, published' and run > 0", "bias_sigma", 3.9, {"published-biased"}),
    ("las_variance", "method == 'LAS' and factor == 4", "variance_ratio", 0.9, {"variance-rises"}),
    ("las_variance", "method == 'LAS, published' and factor == 4", "bias_ratio", -0.1, {"bias-rises"}),
    ("las_training", "method == 'LAS' and step == 10", "loss", 3.0, {"unbiased-no-slower"}),
    ("las_training", "method == 'LAS, published' and step == 40", "loss", 3.0, {"published-lower-at-the-end"}),
    ("las_training", "method == 'LADIES + LAS'", "val_f1", 0.4, {"accuracy"}),
    ("las_training", "method == 'LADIES'", "loss", 0.2, {"ladies-no-slower", "ladies-lower-at-the-end"}),
    ("las_control", "epoch == 3", "settled", False, {"settles"}),
    ("las_control", "epoch > 0", "factor", 1.0, {"doubles", "loads-faster"}),
    ("las_control", "epoch == 2", "factor", 3.0, {"doubles"}),
    ("las_control", "epoch == 2", "ratio", 0.2, {"doubles"}),
    ("las_control", "epoch == 1", "ratio", float("nan"), {"doubles"}),
    ("las_control", "epoch == 2", "factor", 9.0, {"bounded"}),
    ("las_control", "epoch == 3", "loading_seconds", 4.0, {"loads-faster"}),
]


@pytest.mark.parametrize("name", TABLES)
def test_claims_hold_on_tables_made_to_satisfy_them(name: str) -> None:
    exp, table = load_experiment(f"data_placement/{name}"), TABLES[name]()
    assert [finding.name for finding in directions(exp.name, table) if not finding.held] == []
    assert exp.draw(table).data and len(exp.compare(table))


@pytest.mark.parametrize(("name", "where", "column", "value", "failing"), SPOILED)
def test_claims_fail_on_spoiled_tables(name: str, where: str, column: str, value: Any, failing: set[str]) -> None:
    table = TABLES[name]()
    table[column] = table[column].astype(type(value))
    table.loc[table.query(where).index, column] = value
    findings = directions(f"data_placement/{name}", table)
    assert failing <= {finding.name for finding in findings if not finding.held}
