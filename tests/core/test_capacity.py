"""Available host memory, and the rejection of allocations that would not fit."""

from pathlib import Path

import pytest

from workbench.core import errors as capacity
from workbench.core.errors import CapacityError


def test_available_memory_is_the_limit(monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 2**30)
    capacity.check_fits("a table", 2**30, "use a smaller one")
    with pytest.raises(CapacityError, match=r"a table needs 2\.00 GiB, but only 1\.00 GiB is free; use a smaller one"):
        capacity.check_fits("a table", 2**31, "use a smaller one")


def test_small_allocations_are_not_checked(monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 0)
    capacity.check_fits("a table", 2**20, "use a smaller one")


def test_available_bytes_are_plausible() -> None:
    assert 0 < capacity.available_bytes() < 1 << 50


def test_a_container_limit_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert capacity.available_bytes() == 3000
    assert capacity.total_bytes() == 5000
    (tmp_path / "memory.max").write_text("max\n")
    assert capacity.available_bytes() > 3000
    assert capacity.total_bytes() >= capacity.available_bytes()


def test_without_proc_the_physical_memory_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert capacity.available_bytes() > 1 << 20
