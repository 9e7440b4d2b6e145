"""Titles of figures: every number is measured, in every case of the table, so that the weakest panel is among them.

A figure whose title has numbers defines `title(table, reported)`. Its text is what the figure shows, its template has
no number of its own, its series have a value for every panel, and spoiled rows of any case change it. Three titles are
computed anew from the table.
"""

import re
import string
import warnings
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests import all_figures
from tests.experiments.mutations import measured
from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.recorded import recorded
from workbench.experiment.title import Title
from workbench.tracking.file_store import FileStore

RIVALS = ["range", "random", "metis"]
NAMES = re.compile(r"LABOR-0|F1|Equations 2 to 5|1 by 1|at most 12 rows|Table 1 costs on 4 A100|Algorithm 1")
"""Names, and parts of settings that no configuration varies."""

PANELS = ("dataset", "graph", "topology", "sampler", "model")
LEFT_OUT = {
    ("betty/fig2", "model"): "an axis of a panel, whose settings are the cases",
    ("betty/fig3", "model"): "the title speaks of the mean aggregator",
    ("betty/fig10", "model"): "an axis of a panel, whose settings are the cases",
    ("betty/fig11", "model"): "the figure shows the mean aggregator",
    ("betty/fig14", "model"): "the figure shows the mean aggregator",
    ("betty/fig15", "model"): "the figure shows the mean aggregator",
    ("betty/fig16", "model"): "the figure shows the mean aggregator",
    ("betty/table7", "model"): "the level `layers` is the model, with DGL's LSTM apart",
    ("cooperative/fig9", "sampler"): "the claim is on means over the samplers",
    ("cooperative/table6", "sampler"): "the figure shows LABOR-0",
    ("mariusgnn/sampling", "sampler"): "the title compares two samplers",
}
"""Columns of whose values the title has one, or compares two, and why."""

TABLES = {f"{name} {kept.file.stem}": (name, kept.table) for name, kept in all_figures.TABLES}
"""All recorded tables with each figure that shows them."""
each = pytest.mark.parametrize("key", TABLES)
KEYS = {
    "batchgnn/fig3": {"num_batches", "macrobatch"},
    "betty/fig16": {"share_of_nodes"},
    "cooperative/fig3": {"batch_size", "compared_size"},
    "cooperative/fig6": {"batch_size", "compared_size"},
    "cooperative/density": {"share", "batch_size"},
    "data_placement/brute_force": {"quantile"},
}
"""Columns that no configuration has, and that tell the rows of a case apart."""
TRIES = 40


def drawn(name, table):
    """The title of the figure, on one line, without the subtitle."""
    text = load_experiment(name).draw(table).layout.title.text or ""
    return " ".join(re.split("<br><(?:span|sup)", text)[0].replace("<br>", " ").split())


def rows_of(name):
    (kept,) = recorded(load_experiment(name).sweep.name)
    return kept.table


def digits(text):
    return re.search(r"\d", NAMES.sub("", text))


def template_problems(title):
    """Numbers that are written by hand."""
    literal = "".join(text for text, *_ in string.Formatter().parse(title.template))
    return [f"{literal!r} has a number that is no field"] if digits(literal) else []


def constant_problems(experiment, table, title):
    """Numbers that are neither of the table, a ratio of its columns' ends, nor a constant of the figure's module."""
    modules = (experiment.module, experiment.sweep.module)
    known = {float(v) for module in modules for v in vars(module).values() if isinstance(v, int | float)}
    columns = [table[column].dropna() for column in table if table[column].dtype.kind in "iuf"]
    known |= {float(value) for column in columns for value in column.unique()}
    ends = [end for column in columns for end in (column.min(), column.max()) if end]
    known |= {one / other for one, other in product(ends, ends)}
    constants = {field: value for field, value in title.numbers.items() if field not in title.series}
    return [f"{field} = {value} is not of the table" for field, value in constants.items() if float(value) not in known]


def panel_problems(name, table, title):
    """Panels that no series of the title has, and values that are missing."""
    found = [f"{field} is NaN in a case" for field, values in title.series.items() if values.isna().any()]
    here = {field: values for field, values in title.series.items() if field != "paper"}  # the paper's own numbers
    found += [f"{field} does not name its cases" for field, values in here.items() if None in values.index.names]
    levels: dict[str, set] = {}
    for values in here.values():
        for level in values.index.names:
            levels.setdefault(level, set()).update(values.index.get_level_values(level))
    for column in PANELS if here else ():
        number = table[column].nunique() if column in table else 0
        if number < 2 or (name, column) in LEFT_OUT or len(levels.get(column, ())) >= number:
            continue
        named = [level for level in levels if level in table and level != column]
        if (
            column not in levels and named and table.groupby(named)[column].nunique().max() == 1
        ):  # the levels determine it
            continue
        if all(any(str(value) in panel for panel in levels.get("panel", ())) for value in table[column].unique()):
            continue
        found.append(f"no series has all of {column}: {sorted(table[column].unique())}")
    return found


def rows_of_case(table, names, at):
    """Rows that a case is of, by the levels of its index that are columns; a panel's name begins with its data set."""
    kept = pd.Series(True, table.index)
    for level, value in zip(names, at if isinstance(at, tuple) else (at,), strict=True):
        if level == "panel" and "panel" not in table:
            kept &= table.dataset.map(lambda name, panel=value: panel.startswith(name))
        elif level in table:
            kept &= table[level].map(_plain) == _plain(value)
    return kept


def _plain(value):
    text = f"{value:g}" if isinstance(value, float | np.floating) else str(value)
    return re.sub(r"^(synthetic-|ogbn-)+", "", text)


def with_spoiled(experiment, table, kept, seed):
    """A copy with random measurements in some rows: scaled by up to 30 either way, one factor for all rows if the seed
    is odd; if it is even, scaled from the column's largest value, a factor per row; and truths drawn anew."""
    random = np.random.default_rng(seed)
    columns = {}
    for column in set(measured(experiment, table)) - KEYS.get(experiment.name, set()):
        values, odd = table[column], seed % 2
        if values.dtype.kind in "iuf":
            base = values if odd else values.where(values.isna(), values.abs().max() or 1)
            scaled = base * 30 ** random.uniform(-1, 1, 1 if odd else len(table))
            columns[column] = values.astype(float).where(~kept, scaled)
        elif set(values.dropna().astype(str)) <= {"True", "False"}:
            columns[column] = values.where(~kept, random.random(len(table)) < 0.5)
    return table.assign(**columns)


def text_of(experiment, table):
    """The title's text; "" if the figure refuses the table."""
    try:
        return experiment.title(table).text
    except (ValueError, KeyError, IndexError, ZeroDivisionError, OverflowError):
        return ""


def untold_cases(name, table, *, only_ends):
    """Cases that may have any values, and the title says the same."""
    experiment, found = load_experiment(name), []
    title: Any = experiment.title(table)
    for field, values in title.series.items():
        if field == "paper":
            continue
        ends = {0, len(values) - 1, int(values.to_numpy().argmin()), int(values.to_numpy().argmax())}
        for place in sorted(ends) if only_ends else range(len(values)):
            kept = rows_of_case(table, values.index.names, values.index[place])
            assert kept.any(), f"{name}: no row of the table is of {values.index[place]}"
            spoiled = (with_spoiled(experiment, table, kept, seed) for seed in range(TRIES))
            if all(text_of(experiment, one) == title.text for one in spoiled):
                found.append(f"{field} {values.index[place]}")
    return found


def problems(name, table):
    experiment = load_experiment(name)
    title, shown = experiment.title(table), drawn(name, table)
    if title is None:
        return [f"{shown!r} has a number; define title(table, reported)"] if digits(shown) else []
    if not title.text:  # no case
        return []
    apart = [f"the figure shows {shown!r}, its title is {title.text!r}"] if shown != title.text else []
    found = [*apart, *template_problems(title), *constant_problems(experiment, table, title)]
    return [*found, *panel_problems(name, table, title)]


@each
def test_every_number_of_a_title_is_a_field_that_all_panels_fill(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert problems(*TABLES[key]) == []


TITLED = [key for key, (name, _) in TABLES.items() if hasattr(load_experiment(name).module, "title")]
"""Tables of figures whose title has numbers."""


@pytest.mark.parametrize("key", TITLED[1::8])
def test_a_sample_of_titles_says_what_the_weakest_case_says(key):
    _spoil(key, only_ends=True)


@pytest.mark.slow
@pytest.mark.parametrize("key", TITLED)
def test_any_case_can_change_the_title(key):
    _spoil(key, only_ends=False)


def _spoil(key, *, only_ends):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert untold_cases(*TABLES[key], only_ends=only_ends) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in experiment_names() if not name.startswith("gpu_check/")])
def test_titles_at_size_smoke(name, tmp_path):
    experiment = load_experiment(name)
    if "smoke" in experiment.sweep.spec.sizes:
        table = experiment.run(size="smoke", store=FileStore(tmp_path / "runs.jsonl"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert problems(name, table) == []


def test_a_number_by_hand_or_a_panel_left_out_is_found():
    name = "cooperative/fig5a"
    experiment, table = load_experiment(name), rows_of(name)
    title: Any = experiment.title(table)
    assert template_problems(Title("misses fall 3 times")) and not template_problems(title)
    assert constant_problems(experiment, table, Title("{k}", k=12345.678))
    fewer = {field: values.iloc[:3] for field, values in title.series.items()}
    assert panel_problems(name, table, Title(title.template, **fewer)), "the panel with the least fall is left out"
    nothing = pd.Series([0.5, float("nan")], index=pd.Index(["a", "b"], name="dataset"))
    assert panel_problems(name, table, Title("{x:.2f}", x=nothing)) and "nan" in Title("{x:.2f}", x=nothing).text


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
    assert drawn("betty/fig16", rows) == expected


def test_betty_fig11():
    rows = rows_of("betty/fig11").query("model == 'sage-mean' and fanouts == '[10, 25]'")
    times = to_best(rows, ["dataset", "num_parts"], "peak_bytes")
    assert max(times) > 1
    expected = f"REG needs {ends(times, '.2f')} times the peak memory of the best of range, random and METIS"
    assert drawn("betty/fig11", rows_of("betty/fig11")) == expected


def test_cooperative_fig5a():
    rows = rows_of("cooperative/fig5a").query("policy == 'lru'")
    times = []
    for _, group in rows.groupby(["dataset", "sampler", "batch_size"]):
        rates = group.groupby("kappa").miss_rate.mean()
        times.append(rates[max(rates.index)] / rates[min(rates.index)])
    found = drawn("cooperative/fig5a", rows_of("cooperative/fig5a"))
    least, most = re.findall(r"[\d.]+", found)[:2]
    assert float(least) == pytest.approx(min(times), abs=0.02) and float(most) == pytest.approx(max(times), abs=0.02)
    assert float(most) > 0.95, "on some graphs the misses do not fall, and the title says so"
