"""A process that ends in an orderly way with an open epoch ends soon, with the rows on disk or a message."""

import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.outofcore.process_ends import ORDER, TRAIN, build, run, versions, write_version

SOON = 5.0
"""Seconds in which a process ends whose work is done."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "store").folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))


def check_saved(folder: Path, last_state: int = 2) -> None:
    store = wb.PartitionStore.open(folder)
    assert not store.damaged()
    assert torch.equal(store.read(), versions(last_state))
    assert torch.equal(store.read(state=True), -versions(last_state))
    for state in wb.PartitionBuffer(store, capacity=2).epoch(ORDER):  # and nobody has locked it
        write_version(store, state)


ENDS = {
    "end of the script": "",
    "an exception": "raise KeyError('elsewhere')",
    "sys.exit": "sys.exit(3)",
    "in a cycle": "cycle = [epoch]; cycle.append(cycle); del epoch, state",
    "a batch loop": "del epoch; loader = iter([1]); holder = buffer",
    "forked child that exits": "child = os.fork()\nif child: os.waitpid(child, 0)\nelse: sys.exit(0)",
    "forked child that goes on": """child = os.fork()
if not child:
    try:
        next(epoch)
    except RuntimeError as error:
        assert 'forked' in str(error)
        sys.exit(7)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    "forked child that writes": """child = os.fork()
if not child:
    try:
        state.rows.write(torch.tensor([0]), torch.full((1, WIDTH), 99.0))
    except RuntimeError as error:
        assert 'alone' in str(error)
        sys.exit(7)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "SIGTERM in C code": "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start(); time.sleep(60)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "two epochs": """other = build(sys.argv[1] + '2')
again = wb.PartitionBuffer(other, capacity=2).epoch(ORDER)
write_version(other, next(again))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""",
    "daemon thread": "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
}
QUICK = ("end of the script", "SIGTERM")


def check_end(folder: Path, how: str) -> None:
    ended = run(f"{TRAIN}\nprint(time.time(), flush=True)\n{ENDS[how]}", folder)
    lines = ended.stdout.split()
    assert lines, ended.stderr
    assert time.time() - float(lines[0]) < SOON + 60 * how.startswith("two")
    check_saved(folder)
    expected = {"an exception": 1, "sys.exit": 3, "SIGINT": -signal.SIGINT}
    expected |= dict.fromkeys(("SIGTERM", "SIGTERM in C code", "two epochs"), -signal.SIGTERM)
    assert ended.returncode == expected.get(how, 0), ended.stderr
    if how == "two epochs":
        other = wb.PartitionStore.open(f"{folder}2").read()
        assert torch.equal(other, versions(0))


@pytest.mark.parametrize("how", QUICK)
def test_rows_are_on_disk_when_the_process_has_ended(folder: Path, how: str) -> None:
    check_end(folder, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", sorted(set(ENDS) - set(QUICK)))
def test_every_end(folder: Path, how: str) -> None:
    check_end(folder, how)
