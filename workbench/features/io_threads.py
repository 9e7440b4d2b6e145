"""Threads that wait for a device, many more than there are cores; they end with the call that started them."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from workbench.core.interrupts import complete_despite_interrupt, deferred_interrupt


def run_waiting(tasks: Sequence[Callable[[], object]], threads: int) -> None:
    """Run tasks that mostly wait, in the calling thread and threads of their own, and return when all are done.

    After an error or an interrupt no further task starts, and the call returns when those that run have ended. No
    thread outlives the call, so that a fork, an interrupt or a forgotten object leaves none behind.

    Args:
        tasks: functions without arguments.
        threads: number of threads, the calling one included; fewer if the system can't start so many, as at the end of
            the interpreter.
    """
    waiting, errors = deque(tasks), []

    def work() -> None:
        try:
            while True:
                try:
                    task = waiting.popleft()
                except IndexError:
                    return
                task()
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)
            waiting.clear()

    helpers: list[threading.Thread] = []

    def join() -> None:
        waiting.clear()
        for helper in helpers:
            helper.join()

    try:
        with deferred_interrupt(), suppress(RuntimeError):  # a thread is either not started, or in the list
            # A thread that is started while the interpreter ends never runs, and its start is waited for, for ever.
            for _ in range(0 if sys.is_finalizing() else min(threads, len(tasks)) - 1):
                helper = threading.Thread(target=work, name="workbench-io", daemon=True)
                helper.start()
                helpers.append(helper)
        work()
        complete_despite_interrupt(join)
        if errors:
            raise errors[0]
    finally:
        complete_despite_interrupt(join)
        errors.clear()  # an error refers to this frame: without a cycle, what the tasks refer to is freed with it
