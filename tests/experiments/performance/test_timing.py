"""The stopwatch of the benchmarks, with a clock made by hand."""

import sys
from types import SimpleNamespace

import pytest

from experiments.performance import timing


def clocked(monkeypatch: pytest.MonkeyPatch, ours: list[float], theirs: list[float]):
    """Two sides whose calls take the given seconds, one after the other."""
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0], sleep=lambda _: None))

    def side(seconds: list[float]):
        remaining = iter(seconds)

        def call() -> None:
            now[0] += next(remaining)

        return call

    return side(ours), side(theirs)


def test_best_times_and_quartiles_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of each side to warm up, then before each timed call a short one just like it."""
    sides = clocked(monkeypatch, [9, 0.0625, 1, 0.0625, 2, 0.0625, 4], [9, 0.0625, 2, 0.0625, 6, 0.0625, 4])
    timed = timing.interleaved(*sides, repeats=3, warmup=1)
    assert timed == {
        "ours_seconds": 1,
        "theirs_seconds": 2,
        "ratio_best": 2,
        "ratio_median": 2,
        "ratio_low": 1.5,
        "ratio_high": 2.5,
    }


def test_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = timing.interleaved(*clocked(monkeypatch, [0.0625, 2], [0.0625, 3]), repeats=1, warmup=0)
    assert (timed["ratio_low"], timed["ratio_median"], timed["ratio_high"]) == (1.5, 1.5, 1.5)


def test_a_long_call_is_timed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = timing.interleaved(*clocked(monkeypatch, [2], [3]), repeats=1, warmup=0)
    assert (timed["ours_seconds"], timed["theirs_seconds"]) == (2, 3)


def test_no_round_is_refused() -> None:
    with pytest.raises(ValueError, match="repeats is 0; it must be at least 1"):
        timing.interleaved(lambda: None, lambda: None, repeats=0)


def test_a_missing_dgl_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs DGL .*; install gnn-workbench\[dgl\] on Python 3\.11"):
        timing.import_dgl()
