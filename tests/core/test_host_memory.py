from pathlib import Path

import pytest

import workbench.core.host_memory as host_memory


def test_what_is_available_is_less_than_the_machine_has() -> None:
    assert 0 < host_memory.available_bytes() < 1 << 50


def test_a_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert host_memory.available_bytes() == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert host_memory.available_bytes() > 3000


def test_without_proc_the_physical_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert host_memory.available_bytes() > 1 << 20
