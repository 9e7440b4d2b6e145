"""Runs faults on ranks that are forked from this process, so that torch is imported once and not by every rank.

    python -m tests.distributed.forked_ranks faulty_step '[["sampling", "dies", 2, 30]]'

Creation apart, these ranks are those of `rank_pool`. This process computes in one thread, since others do not survive a
fork.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing.connection import Pipe
from tempfile import TemporaryFile
from typing import Any

import psutil
import torch

import workbench as wb
from workbench import keeper
from workbench.core.errors import RankError
from workbench.distributed import group as agreement, rank_child, rank_main, rank_pool, rank_process
from workbench.distributed.progress import ProgressBoard
from workbench.kernels.threads import set_num_threads
from workbench.processes import KeptProcess

MODULE = ".".join(["tests.distributed", *sys.argv[1:2]])  # other programs import this file to look for doctests
IMPORTED_BY_RANKS = (MODULE, "tests.distributed.faulty_step", "tests.distributed.misbehaving")


class ForkedKeeper:
    """A child like those of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int | None:
        while self.poll() is None:
            time.sleep(0.005)
        return self.returncode


class ForkedProcess(KeptProcess):
    """A kept function of this program."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._leash, theirs = socket.socketpair()
        self._owner, self._pid = os.getpid(), None
        ready, started = os.pipe()
        if not (pid := os.fork()):
            os.setsid()
            os.write(started, b"x")
            self._leash.close()
            keeper.keep(theirs.detach(), self._owner, run)
        os.read(ready, 1)
        os.close(ready)
        os.close(started)
        theirs.close()
        self._keeper: Any = ForkedKeeper(pid)


class ForkedRank(rank_process.RankProcess):
    """A rank that is forked instead of spawned."""

    def __init__(self, rank: int, world_size: int, board: int, threads: int) -> None:
        self._rank, self._board = rank, ProgressBoard(board, world_size)
        self._stacks = TemporaryFile()  # noqa: SIM115
        self.channel, theirs = Pipe()
        arguments = [theirs.fileno(), board, self._stacks.fileno(), rank, world_size]
        with theirs:
            self._process: Any = ForkedProcess(partial(self._serve, arguments))

    def _serve(self, arguments: list[int]) -> None:
        self.channel.close()
        sys.argv = ["rank", *map(str, arguments)]
        for name in IMPORTED_BY_RANKS:
            sys.modules.pop(name, None)
        rank_child.main()


def outcome(stage: str, fate: str, world_size: int, timeout_seconds: float) -> dict[str, Any]:
    """How a call ends in which the last rank misbehaves, and what it leaves."""
    os.environ["MISBEHAVE"] = f"{stage} {fate} {world_size - 1}"
    begin, me = time.monotonic(), psutil.Process()
    try:
        wb.run_ranks(f"{MODULE}:run", {}, world_size, timeout_seconds=timeout_seconds)
        found: dict[str, Any] = {"message": "no error"}
    except RankError as error:
        found = {"message": str(error), "rank": error.rank, "stage": error.stage}
    found["seconds"] = time.monotonic() - begin
    found["children"] = len(me.children(recursive=True))
    found["ports"] = len([at for at in me.net_connections() if at.status == psutil.CONN_LISTEN])
    return found


def main() -> None:
    assert rank_main and agreement  # imported, for the ranks
    keeper.adopt_orphans()  # to count those that are left
    torch.set_num_threads(1)
    set_num_threads(1)
    list(import_module(MODULE).run({}))  # what this imports and compiles, no rank does again
    rank_pool.RankProcess = ForkedRank  # pyright: ignore[reportAttributeAccessIssue]
    sys.stdout.write(json.dumps([outcome(*case) for case in json.loads(sys.argv[2])]))


if __name__ == "__main__":
    main()
