"""Verdicts can be lost: every finding that holds, by a mutation of each column that it speaks of and by a NaN.

`mutations.json` lists the mutations; `python -m tests.experiments.mutations` finds them. Here they are replayed, the
same mutation for as many findings as it turns.
"""

import json
import warnings
from collections import Counter

import pytest

from tests.experiments.mutations import FILE, explore, findings, measured, mutations, problems, spoiled, tables, won

KNOWN = json.loads(FILE.read_text(encoding="utf-8"))
TABLES = {key: (experiment, table) for experiment, key, table in tables()}
SAMPLE = 3
"""One of so many figures is replayed in the default suite."""
each = pytest.mark.parametrize("key", TABLES)


def fewest(wanted):
    """Mutations that together cover all findings, greedily: (column, mutation) to the findings that it turns.

    Args:
        wanted: finding to the (column, mutation) pairs that turn it.
    """
    chosen, left = {}, set(wanted)
    while left:
        counts = Counter(pair for name in left for pair in wanted[name])
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        chosen[best] = {name for name in left if best in wanted[name]}
        left -= chosen[best]
    return chosen


def replay(key):
    experiment, table = TABLES[key]
    known = KNOWN[key]
    for kind in ("lost by", "NaN"):
        wanted = {name: [(c, how[kind]) for c, how in columns.items() if how[kind]] for name, columns in known.items()}
        for (column, how), names in fewest({name: pairs for name, pairs in wanted.items() if pairs}).items():
            after = findings(experiment, spoiled(table, column, how))
            kept = {name for name in names if after is not None and (name not in after or after[name][0])}
            assert not kept, f"{key}: {column} {how}; run python -m tests.experiments.mutations {experiment.name}"


def test_every_table_and_finding_that_holds_is_known_and_none_is_left_that_no_mutation_turns():
    assert set(KNOWN) == set(TABLES), "run python -m tests.experiments.mutations"
    left = [f"{key}: {line}" for key, known in KNOWN.items() for line in problems(known)]
    assert left == []


@pytest.mark.parametrize("key", [key for place, key in enumerate(TABLES) if place % SAMPLE == 1])
def test_a_sample_of_verdicts_is_lost(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay(key)


@pytest.mark.slow
@each
def test_all_verdicts_are_lost(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replay(key)
    experiment, table = TABLES[key]
    held = {finding.name for finding in experiment.check(table) if finding.held}
    assert set(KNOWN[key]) == held, f"run python -m tests.experiments.mutations {experiment.name}"


@pytest.mark.slow
@each
def test_every_mutation_of_every_column(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert problems(explore(*TABLES[key])) == []


@pytest.mark.slow
@each
def test_no_verdict_is_won_by_values_that_are_lost(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert won(*TABLES[key]) == []


STRICT = {
    "batchgnn/table5": {"metis-does-not-replace-it", "cache-fetches-more", "cache-fetches-fewer"},
    "batchgnn/tablea3": {"pays-off"},
    "beyond/under_limit": {"ahead-is-faster"},
    "beyond/from_disk": {"fewer-than-lru"},
    "cooperative/measured_step": {"faster"},
    "cooperative/scaling": {"gcn-slower"},
    "cooperative/table5": {"faster", "faster-by-stage", "faster-with-arithmetic"},
    "cooperative/table6": {"dependence-gains"},
    "data_placement/las_control": {"loads-faster"},
    "data_placement/las_variance": {"bias-rises"},
    "mariusgnn/node_classification": {"dgl-is-slower"},
    "mariusgnn/time_to_accuracy": {"sooner-than-dgl"},
    "performance/aggregation": {"attention-gains-most"},
    "performance/cooperation": {"less-work"},
    "performance/macrobatch": {"fewer-rows", "prepared-sooner", "shorter-epoch"},
}
"""Figures to findings that say "less" or "more" of a value beside another, or beside 1."""


@pytest.mark.parametrize("figure", STRICT)
def test_equal_values_are_neither_less_nor_more(figure):
    experiment, table = next(found for key, found in TABLES.items() if key.startswith(f"{figure} real"))
    columns = [c for c in measured(experiment, table) if table[c].dtype.kind in "iuf" and c != "factor"]
    after = findings(experiment, table.assign(**{c: table[c].where(table[c].isna(), 1.0) for c in columns}))
    assert after is not None
    assert {name: after[name][0] for name in STRICT[figure]} == dict.fromkeys(STRICT[figure], False)


def test_mutations_spoil_what_they_say():
    experiment, table = next((e, t) for key, (e, t) in TABLES.items() if key.startswith("batchgnn/table4"))
    assert {"rows", "epoch_seconds"} <= set(measured(experiment, table)) and "num_ranks" not in measured(
        experiment, table
    )
    rows = table.assign(rows=range(1, len(table) + 1))
    assert spoiled(rows, "rows", "reversed").rows.is_monotonic_decreasing
    assert spoiled(rows, "rows", "equal").rows.nunique() == 1
    assert spoiled(rows, "rows", "×10").rows.tolist() == [10 * value for value in rows.rows]
    assert sorted(spoiled(rows, "rows", "shuffled").rows) == rows.rows.tolist()
    one = spoiled(rows, "rows", "÷3 where fetching=macrobatch").rows
    assert (one != rows.rows).equals(rows.fetching == "macrobatch")
    assert spoiled(rows, "rows", "NaN at 2").rows.isna().sum() == 1
    assert {"reversed", "equal", "shuffled", "÷1.5", "×10 where fetching=macrobatch"} <= set(
        mutations(experiment, table, "rows")
    )


def test_macrobatches_ten_times_as_slow_do_not_hold():
    experiment, table = next((e, t) for key, (e, t) in TABLES.items() if key.startswith("batchgnn/table4"))
    slow = spoiled(table, "epoch_seconds", "×10 where fetching=macrobatch")
    after = findings(experiment, slow)
    assert after is not None
    assert not after["faster-epoch"][0] and not after["epoch-a-third"][0]
