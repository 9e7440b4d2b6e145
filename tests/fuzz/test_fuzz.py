"""Invalid arguments of public functions neither crash nor hang, but raise helpful errors."""

from collections import Counter

import pytest

from tests.fuzz.cases import CATEGORIES
from tests.fuzz.pool import Result, run_cases

QUICK, FULL = 8, 80
"""Cases per category."""


def failures(results: list[Result]) -> list[str]:
    return [
        f"{r.category} {r.seed} {r.outcome}: {r.detail}" for r in results if r.outcome not in ("returned", "raised")
    ]


def run(count: int) -> list[Result]:
    return list(run_cases((category, seed) for category in CATEGORIES for seed in range(count)))


def test_some_cases() -> None:
    results = run(QUICK)
    assert failures(results) == []
    assert set(Counter(r.outcome for r in results)) == {"returned", "raised"}


@pytest.mark.slow
def test_all_cases() -> None:
    results = run(FULL)
    assert len(results) >= 800
    assert failures(results) == []


@pytest.mark.slow
def test_crashes_and_hangs_are_detected(monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.pool.CASE_SECONDS", 2.0)
    cases = [("self-test", 0), ("self-test", 1), ("self-test", 2), ("self-test", 3), ("self-test", 0)]
    assert [r.outcome for r in run_cases(cases)] == ["returned", "crashed", "unhelpful", "hung", "returned"]


@pytest.mark.slow
def test_cases_depend_only_on_category_and_seed() -> None:
    """Outcomes do not depend on earlier cases in the same process, so running them in reverse changes nothing."""
    cases = [(category, 3) for category in CATEGORIES]
    outcomes = [(*r[:3], r.detail.partition(":")[0]) for r in run_cases([*cases, *reversed(cases)])]
    assert outcomes[: len(cases)] == outcomes[: len(cases) - 1 : -1]
