"""The child's side of `rank_process`: runs one function after the other as a rank."""

import faulthandler
import os
import signal
import sys
import time
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from workbench.distributed.progress import IMPORT, ProgressBoard, Reporter
from workbench.error_text import line_of, stack_of

if TYPE_CHECKING:  # they import torch; the child watches its parent before it imports anything large
    from workbench.distributed.rank_process import Order, Outcome


def main() -> None:
    """The child's program: until the channel is closed, receive an order, run it, send the outcome."""
    channel_file, board_file, stacks_file, rank, world_size = map(int, sys.argv[1:6])
    channel = Connection(channel_file)
    faulthandler.enable(stacks_file)
    faulthandler.register(signal.SIGUSR1, stacks_file)
    reporter = Reporter(ProgressBoard(board_file, world_size), rank)
    reporter.enter(IMPORT)  # from here on, the parent may ask for stacks
    reporter.watch_collectives()
    while True:
        try:
            order = channel.recv()
        except EOFError:
            return
        channel.send(_outcome(order, reporter))


def _outcome(order: "Order", reporter: Reporter) -> "Outcome":
    from workbench.distributed.rank_process import Outcome

    try:
        return Outcome(rows=_rows(order, reporter))
    except BaseException as error:  # sys.exit must not end the rank without a report
        return Outcome(error=line_of(error), trace=stack_of(error), failed_at=time.monotonic())


def _rows(order: "Order", reporter: Reporter) -> list[dict[str, object]]:
    from workbench.distributed.rank_main import run_rank

    os.environ.update(order.environment)
    if order.package is not None:
        _find_package(*order.package)
    return run_rank(
        order.function,
        order.config,
        backend=order.backend,
        timeout_seconds=order.timeout_seconds,
        reporter=reporter,
    )


def _find_package(name: str, path: list[str]) -> None:
    """Make a package look where the parent's looks: sys.path does not always lead to that of experiments."""
    try:
        package = import_module(name)
    except ModuleNotFoundError:
        package = sys.modules[name] = module_from_spec(ModuleSpec(name, None, is_package=True))
    if [*package.__path__] != path:
        package.__path__ = path
        for module in [module for module in sys.modules if module.startswith(f"{name}.")]:
            del sys.modules[module]  # of an earlier call
