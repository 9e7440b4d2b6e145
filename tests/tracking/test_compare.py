"""Comparison of runs."""

from dataclasses import replace

import pytest

from tests.tracking.points import ended, make_point
from workbench.tracking.compare import compare
from workbench.tracking.record import FAILED, FINISHED
from workbench.tracking.store import Store


def test_differing_settings_are_columns(store: Store) -> None:
    for number, method in enumerate(["reg", "metis"]):
        store.add(ended(str(number), {"peak_bytes": 10 + number}, method=method, started_at=1.0 + number))
    table = compare(store)
    assert list(table.columns) == ["method", "peak_bytes", "status", "seconds", "started", "run_id"]
    assert table[["method", "peak_bytes", "seconds"]].values.tolist() == [["reg", 10, 1.5], ["metis", 11, 1.5]]
    constant = table.attrs["constant"]
    assert (constant["dataset"], constant["num_parts"], constant["fanouts"]) == ("cora", "8", "[10, 25]")
    assert (constant["sweep"], constant["machine"]) == ("betty/fig11", "a CPU") and "method" not in constant


def test_numbers_stay_numbers_and_missing_settings_differ(store: Store) -> None:
    store.add(ended("a", {"x": 1}, num_parts=2, fanouts=[5], started_at=1.0))
    store.add(ended("b", {"x": 2}, num_parts=16, extra="e", started_at=2.0))
    table = compare(store)
    assert table["num_parts"].tolist() == [2, 16] and table["fanouts"].tolist() == ["[5]", "[10, 25]"]
    assert table["extra"].isna().tolist() == [True, False]


def test_only_the_newest_run_of_a_key_is_used(store: Store) -> None:
    for started_at in (20.0, 10.0):
        store.add(ended("a", {"x": started_at}, started_at=started_at))
    assert compare(store)["x"].tolist() == [20.0]


def test_runs_of_other_sizes_and_devices_are_not_hidden(store: Store) -> None:
    for number, (size, device) in enumerate([("smoke", "a CPU"), ("real", "a CPU"), ("real", "a GPU")]):
        run = ended("a", {"x": number}, started_at=float(number))
        point = replace(run.point, size=size, tags={**run.point.tags, "device": device})
        store.add(replace(run, point=point))
    assert sorted(compare(store)["x"]) == [0, 1, 2]


def test_a_curve_has_a_line_per_row(store: Store) -> None:
    store.add(ended("a", {"epoch": 0, "loss": 2.0}, {"epoch": 1, "loss": 1.0}))
    assert compare(store)[["epoch", "loss"]].values.tolist() == [[0, 2.0], [1, 1.0]]


def test_failed_runs_are_shown_on_request(store: Store) -> None:
    store.add(ended("a", {"x": 1}, num_parts=2))
    store.fail(store.start(make_point("b")), "no memory")
    table = compare(store, statuses=(FINISHED, FAILED)).set_index("num_parts")
    assert table.loc[8, "error"] == "no memory" and table.loc[2, "x"] == 1
    assert "error" not in compare(store)


def test_runs_are_selected(store: Store) -> None:
    store.add(ended("a", {"x": 1}, num_parts=2, started_at=1.0))
    store.add(ended("b", {"x": 2}, num_parts=4, started_at=2.0))
    store.add(ended("c", {"x": 3}, num_parts=4, size="real", started_at=3.0))
    store.add(ended("d", {"x": 4}, num_parts=4, sweep="betty/table6", started_at=4.0))

    def chosen(**kwargs: object) -> list[int]:
        return compare(store, **kwargs)["x"].tolist()  # pyright: ignore[reportArgumentType]

    assert chosen() == [1, 2, 3, 4]
    assert chosen(sweep="betty/fig11", size="smoke") == [1, 2]
    assert chosen(where={"num_parts": "4"}) == [2, 3, 4]
    assert chosen(where={"num_parts": "4", "size": "real"}) == [3]
    assert compare(store, where={"num_parts": "2", "size": "real"}).empty
    with pytest.raises(ValueError, match="num_parts of a finished run '5' is not known; choose from 2, 4"):
        compare(store, where={"num_parts": "5"})
    with pytest.raises(
        ValueError, match=r"setting 'parts' is not known; choose from commit, .*did you mean 'num_parts'"
    ):
        chosen(where={"parts": "4"})


def test_an_empty_store_gives_an_empty_table(store: Store) -> None:
    table = compare(store, where={"num_parts": "4"})
    assert table.empty and table.attrs["constant"] == {}
