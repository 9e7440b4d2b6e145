"""Locks between processes."""

import signal
import threading
import time
from pathlib import Path

from tests.tracking.points import start_python
from workbench.tracking.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from workbench.tracking.locks import locked
with locked(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "lock"
    with start_python(HOLD, str(file)) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "True\n"
            with locked(file, wait=False) as mine:
                assert not mine
        finally:
            holder.send_signal(signal.SIGKILL)
        with locked(file) as mine:
            assert mine


def test_no_files_are_left(tmp_path: Path) -> None:
    for number in range(3):
        with locked(tmp_path / str(number)):
            assert (tmp_path / str(number)).exists()
    assert list(tmp_path.iterdir()) == []


def test_who_waited_for_a_file_that_is_gone_holds_the_next_one(tmp_path: Path) -> None:
    """Otherwise it would hold the lock of a file without a name, and anybody else that of a new file."""
    file, entered, leave = tmp_path / "lock", threading.Event(), threading.Event()

    def wait_for_it() -> None:
        with locked(file):
            entered.set()
            leave.wait()

    waiting = threading.Thread(target=wait_for_it)
    with locked(file):
        waiting.start()
        time.sleep(0.2)  # it has opened the file that is about to go
        assert not entered.is_set()
    entered.wait()
    try:
        with locked(file, wait=False) as mine:
            assert not mine
    finally:
        leave.set()
        waiting.join()


def test_it_is_released_when_the_block_fails(tmp_path: Path) -> None:
    try:
        with locked(tmp_path / "lock"):
            raise KeyError
    except KeyError:
        pass
    with locked(tmp_path / "lock", wait=False) as mine:
        assert mine
