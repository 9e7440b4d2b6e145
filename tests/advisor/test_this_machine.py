"""Measuring this machine: amounts over a clock of the test's own, bounds, and what happens where measuring fails."""

import math
import threading
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import workbench as wb
from tests.simulated_cuda import counting
from workbench.advisor import this_machine
from workbench.advisor.advice import _is_here
from workbench.advisor.known_machines import USUAL_HOST
from workbench.advisor.machine import LABELS, SPEEDS
from workbench.kernels.threads import get_num_threads
from workbench.outofcore import DiskModel

CACHED = [this_machine._host, this_machine._ranks, this_machine._cpu_speeds, this_machine._gpu, this_machine._disk]
SMALL = {"_ARRAY_BYTES": 1 << 20, "_MATRIX": 32, "_GPU_MATRIX": 48, "_SENT_BYTES": 1 << 12, "_FILE_BYTES": 1 << 20}
A100 = wb.Machine.named("A100")
MOST = 1e17  # bytes or operations per second, beyond any machine


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Small amounts of work, measured anew, on the disk of the test's folder."""
    for name, value in SMALL.items():
        monkeypatch.setattr(this_machine, name, value)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache" / "not" / "there"))
    for each in CACHED:
        each.cache_clear()
    yield
    for each in CACHED:
        each.cache_clear()


class Clock(threading.local):
    """Advances by a second whenever it is read, in each thread alone: whatever is measured takes a second."""

    now = 0.0

    def perf_counter(self):
        self.now += 1
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(this_machine, "time", clock)
    return clock


def on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_here_is_positive_finite_and_says_how_it_was_found(monkeypatch, tmp_path):
    on_the_cpu(monkeypatch)
    state = torch.get_rng_state()
    machine = wb.Machine.here()
    assert all(0 < getattr(machine, name) < MOST for name in SPEEDS)
    assert set(machine.sources) == set(LABELS)
    assert all(
        machine.sources[name].startswith("measured: ") for name in ("gamma", "flops", "gather", "disk", "network")
    )
    assert machine.is_cpu and machine.cores == get_num_threads()
    assert (machine.alpha, machine.beta) == (machine.network, machine.gather)
    assert machine.host_memory_bytes == machine.device_memory_bytes
    assert machine.host_memory_bytes is not None and 1 << 27 < machine.host_memory_bytes < 1 << 50
    assert f" in {tmp_path}," in machine.sources["disk"]  # the nearest folder above the cache, which does not exist
    assert not list(tmp_path.iterdir())
    assert torch.equal(torch.get_rng_state(), state)


def test_here_is_measured_once_per_process_and_disk(monkeypatch, tmp_path):
    on_the_cpu(monkeypatch)
    first = wb.Machine.here()
    monkeypatch.setattr(this_machine, "_speed", lambda *_: pytest.fail("measured again"))
    assert wb.Machine.here() == first
    (tmp_path / "other").mkdir()
    other = wb.Machine.here(tmp_path / "other")
    assert str(tmp_path / "other") in other.sources["disk"]
    assert (other.gamma, other.network) == (first.gamma, first.network)


def test_steps_are_timed_whatever_disk_of_this_machine_is_asked_about(monkeypatch, tmp_path):
    on_the_cpu(monkeypatch)
    here = wb.Machine.here()
    for timed in (here, wb.Machine.here(tmp_path), replace(here, disk=1.0, disk_reads=2.0, disk_writes=3.0)):
        assert _is_here(timed)
    for modelled in (replace(here, gather=1.0), replace(here, gamma=1.0), replace(here, name="ours"), A100):
        assert not _is_here(modelled)


def test_speeds_are_amounts_per_second(monkeypatch, clock):
    on_the_cpu(monkeypatch)
    machine = wb.Machine.here()
    nbytes = SMALL["_ARRAY_BYTES"]
    assert machine.gather == nbytes
    assert machine.gamma == 2 * nbytes
    assert machine.flops == 2 * SMALL["_MATRIX"] ** 3
    assert machine.network == SMALL["_SENT_BYTES"]


def test_the_median_counts_and_the_first_run_does_not(monkeypatch):
    now, seconds, order = 0.0, iter([100.0, 4.0, 1.0, 2.0, 50.0, 3.0]), []

    def work():
        nonlocal now
        now += next(seconds)
        order.append("work")

    monkeypatch.setattr(this_machine, "time", SimpleNamespace(perf_counter=lambda: now))
    speed = this_machine._speed(12.0, work, lambda: order.append("wait"), before=lambda: order.append("before"))
    assert speed == 12.0 / 3.0
    assert order == ["before", "wait", "work", "wait"] * 6


@pytest.mark.parametrize(("seconds", "rounds"), [(0.3, 9), (1.2, 3), (60.0, 1)])
def test_a_slow_disk_is_measured_once(monkeypatch, tmp_path, seconds, rounds):
    now, speeds = 0.0, iter([5.0, 1.0, 3.0, 9.0, 8.0, 7.0, 6.0, 4.0, 2.0])

    def measured(folder, *, file_bytes):
        nonlocal now
        now += seconds
        speed = next(speeds)
        assert (folder, file_bytes) == (tmp_path, SMALL["_FILE_BYTES"])
        return DiskModel(speed, 10 * speed, write_bytes_per_second=speed / 2)

    monkeypatch.setattr(this_machine, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(this_machine.DiskModel, "measured", measured)
    found = this_machine._disk_of(tmp_path)
    median = {9: 5.0, 3: 3.0, 1: 5.0}[rounds]
    assert [found[name].value for name in ("disk", "disk_reads", "disk_writes")] == [median, 10 * median, median / 2]
    assert found["disk"].source.endswith("once" if rounds == 1 else f"median of {rounds}")


def test_reads_from_the_page_cache_are_told(monkeypatch, tmp_path):
    def measured(*_, **__):
        warnings.warn("the file system of x does not support O_DIRECT", RuntimeWarning, stacklevel=1)
        return DiskModel(1.0, 1.0)

    monkeypatch.setattr(this_machine.DiskModel, "measured", measured)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = this_machine._disk_of(tmp_path)
    cached = "through the page cache (the file system does not support O_DIRECT)"
    assert all(cached in each.source for name, each in found.items() if name != "disk_writes")


def test_a_cache_that_cannot_be_written_is_replaced_by_temporary_files(monkeypatch, tmp_path):
    refused, elsewhere = tmp_path / "refused", tmp_path / "elsewhere"
    refused.mkdir()
    elsewhere.mkdir()
    usual, full = DiskModel.measured, {refused}

    def measured(folder, **options):
        if folder in full:
            raise OSError(28, "No space left on device")
        return usual(folder, **options)

    monkeypatch.setenv("WORKBENCH_CACHE", str(refused))
    monkeypatch.setattr(this_machine.tempfile, "gettempdir", lambda: str(elsewhere))
    monkeypatch.setattr(this_machine.DiskModel, "measured", measured)
    assert f" in {elsewhere}," in this_machine._disk_of(None)["disk"].source
    full.add(elsewhere)
    this_machine._disk.cache_clear()
    found = this_machine._disk_of(None)
    for name in ("disk", "disk_reads"):
        assert found[name].value == USUAL_HOST[name][0]
        assert found[name].source.startswith("assumed: ") and "not measured: OSError: [Errno 28]" in found[name].source
    with pytest.raises(OSError, match="No space left"):
        wb.Machine.here(elsewhere)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        wb.Machine.here(tmp_path / "nowhere")


def refuse(*_):
    raise RuntimeError("no loopback device")


@pytest.mark.parametrize("group", [SimpleNamespace(), SimpleNamespace(_Options=refuse)], ids=["no Gloo", "no device"])
def test_without_ranks_the_network_is_assumed(monkeypatch, group):
    monkeypatch.setattr(dist, "ProcessGroupGloo", group, raising=False)
    found = this_machine._ranks()["network"]
    assert found.value == USUAL_HOST["network"][0]
    assert found.source.startswith("assumed: ") and "; not measured: " in found.source


@pytest.mark.cuda
def test_the_gpu_is_measured(clock):
    machine = wb.Machine.here()
    nbytes = SMALL["_ARRAY_BYTES"]
    assert not machine.is_cpu and torch.cuda.get_device_name() in machine.name
    assert (machine.gamma, machine.beta) == (2 * nbytes, nbytes)
    assert machine.flops == 2 * SMALL["_GPU_MATRIX"] ** 3
    assert machine.device_memory_bytes == torch.cuda.mem_get_info()[1]
    assert machine.alpha == nbytes and math.isfinite(machine.gather)
    if torch.cuda.device_count() == 1:
        assert "not measured: one GPU" in machine.sources["alpha"]


@pytest.mark.cuda
def test_the_gpu_reads_page_locked_memory_and_is_waited_for(gpu):
    if gpu is None:
        pytest.skip("only a simulated GPU counts")
    with counting() as counts:
        this_machine._gpu()
    rounds = this_machine._ROUNDS + 1
    uploads = [copy for copy in counts.of("h2d") if copy.pinned]
    assert [copy.nbytes for copy in uploads] == [SMALL["_ARRAY_BYTES"]] * rounds
    assert not any(copy.blocking for copy in uploads)
    waits = [sync for sync in counts.syncs if sync.cause == "torch.cuda.synchronize"]
    assert len(waits) == 2 * 3 * rounds  # before and after each run of three measurements
