"""The system's limit and count of a process's own memory."""

import mmap
import os
import resource

import numpy as np
import pytest

from workbench.meter.limit import AnonymousPeak, limit_data

MIB = 1 << 20
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")


def touch(mib: int) -> np.ndarray:
    """An array of ones in memory fresh from the system: malloc would reuse what earlier tests have freed."""
    array = np.frombuffer(mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
    array[:] = 1
    return array


def test_an_allocation_beyond_the_budget_fails_and_others_do_not():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limit_data("80MiB"):
        assert len(touch(40)) == 40 * MIB  # freed at once
        kept = touch(40)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            touch(60)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(kept) < len(touch(100))


def test_the_tightest_of_nested_limits_applies():
    with limit_data("80MiB"):
        outer = resource.getrlimit(resource.RLIMIT_DATA)
        with limit_data("2GiB"):
            assert resource.getrlimit(resource.RLIMIT_DATA) == outer
            with pytest.raises(OSError, match="Cannot allocate memory"):
                touch(100)
        with limit_data("20MiB"), pytest.raises(OSError, match="Cannot allocate memory"):
            touch(60)
        assert resource.getrlimit(resource.RLIMIT_DATA) == outer


def test_the_hard_limit_of_the_process_is_kept(monkeypatch):
    most, limits = 1 << 20, []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, most))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    with limit_data("80MiB"):
        pass
    assert limits == [(most, most), (resource.RLIM_INFINITY, most)]


def test_the_peak_is_that_of_memory_and_not_of_files(tmp_path):
    (tmp_path / "file").write_bytes(bytes(40 * MIB))
    with AnonymousPeak(milliseconds=1) as peak:
        assert int(np.memmap(tmp_path / "file", mode="r").sum()) == 0
        assert touch(60)[0]
        kept = touch(20)
    assert peak.nbytes == pytest.approx(60 * MIB, abs=8 * MIB)
    assert len(kept) == 20 * MIB
