"""External records: only valid runs are read from files and databases, and no path outside the store is touched."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tracking.points import ended, make_point
from workbench.core.errors import CorruptFileError
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import Run, check_point, parse_run
from workbench.tracking.store import Store


@pytest.fixture
def record(tmp_path: Path) -> dict[str, Any]:
    """Return a run as stored in a file."""
    FileStore(tmp_path / "good.jsonl").add(ended("a", {"x": 1}))
    return json.loads((tmp_path / "good.jsonl").read_text())


def parse(record: Any) -> Any:
    return parse_run(json.dumps(record).encode(), "f.jsonl, line 3")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("point.key", "../../victim", r"point.key is '../../victim'; it must match pattern"),
        ("point.key", "/etc/passwd", "point.key is '/etc/passwd'"),
        ("point.key", "", "point.key is ''"),
        ("point.key", 7, "point.key is 7; it must be a valid string"),
        ("point.sweep", "../x", "point.sweep is '../x'"),
        ("point.sweep", "/abs/x", "point.sweep"),
        ("point.sweep", "betty/..", "point.sweep"),
        ("point.sweep", "betty", "point.sweep"),
        ("point.sweep", None, "point.sweep is None"),
        ("point.size", "../smoke", r"point.size is '../smoke'; it must match pattern '\^\(smoke\|real\|paper\)\$'"),
        ("point.figures", ["betty/fig11", "../x"], "point.figures.1 is '../x'"),
        ("point.figures", "betty/fig11", "point.figures"),
        ("point.config", [1], r"point.config is \[1\]"),
        ("point.tags", {"commit": 3}, "point.tags.commit is 3"),
        ("point.dataset", {"name": "x"}, "point.dataset.fingerprint: Field required"),
        ("point.dataset", "cora", "point.dataset is 'cora'"),
        ("point.extra", 1, "point.extra: Unexpected keyword"),
        ("rows", {"a": 1}, "rows is"),
        ("rows", [[1]], r"rows.0 is \[1\]"),
        ("rows", [{"a": [1]}], "rows may contain numbers, strings, bools and None, not a list"),
        ("status", "DONE", "status is 'DONE'"),
        ("started_at", "now", "started_at is 'now'"),
        ("started_at", float("nan"), "started_at is nan"),
        ("started_at", 1e300, "started_at is 1e"),
        ("seconds", float("inf"), "seconds is inf"),
        ("error", ["x"], r"error is \['x'\]"),
        ("run_id", "../x", "run_id is '../x'"),
        ("schema", 2, "schema is 2"),
    ],
)
def test_an_invalid_field_is_named(record, field: str, value: Any, words: str) -> None:
    *outer, name = field.split(".")
    (record[outer[0]] if outer else record)[name] = value
    with pytest.raises(CorruptFileError, match=f"^f.jsonl, line 3 is not a valid run: .*{words}"):
        parse(record)


@pytest.mark.parametrize(
    "line", [b"", b"null", b"[]", b"7", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"{}"]
)
def test_a_line_that_is_not_a_record(line: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"f\.jsonl, line 3 is not a valid run"):
        parse_run(line, "f.jsonl, line 3")


def test_fields_without_default_are_required(record) -> None:
    for name in ("point", "run_id", "status", "schema"):
        with pytest.raises(CorruptFileError, match=f"{name}: Field required|{name}: Missing"):
            parse({key: value for key, value in record.items() if key != name})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(path=st.sampled_from(["point", "rows", "status", "error", "started_at", "seconds", "run_id"]), value=json_values)
def test_any_value_is_accepted_or_rejected_by_name(path: str, value: Any) -> None:
    record = {"schema": 1, "point": {"sweep": "b/f", "size": "smoke", "key": "a", "config": {}}, "run_id": "1"}
    record |= {"status": "FINISHED", path: value}
    with suppress(CorruptFileError):  # any other error fails the test
        assert isinstance(parse(record), Run)


def test_a_record_round_trips(record) -> None:
    assert parse(record) == ended("a", {"x": 1})


def test_nothing_outside_the_store_is_deleted_or_written(store: Store, tmp_path: Path) -> None:
    """Points of a caller are checked, too, since an invalid one could not be read back."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for changes in ({"key": str(victim)}, {"key": "../../victim"}, {"sweep": "../x"}, {"size": ".."}):
        run = replace(ended("a", {"x": 1}), point=replace(make_point("a"), **changes))
        for operation in (lambda run=run: store.add(run), lambda run=run: store.start(run.point)):
            with pytest.raises(ValueError, match=f"point: {next(iter(changes))} is"):
                operation()
    assert victim.read_text() == "precious" and not (tmp_path.parent / "x").exists()


def test_locks_of_any_name_stay_in_their_folder(store: Store, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for key in (str(victim), "../../victim", "..", ""):
        with store.lock(key) as mine:
            assert mine
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "names", [("../x", "b/f", "smoke", "a"), ("b/f", "b/f", "..", "a"), ("b/f", "b/f", "smoke", "../a")]
)
def test_summaries_stay_in_their_folder(store: Store, names: tuple[str, str, str, str]) -> None:
    with pytest.raises(ValueError, match=r"summary: .* is '.*'; it must match"):
        store.log_summary(*names, {"figure.html": "<p>"})


@pytest.mark.parametrize("sweep", ["betty/fig11", "a-b/c.d_e", "marius/table2"])
def test_figure_names(sweep: str) -> None:
    check_point(make_point(sweep=sweep))
