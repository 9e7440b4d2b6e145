import os
from pathlib import Path

import numpy as np
import pytest
import torch

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


MIB = 1 << 20


def touched(nbytes: int) -> np.ndarray:
    return np.ones(nbytes, dtype=np.uint8)


needs_proc = pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="/proc says nothing here")


@needs_proc
def test_a_peak_is_what_was_held_at_once_above_the_start() -> None:
    before = touched(64 * MIB)  # was there, so it does not count
    with host_memory.HostPeak() as peak:
        first = touched(40 * MIB)
        del first
        second = torch.ones(60 * MIB, dtype=torch.uint8)
    assert peak.nbytes == pytest.approx(60 * MIB, abs=4 * MIB)
    assert len(before) and len(second)


@needs_proc
def test_an_earlier_peak_and_freed_memory_do_not_hide_a_later_one() -> None:
    huge = touched(200 * MIB)
    small = [touched(32 << 10) for _ in range(1600)]  # 50 MiB of the heap, which the allocator keeps when they go
    del huge, small
    with host_memory.HostPeak() as peak:
        again = [touched(32 << 10) for _ in range(1600)]
    assert peak.nbytes == pytest.approx(50 * MIB, abs=8 * MIB)
    assert len(again)


@needs_proc
def test_nothing_takes_next_to_nothing_and_a_peak_is_known_after_a_failure_too() -> None:
    with host_memory.HostPeak() as peak:
        pass
    assert peak.nbytes is not None and peak.nbytes < 2 * MIB

    def fail() -> None:
        with peak:
            kept = touched(30 * MIB)
            raise KeyError(len(kept))

    with pytest.raises(KeyError):
        fail()
    assert peak.nbytes is not None and peak.nbytes > 28 * MIB


@pytest.mark.parametrize("missing", ["_CLEAR_REFS", "_STATUS"])
def test_without_proc_a_peak_is_unknown(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, missing, tmp_path / "none" / "file")
    with host_memory.HostPeak() as peak:
        touched(MIB)
    assert peak.nbytes is None
