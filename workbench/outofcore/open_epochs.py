"""Epochs that are open when the process ends: they are closed first, so that learnt rows reach the disk.

A process ends in an orderly way at the end of its script, by an exception, `sys.exit`, or SIGTERM, as a scheduler and
the restart of a notebook's kernel send it. Threads can't start any more when Python frees what is left over; epochs are
therefore closed before.
"""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import util
from types import FrameType, GeneratorType
from typing import Any, TypeAlias
from weakref import WeakSet

from workbench.core.interrupts import Terminated, complete_despite_interrupt

_WAIT_SECONDS = 3.0
"""How long another thread that is inside an epoch is waited for."""

Epoch: TypeAlias = "GeneratorType[Any, None, None]"

_open: WeakSet[Epoch] = WeakSet()
_saving, _terminated = 0, False
_finalizer_of: int | None = None


def close_at_exit(epoch: Generator[Any, None, None]) -> None:
    """Close an epoch when the process ends, if nothing has closed it before.

    Args:
        epoch: a generator that ends when it is closed.
    """
    global _finalizer_of
    assert isinstance(epoch, GeneratorType)
    _open.add(epoch)
    if multiprocessing.parent_process() is not None and _finalizer_of != os.getpid():
        util.Finalize(None, close_all, exitpriority=100)  # such processes end without the functions of atexit
        _finalizer_of = os.getpid()


def close_all() -> None:
    """Close all open epochs of this process, except those that the caller is inside.

    An epoch that fails does not keep others from being closed.

    Raises:
        Exception: of an epoch, as when the disk is full.
    """
    errors, deadline, inside = [], time.monotonic() + _WAIT_SECONDS, _epochs_around(sys._getframe())
    for epoch in list(_open):
        if epoch in inside:
            continue
        try:
            _close(epoch, deadline)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("several epochs could not be closed", errors)


def _close(epoch: Epoch, deadline: float) -> None:
    while epoch.gi_running and time.monotonic() < deadline:  # in another thread
        time.sleep(0.01)
    if epoch.gi_running:
        raise RuntimeError(
            "the process ends while another thread is inside an epoch of a PartitionBuffer: rows that it has changed "
            "since they were last written are lost; join that thread, or close() the buffer, before the end"
        )
    complete_despite_interrupt(epoch.close)


atexit.register(close_all)


@contextmanager
def saved_on_termination() -> Iterator[None]:
    """Let SIGTERM close all open epochs, and then end the process, while the block runs.

    A handler that the program has set remains. Forked children are ended by SIGTERM at once.
    """
    global _saving
    process, _saving = os.getpid(), _saving + 1
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except Exception:
        if _terminated:  # nobody will see it otherwise
            traceback.print_exc()
        raise
    finally:
        if os.getpid() == process:
            _saving -= 1
            if _terminated:
                _close_and_end()
            elif not _saving:
                _restore_default()


def _terminate(_: int, frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    global _terminated
    _terminated = True
    if _saving and _epochs_around(frame):
        raise Terminated(128 + signal.SIGTERM)  # that epoch ends first, and then the process
    _close_and_end()


def _close_and_end() -> None:
    """Close what is open, and end the process as SIGTERM does."""
    try:
        close_all()
    except Exception:
        traceback.print_exc()
    finally:
        if _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def _epochs_around(frame: FrameType | None) -> set[Epoch]:
    """The epochs whose code has called, directly or not, the function of a frame."""
    running, found = {id(epoch.gi_frame): epoch for epoch in list(_open) if epoch.gi_running}, set()
    while frame is not None and running:
        if id(frame) in running:
            found.add(running[id(frame)])
        frame = frame.f_back
    return found


def _restore_default() -> None:
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _forget_in_child() -> None:
    """Forget the parent's epochs in a forked child: only the parent writes what they have changed."""
    global _saving, _terminated
    _saving, _terminated = 0, False
    _open.clear()
    _restore_default()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
