"""Locks between processes."""

import signal
import threading
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


def test_only_one_holds_it_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    """Without the second look at the opened file two threads would soon hold locks of two files of one name."""
    inside, most, rounds = 0, 0, 200

    def work() -> None:
        nonlocal inside, most
        for _ in range(rounds):
            with locked(tmp_path / "lock"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_it_is_released_when_the_block_fails(tmp_path: Path) -> None:
    try:
        with locked(tmp_path / "lock"):
            raise KeyError
    except KeyError:
        pass
    with locked(tmp_path / "lock", wait=False) as mine:
        assert mine
