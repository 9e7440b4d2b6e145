"""Programs that fail, crash, hang or are interrupted harm neither the caller nor leave processes or files behind."""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from workbench.core.errors import CapacityError, PartitionError
from workbench.partition import isolated
from workbench.partition.isolated import Program, program_calls, run_program

MISBEHAVING = Program("Misbehaving", "json", Path(__file__).with_name("misbehaving.py"))
PATIENCE_SECONDS = 60
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs the death signal of Linux")


def act(name: str, value: int = 0, *, num_results: int = 2, time_limit_seconds: float | None = None) -> Tensor:
    options = {"act": name, "value": value}
    return run_program(MISBEHAVING, {}, options, num_results=num_results, time_limit_seconds=time_limit_seconds)


def double(*values: int) -> list[int]:
    given = {"given": torch.tensor(values, dtype=torch.int64), "absent": None}
    return run_program(MISBEHAVING, given, {"act": "double"}, num_results=len(values)).tolist()


def wait_for(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, f"not within {PATIENCE_SECONDS} s"
        time.sleep(0.01)


def own_processes() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if runs_a_worker(p)]


def workers() -> list[psutil.Process]:
    """The workers of this process, without the forks that wait for their next calls."""
    return [p for p in psutil.Process().children() if runs_a_worker(p)]


def runs_a_worker(running: psutil.Process) -> bool:
    try:
        return running.status() != psutil.STATUS_ZOMBIE and str(isolated._SCRIPT) in running.cmdline()
    except psutil.Error:  # it has just ended
        return False


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that a test leaves no open file, nothing in shared memory and no worker but idle ones."""
    isolated._kill_idle()
    resource_tracker.ensure_running()  # multiprocessing's own process, which persists
    files, names = psutil.Process().num_fds(), shared_memory()
    yield
    isolated._kill_idle()
    wait_for(lambda: not own_processes())  # workers of forked processes end with them
    wait_for(lambda: shared_memory() <= names)
    wait_for(lambda: psutil.Process().num_fds() <= files)  # threads of a DataLoader's queues close their pipes


def shared_memory() -> set[str]:
    """List names in shared memory except semaphores, which concurrent tests may create."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir() if "sem." not in path.name} if folder.is_dir() else set()


def test_arrays_are_sent_and_the_result_is_returned() -> None:
    assert double(3, -4, 2**40) == [6, -8, 2**41]
    assert double(*range(100_000)) == list(range(0, 200_000, 2))
    assert double() == []


def test_arrays_may_be_strided() -> None:
    given = {"given": torch.arange(10)[::3]}
    assert run_program(MISBEHAVING, given, {"act": "double"}, num_results=4).tolist() == [0, 6, 12, 18]


def test_the_worker_is_reused_and_every_call_starts_afresh() -> None:
    (worker, first), (same, second) = act("ids").tolist(), act("ids").tolist()
    assert worker == same and first != second and os.getpid() not in (worker, first)
    assert [act("count", num_results=1).item() for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("say_and_fail", 7, r"failed with exit code 1 after .* s, saying 'ValueError: 7 is too much': partition with"),
        ("leave", 3, r"failed with exit code 3 after [\d.]+ s: partition with another method"),
        ("crash", signal.SIGSEGV, r"was ended by signal 11 \(SIGSEGV\) after"),
        ("crash", signal.SIGFPE, r"was ended by signal 8 \(SIGFPE\) after"),
        (
            "crash",
            signal.SIGKILL,
            r"signal 9 \(SIGKILL\) after [\d.]+ s: memory may have run out .*smaller batch",
        ),
        ("abort", 0, rf"signal {int(signal.SIGABRT)} \(SIGABRT\) after [\d.]+ s, saying '\*\*\*ASSERTION failed'"),
        ("no_such_act", 0, r"saying \"KeyError: 'no_such_act'\""),
    ],
)
def test_failures_and_crashes_are_reported(name: str, value: int, message: str) -> None:
    worker = act("ids")[0]
    with pytest.raises(PartitionError, match=r"Misbehaving .*" + message):
        act(name, value)
    assert act("ids")[0] == worker


@pytest.mark.parametrize("name", ["sleep", "ignore_signals_and_sleep"])
def test_a_time_limit_ends_the_program(name: str) -> None:
    with pytest.raises(PartitionError, match=r"Misbehaving was ended after .* s, over its limit of 0.2 s: allow more"):
        act(name, time_limit_seconds=0.2)
    assert double(1) == [2]


@on_linux
@pytest.mark.parametrize("session", [0, 1])
def test_processes_that_a_program_starts_end_with_the_call(session: int) -> None:
    child = int(act("leave_a_child", session)[0])
    assert not psutil.pid_exists(child), "it has the program's output open, which is not waited for"
    with pytest.raises(PartitionError, match=r"over its limit of 0\.3 s"):
        act("sleep_with_a_child", session, time_limit_seconds=0.3)
    assert not any("600" in process.cmdline() for process in psutil.Process().children(recursive=True))
    assert double(1) == [2]


@on_linux
@pytest.mark.parametrize("name", ["close_output_and_sleep", "talk_without_end"])
def test_a_time_limit_ends_a_program_whatever_it_does_with_its_output(name: str) -> None:
    with pytest.raises(PartitionError, match=r"over its limit of 0\.3 s"):
        act(name, time_limit_seconds=0.3)
    assert double(1) == [2]


@pytest.mark.parametrize("seconds", [PATIENCE_SECONDS, 1e300])
def test_a_time_limit_that_is_not_reached_changes_nothing(seconds: float) -> None:
    assert act("count", num_results=1, time_limit_seconds=seconds).item() == 1


def test_output_is_discarded(capfd: pytest.CaptureFixture[str]) -> None:
    act("say", 100_000)
    assert capfd.readouterr() == ("", "")


@on_linux
def test_a_worker_that_dies_is_reported_and_replaced() -> None:
    before = act("ids")[0]
    with pytest.raises(PartitionError, match=r"worker process for Misbehaving ended with status -9: call again"):
        act("kill_worker")
    wait_for(lambda: not own_processes())  # its program dies with it
    assert act("ids")[0] != before


def test_an_idle_worker_that_died_is_replaced() -> None:
    worker = int(act("ids")[0])
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: psutil.Process(worker).status() == psutil.STATUS_ZOMBIE)  # before, it has no command line either
    assert act("ids")[0] != worker


def test_the_fork_that_waits_for_the_next_call_is_replaced_when_it_died() -> None:
    worker = int(act("ids")[0])
    wait_for(lambda: psutil.Process(worker).children())
    spare = psutil.Process(worker).children()[0].pid
    os.kill(spare, signal.SIGKILL)
    wait_for(lambda: psutil.Process(spare).status() == psutil.STATUS_ZOMBIE)
    same, ran = act("ids").tolist()
    assert same == worker and ran != spare


def test_the_fork_that_waits_runs_the_next_call() -> None:
    worker = int(act("ids")[0])
    wait_for(lambda: psutil.Process(worker).children())
    spare = psutil.Process(worker).children()[0].pid
    assert act("ids").tolist() == [worker, spare]


def interrupt_when_running(count: int) -> None:
    wait_for(lambda: len(own_processes()) >= count)
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_ends_the_program() -> None:
    interrupter = threading.Thread(target=interrupt_when_running, args=(2,))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        act("sleep")
    interrupter.join()
    assert not own_processes()
    assert double(5) == [10]


def test_a_program_ends_with_the_process_that_called_it() -> None:
    caller = os.fork()
    if not caller:
        act("sleep_with_a_child", 1)
        os._exit(0)
    wait_for(lambda: len(psutil.Process(caller).children(recursive=True)) == 3)
    started = psutil.Process(caller).children(recursive=True)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    wait_for(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in started))


def test_threads_have_separate_workers() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: double(*range(i)), range(40)))
    assert found == [[2 * v for v in range(i)] for i in range(40)]
    assert 1 <= len(workers()) <= 4 and len(own_processes()) <= 2 * len(workers())


def test_a_forked_process_starts_a_new_worker() -> None:
    worker = act("ids")[0]
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: queue.put(int(act("ids")[0])))
    child.start()
    assert queue.get() != worker
    child.join()
    queue.close()
    assert child.exitcode == 0 and act("ids")[0] == worker


class Doubles(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[int]:
        return double(index, index + 1)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_dataloader_workers_may_call(context: str) -> None:
    loader = DataLoader(Doubles(), batch_size=None, num_workers=2, multiprocessing_context=context)
    assert list(loader) == [[0, 2], [2, 4], [4, 6], [6, 8]]


def test_time_and_memory_of_calls_are_collected() -> None:
    taken = 64 << 20
    with program_calls() as calls:
        double(1)
        act("take_memory", taken)
    double(1)
    assert [call.program for call in calls] == ["Misbehaving"] * 2
    small, large = (call.peak_bytes for call in calls)
    assert small is not None and large is not None and small + taken / 2 < large < small + 2 * taken
    assert all(call.seconds > 0 for call in calls)


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"needs Absent: pip install no_such_module, or choose a method without it"):
        run_program(Program("Absent", "no_such_module", MISBEHAVING.script), {}, {}, num_results=1)
    (script := tmp_path / "program.py").write_text("import no_such_module")
    with pytest.raises(ImportError, match=r"needs Broken: .*No module named 'no_such_module'"):
        run_program(Program("Broken", "json", script), {}, {}, num_results=1)


def test_a_program_that_fails_to_import_is_reported(tmp_path: Path) -> None:
    (script := tmp_path / "program.py").write_text("1 / 0")
    with pytest.raises(PartitionError, match=r"Odd failed with exit code 1 after 0.0 s, saying 'ZeroDivisionError"):
        run_program(Program("Odd", "json", script), {}, {}, num_results=1)


def test_modules_are_imported_from_the_path_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_found_here.py").write_text("VALUE = 11")
    script = tmp_path / "program.py"
    script.write_text("import only_found_here\ndef run(arrays):\n    arrays['part'][0] = only_found_here.VALUE")
    monkeypatch.syspath_prepend(tmp_path)
    assert run_program(Program("Local", "only_found_here", script), {}, {}, num_results=1).tolist() == [11]


def test_the_disk_is_used_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "available_bytes", lambda: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert double(1, 2, 3) == [2, 4, 6]
    assert not list(tmp_path.iterdir())


@on_linux
def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "available_bytes", lambda: 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "w+b", buffering=0))
    with pytest.raises(CapacityError, match=r"arrays of a partition, 16 B, could not be stored \(No space left"):
        double(1)


@pytest.mark.slow
def test_a_stopped_worker_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_REPLY_SECONDS", 0.2)
    double(1)
    (worker,) = workers()
    worker.suspend()
    with pytest.raises(PartitionError, match=r"did not reply within 0\.2 s of the limit of 0\.1 s and was ended"):
        act("double", time_limit_seconds=0.1)
    assert double(1) == [2]
