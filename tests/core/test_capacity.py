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


def limited(folder: Path, files: dict[str, str]) -> tuple[int, int]:
    """Available and total bytes in a container with these files of its control group."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return capacity.available_bytes(), capacity.total_bytes()


V2 = {"memory.max": "9000\n", "memory.current": "8500\n"}

V1 = {"memory/memory.limit_in_bytes": "9000\n", "memory/memory.usage_in_bytes": "8500\n"}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (V2, 500),
        (V2 | {"memory.stat": "anon 500\nactive_file 900\ninactive_file 7000\n"}, 7500),
        (V2 | {"memory.stat": "anon 8500\n"}, 500),
        (V2 | {"memory.current": "9500\n"}, 0),
        (V1, 500),
        (V1 | {"memory/memory.stat": "inactive_file 1\ntotal_inactive_file 7000\n"}, 7500),
    ],
)
def test_pages_of_files_that_the_kernel_reclaims_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], free: int
) -> None:
    """As `docker stats` counts them: what is used is the usage without `inactive_file`."""
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    assert limited(tmp_path, files) == (free, 9000)


def test_a_control_group_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "_CGROUP", tmp_path)
    without = capacity.total_bytes()
    free, total = limited(tmp_path, V1 | {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"})
    assert total == without and 9000 < free <= total


def test_without_proc_the_physical_memory_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert capacity.available_bytes() > 1 << 20
