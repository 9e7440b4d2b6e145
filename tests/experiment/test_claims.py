"""Shapes of claims on tables small enough to read."""

from typing import Any

import pandas as pd
import pytest

from workbench.experiment import claims
from workbench.experiment.figure_spec import StatedSize

TABLE = pd.DataFrame(
    [(d, k, m, v) for d, k, m, v in [
        ("x", 2, "reg", 10), ("x", 2, "metis", 12), ("x", 2, "range", 20),
        ("x", 4, "reg", 8), ("x", 4, "metis", 6), ("x", 4, "range", 16),
    ]],
    columns=["data", "k", "method", "bytes"],
)  # fmt: skip


def least(table=TABLE, rivals=("metis", "range"), **more):
    asked = {"value": "bytes", "among": "method", "winner": "reg", "rivals": list(rivals), "by": ["data", "k"]} | more
    return claims.least("name", "statement", table, **asked)


def test_least_needs_every_case():
    assert least(rivals=["range"]).held
    lost = least()
    assert not lost.held and lost.evidence.startswith("1 of 2 cases")
    assert "best data x, k 2: reg -16.7% against metis" in lost.evidence
    assert "worst data x, k 4: reg +33.3% against metis" in lost.evidence


def test_ties_hold_only_without_a_margin_and_absent_rivals_are_left_out():
    tied = TABLE.assign(bytes=1000)
    found = least(tied, rivals=["metis", "spectral"], margin=0.0)
    assert found.held and found.evidence.endswith("; no rows of spectral"), "the statement may speak of it"
    assert not least(tied, rivals=["metis", "spectral"]).held
    one_less = tied.assign(bytes=tied.bytes - (tied.method == "reg"))
    assert not least(one_less).held, "a saving of one byte is none"
    assert least(one_less.assign(bytes=one_less.bytes - 9 * (one_less.method == "reg"))).held
    assert least(TABLE.assign(bytes=0), margin=0.0).held and not least(TABLE.assign(bytes=0)).held


def test_least_of_negative_values():
    below = TABLE.assign(bytes=TABLE.method.map({"reg": -2.0, "metis": -1.0, "range": 3.0}))
    assert least(below).held and "reg -100.0% against metis" in least(below).evidence
    assert not least(below.assign(bytes=-below.bytes)).held


def test_a_case_without_a_rival_that_others_have_is_lost():
    lacking = TABLE.query("method != 'range' or k != 4").assign(
        bytes=lambda rows: rows.bytes - 5 * (rows.method == "reg")
    )
    assert least(lacking, rivals=["metis"]).held
    for check in (least, ratio):
        found = check(lacking) if check is least else ratio(lacking, median=1.0)
        assert not found.held
        assert "bytes of 1 row is missing, NaN or infinite, first data x, k 4, range" in found.evidence
    without = lacking.query("k != 4 or method == 'reg'")
    assert not least(without).held, "nor is one that has the winner alone"


def test_a_rival_without_any_value_does_not_vanish():
    lacking = TABLE.assign(bytes=TABLE.bytes.where(TABLE.method != "metis"))
    for found in (least(lacking), ratio(lacking, median=1.0)):
        assert not found.held and "bytes of 2 rows are missing, NaN or infinite" in found.evidence
    with pytest.raises(ValueError, match="nothing to compare"):
        least(lacking, rivals=["metis"])


def test_a_case_that_the_winner_failed_is_lost():
    failed = TABLE.query("method != 'reg' or k != 4")
    assert not least(failed, rivals=["range"]).held
    assert least(failed.query("k != 4"), rivals=["range"]).held


def test_repeated_rows_count_by_their_median():
    noisy = pd.concat([TABLE, TABLE.query("method == 'reg'"), TABLE.query("method == 'reg'").assign(bytes=1000)])
    assert least(noisy, rivals=["range"]).held


def test_least_without_the_winner_says_what_there_is():
    with pytest.raises(ValueError, match="table's method are metis, range"):
        least(TABLE.query("method != 'reg'"))
    with pytest.raises(ValueError, match="nothing to compare"):
        least(rivals=["spectral"])


def ratio(table=TABLE, rivals=("metis", "range"), **bounds):
    asked = {"value": "bytes", "among": "method", "winner": "reg", "rivals": list(rivals), "by": ["data", "k"]}
    return claims.ratio("name", "statement", table, **asked, **bounds)


def test_ratio_is_to_the_best_rival_of_each_case():
    best, worst = 10 / 12, 8 / 6
    assert ratio(median=(best + worst) / 2 + 0.01).held
    assert not ratio(median=(best + worst) / 2 - 0.01).held
    assert ratio(median=1.2, worst=1.34).held
    lost = ratio(median=1.2, worst=1.33)
    assert not lost.held
    assert lost.evidence == (
        "median 1.08 (wanted: 1.2), 1 of 2 cases within it; best 0.833, data x, k 2; worst 1.33 (wanted: 1.33), "
        "data x, k 4"
    )
    found = ratio(rivals=["range", "spectral"], median=0.5, worst=0.5)
    assert found.held and found.evidence.endswith("; no rows of spectral")


def test_a_ratio_of_nothing_to_nothing_is_1_and_to_something_infinite():
    none = TABLE.assign(bytes=0)
    assert ratio(none, median=1, worst=1).held and not ratio(none, median=0.99).held
    some = none.assign(bytes=(none.method == "reg").astype(int))
    assert ratio(some, median=2).evidence.startswith("median inf")


def test_a_case_that_the_winner_failed_counts():
    failed = TABLE.query("method != 'reg' or k != 4")
    assert not ratio(failed, median=2).held


def test_every_group_of_cases_has_the_median():
    two = pd.concat([TABLE, TABLE.assign(data="y", bytes=TABLE.bytes.where(TABLE.method != "reg", 30))])
    assert ratio(two, median=2.0).held
    assert ratio(two, median=4.0, groups=["data"]).held
    lost = ratio(two, median=2.0, groups=["data"])
    assert not lost.held and lost.evidence.startswith("median of data y 3.75 (wanted: 2)")
    with pytest.raises(ValueError, match="nothing to compare"):
        ratio(rivals=["spectral"], median=1)


def monotone(values, tolerance=0.0, falling=True, k=None, **change):
    table = pd.DataFrame({"data": "x", "k": k or range(1, len(values) + 1), "bytes": values})
    asked = {"value": "bytes", "along": "k", "by": ["data"], "falling": falling, "tolerance": tolerance} | change
    return claims.monotone("name", "statement", table, **asked)


def test_monotone():
    assert monotone([8, 4, 4, 1]).held
    rising = monotone([8, 4, 5, 1])
    assert not rising.held and "largest step back 25.0%" in rising.evidence
    assert "from 8 B (k 1) to 1 B (k 4)" in rising.evidence
    assert monotone([8, 4, 5, 1], tolerance=0.3).held
    assert monotone([1, 2, 2], falling=False).held
    assert not monotone([2, 1], falling=False).held


def test_monotone_of_negative_values():
    assert monotone([-3, -2, -1, 1], falling=False).held and not monotone([-3, -2, -1, 1]).held
    assert monotone([1, -1, -2, -3]).held and not monotone([1, -1, -2, -3], falling=False).held
    assert "largest step back 50.0%" in monotone([-3, -2, -3, -1], falling=False).evidence


def test_a_series_that_does_not_change_does_not_rise():
    for falling in (True, False):
        flat = monotone([8, 8, 8], falling=falling)
        assert not flat.held and "no change" in flat.evidence
        assert monotone([8, 8, 8], falling=falling, change=0.0).held
    assert not monotone([1000, 1001], falling=False).held and monotone([1000, 1010], falling=False).held
    assert monotone([0, 1], falling=False).held and not monotone([0, 0], falling=False).held


def test_points_are_told_by_their_names():
    table = pd.DataFrame(
        {"data": list("xxyy"), "place": [0, 1, 0, 1], "system": ["a", "b", "c", "d"], "bytes": [1, 2, 5, 3]}
    )
    found = claims.monotone("n", "s", table, value="bytes", along="place", named="system", by=["data"])
    assert "the worst, data y: from 5 B (c) to 3 B (d)" in found.evidence


def test_series_with_gaps_are_compared_across_them():
    table = pd.DataFrame({"data": ["x", "x", "y", "y", "y"], "k": [1, 4, 1, 2, 4], "bytes": [5, 9, 9, 8, 7]})
    found = claims.monotone("n", "s", table, value="bytes", along="k", by=["data"], falling=True)
    assert not found.held and found.evidence.startswith("1 of 2 series; the worst, data x")


def test_one_point_is_no_series():
    with pytest.raises(ValueError, match="at least two"):
        monotone([1])


def within(values, **bounds):
    table = pd.DataFrame({"data": list("xyz"[: len(values)]), "error": values})
    return claims.within("name", "statement", table, value="error", by=["data"], form=".0%", **bounds)


def test_within_needs_every_case_and_tells_the_ends():
    found = within([0.02, 0.07, 0.01], most=0.07)
    assert found.held
    assert found.evidence == "3 of 3 cases; median 2%; least data z: 1%; most data y: 7%"
    assert not within([0.02, 0.08], most=0.07).held
    assert within([0.5, 0.5]).evidence == "2 of 2 cases; median 50%; 50% in all"
    assert not within([0.02, 0.08], least=0.03, most=1).held


def test_within_may_need_a_share_of_the_cases():
    table = pd.DataFrame({"case": range(10), "error": [0.1] * 9 + [0.3]})
    for share, held in {0.9: True, 0.91: False}.items():
        found = claims.within("small", "errors are small", table, value="error", by=["case"], most=0.2, share=share)
        assert found.held == held and found.evidence.startswith("9 of 10 cases")


def test_within_leaves_out_what_has_no_value_but_not_everything():
    found = within([0.02, None, 0.01], most=0.07)
    assert found.evidence.startswith("2 of 2 cases") and not found.held
    with pytest.raises(ValueError, match="no row of the table has error"):
        within([None, None])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("row", range(6))
def test_what_is_not_a_number_is_neither_least_nor_within_nor_in_order(value, row):
    """Each claim holds for the table; with any one value undefined, of the winner or of a rival, it must not."""
    table = TABLE.assign(bytes=[1.0, 2, 3, 1, 2, 3], other=[2.0, 2, 2, 1, 1, 1], run=range(6))
    spoiled = table.copy()
    spoiled.loc[row, ["bytes", "other"]] = value
    bounds = {"value": "bytes", "by": ["data", "method", "k"]}
    for check in (
        least,
        lambda rows: ratio(rows, median=1, worst=1),
        lambda rows: claims.within("n", "s", rows, **bounds, least=0, most=3),
        lambda rows: claims.within("n", "s", rows, **bounds, least=0),
        lambda rows: claims.within("n", "s", rows, **bounds, most=3),
        lambda rows: claims.monotone("n", "s", rows, value="bytes", along="k", by=["data", "method"], change=0),
        lambda rows: claims.monotone("n", "s", rows, value="other", along="k", by=["data", "method"], falling=True),
    ):
        assert check(table).held
        found = check(spoiled)
        assert not found.held and "NaN or infinite, first" in found.evidence
    failed = spoiled.assign(status=["FAILED" if place == row else "FINISHED" for place in range(6)])
    assert claims.within("n", "s", failed.assign(bytes=failed.bytes.where(failed.run != row)), **bounds, most=3).held


def sized(measured, **size):
    asked: dict[str, Any] = {"statement": "s", "source": "Table 1"} | size
    return claims.stated_size("name", StatedSize(**asked), pd.Series(measured, dtype=float))


def test_an_effect_agrees_with_the_stated_one_within_a_fifth():
    for held, size, values in (
        (True, {"factor": 6}, [5.2, 7.0]),
        (False, {"factor": 6}, [5.1]),
        (False, {"factor": 6}, [7.1]),
        (False, {"factor": 1.2}, [1.05]),
        (True, {"factor": 1.2}, [1.17, 1.24]),
        (True, {"factor": 0.5}, [0.41, 0.58]),
        (False, {"factor": 0.5}, [0.39]),
        (True, {"share": 0.3}, [0.26, 0.35]),
        (False, {"share": 0.3}, [-0.3]),
        (True, {"factor": (2.5, 7.8)}, [2.5, 7.8]),
        (False, {"factor": (2.5, 7.8)}, [2.4]),
        (True, {"factor": 6, "tolerance": 0.5}, [4.4]),
    ):
        found = sized(values, **size)
        assert (found.held, found.sized, found.decided) == (held, True, True), (size, values)


def test_cases_count_each_or_by_one_number():
    values = [4.0, 9.0]
    assert not sized(values, factor=6).held
    assert sized(values, factor=6, over="geometric mean").held and sized(values, factor=6.5, over="mean").held
    assert sized(values, factor=9, over="largest").held and sized([1, 6, 90], factor=6, over="median").held
    found = sized(values, factor=6, over="geometric mean")
    assert found.evidence == "4 to 9, geometric mean 6 (stated: 6, within 20%: 5.17 to 7)"


def test_a_size_that_is_not_measured_is_undecided_and_one_with_nan_is_not_met():
    found = sized([], factor=6, timed=True)
    assert not found.held and not found.decided and found.verdict == "seconds not measured"
    for over in ("each", "mean", "geometric mean", "median", "largest"):
        assert not sized([6, float("nan")], factor=6, over=over).held
        assert not sized([6, float("inf")], factor=6, over=over).held
    for negative in ([-6.0, -6.0], [-4.0, -9.0], [0.0, 6.0]):
        assert not sized(negative, factor=6, over="geometric mean").held
    huge = sized([1e200, 1e200], factor=6, over="geometric mean")
    assert not huge.held and "geometric mean 1e+200" in huge.evidence


def test_one_size_is_stated():
    for size in ({}, {"factor": 2, "share": 0.1}, {"factor": (3, 2)}):
        with pytest.raises(ValueError, match="give"):
            sized([1], **size)


def test_ratios_of_two_methods():
    ratios = claims.method_ratios(TABLE, value="bytes", among="method", between=("metis", "reg"), by=["data", "k"])
    assert ratios.tolist() == [1.2, 0.75]
    spoiled = TABLE.assign(bytes=TABLE.bytes.astype(float).mask(TABLE.index == 1))
    ratios = claims.method_ratios(spoiled, value="bytes", among="method", between=("metis", "reg"), by=["data", "k"])
    assert ratios.isna().tolist() == [True, False]
    assert not len(claims.method_ratios(TABLE, value="bytes", among="method", between=("x", "reg"), by=["data", "k"]))


def curves(ends: dict[str, float], *, start: float = 0.2, majority: float = 0.3, steps: int = 8) -> pd.DataFrame:
    """Scores of two seeds per system, which rise to their end until half of the steps."""
    rows = [
        (system, seed, step, start + (end - start) * min(1.0, 2 * step / steps), majority)
        for system, end in ends.items()
        for seed in (0, 1)
        for step in range(1, steps + 1)
    ]
    return pd.DataFrame(rows, columns=["system", "seed", "step", "score", "majority"])


def learnt(table, **more):
    return claims.trained(table, value="score", along="step", by=["system"], **more)


def test_systems_have_learnt_if_all_runs_beat_the_majority_and_no_longer_rise():
    assert learnt(curves({"a": 0.8, "b": 0.38})).held
    low = learnt(curves({"a": 0.8, "b": 0.36}))  # a tenth of the way from 0.3 to 1 is 0.37
    assert low.verdict == "not trained" and low.symbol == "∅" and not low.decided
    assert low.evidence == "1 of 2 systems; 1 do not beat the majority, first b, seed 0: 0.3600 against 0.3000"
    table = curves({"a": 0.8, "b": 0.7})
    stuck = table.assign(score=table.score.mask((table.seed == 1) & (table.system == "a"), 0.3))
    assert "first a, seed 1: 0.3000" in learnt(stuck).evidence, "the mean over seeds is far above it"


def test_systems_that_still_rise_or_were_hardly_tested_have_not_learnt():
    table = curves({"a": 0.8, "b": 0.7})
    late = table.step > 6
    assert learnt(table.assign(score=table.score + 0.009 * late)).held
    rising = learnt(table.assign(score=table.score + 0.011 * (late & (table.system == "b"))))
    assert not rising.held and rising.evidence == "1 of 2 systems; 1 still rise, most b: +1.1 points"
    assert learnt(table.assign(score=table.score - 0.1 * late)).held, "one that falls is done"
    assert "fewer than 4 evaluations, first a" in learnt(table.query("step > 5")).evidence


@pytest.mark.parametrize("column", ["score", "majority"])
def test_a_score_that_is_lost_shows_nothing(column):
    table = curves({"a": 0.8})
    assert not learnt(table.assign(**{column: table[column].mask(table.index == len(table) - 1)})).held
    assert learnt(table.drop(columns="majority")).verdict == "not trained"
    failed = pd.DataFrame([{"system": "a", "seed": 2, "status": "FAILED"}])  # has a finding of its own
    assert learnt(pd.concat([table.assign(status="FINISHED"), failed])).held


def test_nothing_untrained_is_compared():
    table = curves({"a": 0.8})
    compared = [least(rivals=["range"]), least()]
    assert claims.once_trained(compared, learnt(table)) == [learnt(table), *compared]
    shown, *rest = claims.once_trained(compared, learnt(table.assign(majority=0.9)))
    assert {one.verdict for one in (shown, *rest)} == {"not trained"} and not any(one.counts for one in rest)


def test_a_winner_without_any_value_is_lost():
    lost = TABLE.assign(bytes=TABLE.bytes.where(TABLE.method != "reg"))
    for found in (least(lost), ratio(lost, median=1.0)):
        assert not found.held and "bytes of 2 rows is missing" in found.evidence.replace("rows are", "rows is")


def test_a_series_of_one_point_is_the_worst():
    table = pd.DataFrame({"data": ["x", "x", "y"], "k": [1, 2, 2], "bytes": [1.0, 2.0, 5.0]})
    found = claims.monotone("n", "s", table, value="bytes", along="k", by=["data"])
    assert not found.held and "the worst, data y" in found.evidence
