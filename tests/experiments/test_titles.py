"""Titles of recorded figures: every number comes from the table, and the worst panel is among what they say."""

import re

import numpy as np
import pytest

from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.recorded import recorded

RIVALS = ["range", "random", "metis"]


def rows_of(name):
    (kept,) = recorded(load_experiment(name).sweep.name)
    return kept.table


def title_of(name, table):
    text = load_experiment(name).draw(table).layout.title.text.split("<span")[0].split("<sup")[0]
    return text.replace("<br>", " ").strip()


def ends(values, form):
    return f"{min(values):{form}} to {max(values):{form}}"


def to_best(rows, case, value):
    """REG's value in every case relative to the best of its rivals, row by row."""
    found = []
    for _, group in rows[rows.num_parts > 1].groupby(case):
        by_method = group.groupby("method")[value].median()
        if {"reg", *RIVALS} <= set(by_method.index):
            found.append(by_method["reg"] / min(by_method[rival] for rival in RIVALS))
    return found


def test_betty_fig16():
    rows = rows_of("betty/fig16")
    case = ["dataset", "fanouts", "share_of_nodes", "num_parts"]
    times, few = (to_best(of, case, "total_inputs") for of in (rows, rows[rows.share_of_nodes < 0.1]))
    assert max(times) > 1, "REG does not win everywhere, and the title says so"
    expected = f"REG reads {ends(times, '.2f')} times the input nodes of the best of range, random and METIS"
    expected += f"; where at most 10% of the nodes are seeds {ends(few, '.2f')}"
    assert title_of("betty/fig16", rows) == expected


def test_betty_fig11():
    rows = rows_of("betty/fig11").query("model == 'sage-mean' and fanouts == '[10, 25]'")
    times = to_best(rows, ["dataset", "num_parts"], "peak_bytes")
    assert max(times) > 1
    expected = f"REG needs {ends(times, '.2f')} times the peak memory of the best of range, random and METIS"
    assert title_of("betty/fig11", rows_of("betty/fig11")) == expected


def test_cooperative_fig5a():
    rows = rows_of("cooperative/fig5a").query("policy == 'lru'")
    times = []
    for _, group in rows.groupby(["dataset", "sampler", "batch_size"]):
        rates = group.groupby("kappa").miss_rate.mean()
        times.append(rates[max(rates.index)] / rates[min(rates.index)])
    found = title_of("cooperative/fig5a", rows_of("cooperative/fig5a"))
    least, most = re.findall(r"[\d.]+", found)[:2]
    assert float(least) == pytest.approx(min(times), abs=0.02) and float(most) == pytest.approx(max(times), abs=0.02)
    assert float(most) > 0.95, "on some graphs the misses do not fall, and the title says so"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        pytest.param(name, kept, id=f"{name}-{kept.file.stem}")
        for name in sorted({"betty/fig12", "betty/table6", "batchgnn/table5", "batchgnn/fig3", "mariusgnn/sampling"})
        for kept in recorded(load_experiment(name).sweep.name)
    ],
)
def test_numbers_of_titles_are_measured(name, kept):
    """Other measurements, another title: no number is written by hand."""
    table = kept.table
    configured = set(load_experiment(name).sweep.module.Config.model_fields)
    numbers = [c for c in table if table[c].dtype.kind == "f" and c.split(".")[0] not in configured]
    factors = np.random.default_rng(0).uniform(1.2, 3, (len(table), len(numbers)))
    spoiled = table.assign(**{c: table[c] * factors[:, place] for place, c in enumerate(numbers)})
    spoiled = spoiled.assign(
        **{c: (spoiled[c] * factors[:, 0]) for c in ("rows", "total_inputs", "num_edges") if c in spoiled}
    )
    assert title_of(name, spoiled) != title_of(name, table)
