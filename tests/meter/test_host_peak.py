"""The peak host memory of a block, as the system counts it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.meter import limit as host_peak

MIB = 1 << 20


EXPECTED = {
    "relative_to_entry": (60 * MIB, 4 * MIB),
    "after_freed_memory": (50 * MIB, 8 * MIB),
    "empty": (0, 2 * MIB),
    "failing": (30 * MIB, 2 * MIB),
}
"""Scenario to its peak and a tolerance."""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs /proc")
def test_peaks_of_blocks() -> None:
    command = [sys.executable, "-m", "tests.meter.host_peak_scenarios", *EXPECTED]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for found, (scenario, (expected, tolerance)) in zip(output.split(), EXPECTED.items(), strict=True):
        assert int(found) == pytest.approx(expected, abs=tolerance), scenario


@pytest.mark.parametrize("missing", ["_CLEAR_REFS", "_STATUS"])
def test_without_proc_a_peak_is_unknown(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_peak, missing, tmp_path / "none" / "file")
    with host_peak.HostPeak() as peak:
        np.ones(MIB, dtype=np.uint8)
    assert peak.nbytes is None
