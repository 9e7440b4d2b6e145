"""A process that ends in an orderly way with an open epoch ends soon, with the rows on disk or a message."""

import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.outofcore.process_ends import BEGIN, ORDER, TRAIN, WIDTH, build, run, versions, write_version


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "store").folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))


def check_saved(folder: Path, last_state: int = 2) -> None:
    store = wb.outofcore.PartitionStore.open(folder)
    assert not store.damaged()
    assert torch.equal(store.read(), versions(last_state))
    assert torch.equal(store.read(state=True), -versions(last_state))
    for state in wb.outofcore.PartitionBuffer(store, capacity=2).epoch(ORDER):  # and nobody has locked it
        write_version(store, state)


ENDS = {
    "end of the script": "",
    "an exception": "raise KeyError('elsewhere')",
    "sys.exit": "sys.exit(3)",
    "in a cycle": "cycle = [epoch]; cycle.append(cycle); del epoch, state",
    "a daemon thread inside the epoch": """del epoch, state
buffer.close()
reached = threading.Event()
def train():
    for state in buffer.epoch(ORDER):
        write_version(store, state)
        if state.number == 2:
            reached.set()
            time.sleep(600)
threading.Thread(target=train, daemon=True).start()
reached.wait()
""",
    "SIGTERM while a state is read": """real = os.preadv
def preadv(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    return real(*arguments)
buffer.close()
buffer = wb.outofcore.PartitionBuffer(store, capacity=2, prefetch=False, io_threads=1)
epoch = buffer.epoch(ORDER)
for state in epoch:
    write_version(store, state)
    if state.number == 2:
        os.preadv = preadv
""",
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
again = wb.outofcore.PartitionBuffer(other, capacity=2).epoch(ORDER)
write_version(other, next(again))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""",
    "daemon thread": "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
}
QUICK = ("end of the script", "SIGTERM")


def check_end(folder: Path, how: str) -> None:
    ended = run(f"{TRAIN}\n{ENDS[how]}", folder)
    check_saved(folder)
    expected = {"an exception": 1, "sys.exit": 3, "SIGINT": -signal.SIGINT}
    expected |= {name: -signal.SIGTERM for name in ENDS if name.startswith(("SIGTERM", "two epochs"))}
    assert ended.returncode == expected.get(how, 0), ended.stderr
    if how == "two epochs":
        other = wb.outofcore.PartitionStore.open(f"{folder}2").read()
        assert torch.equal(other, versions(0))


@pytest.mark.slow
@pytest.mark.parametrize("how", QUICK)
def test_rows_are_on_disk_when_the_process_has_ended(folder: Path, how: str) -> None:
    check_end(folder, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", sorted(set(ENDS) - set(QUICK)))
def test_every_end(folder: Path, how: str) -> None:
    check_end(folder, how)


CHILD = f"""{BEGIN}
import multiprocessing
def leave_open():
    global epoch
    epoch = wb.outofcore.PartitionBuffer(wb.outofcore.PartitionStore.open(sys.argv[1]), capacity=2).epoch(ORDER)
    for state in epoch:
        write_version(store, state)
        if state.number == 2:
            return
child = multiprocessing.get_context("fork").Process(target=leave_open)
torch.set_num_threads(1)
child.start()
child.join(20)
print(child.exitcode)
"""


@pytest.mark.slow
def test_a_child_process_that_leaves_an_epoch_open(folder: Path) -> None:
    ended = run(CHILD, folder)
    assert ended.stdout.split() == ["0"], ended.stderr
    check_saved(folder)


FULL = f"""{TRAIN}
def full(*_):
    raise OSError(28, "No space left on device")
os.pwritev = full
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"])
def test_rows_that_can_not_be_written_are_told(folder: Path, how: str) -> None:
    ended = run(f"{FULL}\n{how}", folder)
    assert "No space left on device when writing partition" in ended.stderr
    store = wb.outofcore.PartitionStore.open(folder)
    assert not store.damaged()
    rows, before = store.read(), versions(2)
    assert not torch.equal(rows, before) and torch.equal(store.read(state=True), -rows)


STUCK = f"""{TRAIN}
buffer.close()
reached = threading.Event()
def pwritev(*_):
    reached.set()
    time.sleep(600)
def train():
    for state in buffer.epoch(ORDER):
        write_version(store, state)
buffer = wb.outofcore.PartitionBuffer(store, capacity=2, prefetch=False, io_threads=1)
os.pwritev = pwritev
threading.Thread(target=train, daemon=True).start()
reached.wait()
"""


@pytest.mark.slow
def test_a_thread_that_is_stuck_in_an_epoch_is_told(folder: Path) -> None:
    ended = run(STUCK, folder)
    assert "another thread is inside an epoch of a PartitionBuffer: rows that it has changed" in ended.stderr
    assert not wb.outofcore.PartitionStore.open(folder).damaged()


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("prefetch", [True, False])
def test_a_loop_over_batches_that_is_left_open(tmp_path: Path, ahead: int, prefetch: bool) -> None:
    """Features: nothing is written, but threads read and sample ahead."""
    build(tmp_path / "store", rows=torch.randn(40, WIDTH))
    code = f"""{BEGIN}
buffer = wb.outofcore.PartitionBuffer(store, capacity=2, prefetch={prefetch})
order = wb.outofcore.node_order(P, 2, P)
loader = wb.outofcore.batches(buffer, order, ALL, sampler=wb.NeighborSampler([2]), batch_size=3, sample_ahead={ahead})
batches = iter(loader)
for _ in batches:
    break
"""
    ended = run(code, tmp_path / "store")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", ["idle", "busy", "interrupted", "stuck", "terminated"])
def test_the_kernel_of_a_notebook_is_restarted(folder: Path, how: str) -> None:
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        code = f"import sys\nsys.argv = ['', {str(folder)!r}]\n{TRAIN}"
        reply = client.execute_interactive(code, timeout=60, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply
        if how in ("busy", "interrupted"):
            client.execute("time.sleep(600)")
        elif how == "stuck":  # deaf to interrupts, as in machine code
            client.execute("signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)")
        time.sleep(1)
        if how == "interrupted":
            manager.interrupt_kernel()
        begin = time.time()
        if how == "terminated":
            manager.signal_kernel(signal.SIGTERM)
            while manager.is_alive() and time.time() < begin + 60:
                time.sleep(0.05)
        else:
            manager.shutdown_kernel(restart=True)
    finally:
        client.stop_channels()
        if manager.is_alive():
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    check_saved(folder)
