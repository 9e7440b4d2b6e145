"""One rank in a process of its own, which ends with this process, and the order that it is sent.

The order is a function by name and a JSON configuration, validated before any process starts.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from tempfile import TemporaryFile
from typing import Any

from workbench.core.errors import type_name
from workbench.distributed.progress import DONE, IMPORT, START, Progress, ProgressBoard
from workbench.distributed.rank_main import find_function
from workbench.processes import KeptProcess

_MAIN = "workbench.distributed.rank_child:main"  # a text that the import closures of experiments follow

_CHILD = "import sys; sys.path[:] = sys.argv[6:]; from {0} import {1}; {1}()".format(*_MAIN.split(":"))

_STACK_BYTES = 8192

_END_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """How a rank's function ended.

    Args:
        rows: None if it failed.
        error: one line; None if it returned.
        trace: stack of the error.
        failed_at: seconds of the system's monotonic clock, which all processes share.
    """

    rows: list[dict[str, Any]] | None = None
    error: str | None = None
    trace: str | None = None
    failed_at: float = 0.0


@dataclass(frozen=True)
class Order:
    """The order to run a function, sent to a rank.

    Args:
        function: "module:function".
        config: its argument, JSON values.
        environment: of the rendezvous.
        backend: of `torch.distributed`.
        timeout_seconds: of the rendezvous and of each collective.
        package: name and path of the function's top-level package; None if its module is in no package.
    """

    function: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    backend: str
    timeout_seconds: float
    package: tuple[str, list[str]] | None


class RankProcess:
    """A child process that runs functions as one rank. It is spawned, not forked: CUDA and threads survive no fork.

    Args:
        rank: of the process.
        world_size: number of ranks.
        board: file of the `ProgressBoard`.
        threads: of torch and of the library's kernels.
    """

    def __init__(self, rank: int, world_size: int, board: int, threads: int) -> None:
        self._rank, self._board = rank, ProgressBoard(board, world_size)
        self._stacks = TemporaryFile()  # noqa: SIM115  # closed with the process
        self.channel, theirs = Pipe()
        files = [theirs.fileno(), board, self._stacks.fileno()]
        about = [*map(str, (*files, rank, world_size))]
        with theirs:
            self._process = KeptProcess(
                [sys.executable, "-c", _CHILD, *about, *sys.path],
                pass_fds=files,
                environment=os.environ | {"WORKBENCH_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def progress(self) -> Progress:
        """How far the rank has come."""
        return self._board.read(self._rank)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while the process runs."""
        return self._process.status

    def send(self, order: Order) -> None:
        """Send an order; a process that has died shows in its status."""
        if self.progress.stage == DONE:  # with its last order
            self._board.write(self._rank, Progress(IMPORT))
        with suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(order)

    def outcome(self) -> Outcome | None:
        """The outcome, if it is there."""
        with suppress(EOFError, OSError):  # killed before or while it sent
            if self.channel.poll():
                return self.channel.recv()
            return None
        self._process.wait(_END_SECONDS)  # the channel closes a moment before the process has ended
        return None

    def ask_stack(self) -> None:
        """Ask a process that hangs for the stacks of its threads; see `stack`."""
        if self.progress.stage > START:  # before, the signal would end it
            self._process.send_signal(signal.SIGUSR1)

    def stack(self) -> str:
        """Stacks of a process that was asked for them a moment ago, or that crashed; empty if it was killed."""
        return os.pread(self._stacks.fileno(), _STACK_BYTES, 0).decode(errors="replace")

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        self._process.kill()
        self.channel.close()
        self._stacks.close()


_NOT_JSON = (float("inf"), float("-inf"))


def function_name(function: str | Callable[..., Any]) -> str:
    """The name by which ranks import a function, after importing it here.

    Args:
        function: "module:function", or a function of a module.
    """
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    found = find_function(name)
    if not isinstance(function, str) and found is not function:
        raise ValueError(f"{name!r} is another function than the one that was passed; pass a function of a module")
    return name


def package_of(name: str) -> tuple[str, list[str]] | None:
    """Name and path of the package that "package.module:function" starts with; None if it is a module."""
    package = name.partition(":")[0].partition(".")[0]
    path = getattr(sys.modules[package], "__path__", None)
    return None if path is None else (package, [*path])


def check_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as ranks receive it: tuples become lists.

    Args:
        config: JSON values.
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a mapping of JSON values, not a {type_name(config)}")
    _check_json("config", config)
    return json.loads(json.dumps(config, default=dict))


def _check_json(where: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys of JSON are strings")
            _check_json(f"{where}[{key!r}]", inner)
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            _check_json(f"{where}[{position}]", inner)
    elif not (value is None or isinstance(value, bool | int | float | str)) or value in _NOT_JSON or value != value:
        raise TypeError(
            f"{where} is {value!r}, which JSON does not have; ranks receive numbers, strings, bools, None, lists and "
            "mappings, such as config.model_dump(mode='json')"
        )
