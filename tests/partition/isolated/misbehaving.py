"""A program for `run_program` that misbehaves in every way that a partitioner might."""

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Mapping


def run(arrays: Mapping[str, memoryview], *, act: str, value: int = 0) -> None:
    globals()[act](arrays, value)


def double(arrays: Mapping[str, memoryview], value: int) -> None:
    arrays["part"][:] = array("q", (2 * number for number in arrays["given"]))


def ids(arrays: Mapping[str, memoryview], value: int) -> None:
    arrays["part"][0], arrays["part"][1] = os.getppid(), os.getpid()


def say_and_fail(arrays: Mapping[str, memoryview], value: int) -> None:
    sys.stdout.write("a long line " * 100_000)
    raise ValueError(f"{value} is too much")


def say(arrays: Mapping[str, memoryview], value: int) -> None:
    os.write(1, b"to standard output\n" * value)
    os.write(2, b"to standard error\n" * value)


def leave(arrays: Mapping[str, memoryview], value: int) -> None:
    os._exit(value)


def crash(arrays: Mapping[str, memoryview], value: int) -> None:
    os.kill(os.getpid(), value)


def abort(arrays: Mapping[str, memoryview], value: int) -> None:
    os.write(2, b"***ASSERTION failed\n")
    os.abort()


def sleep(arrays: Mapping[str, memoryview], value: int) -> None:
    time.sleep(3600)


def leave_a_child(arrays: Mapping[str, memoryview], value: int) -> None:
    """The child, in a session of its own, has the output open."""
    arrays["part"][0] = subprocess.Popen(["sleep", "600"], start_new_session=bool(value)).pid


def sleep_with_a_child(arrays: Mapping[str, memoryview], value: int) -> None:
    leave_a_child(arrays, value)
    time.sleep(3600)


def close_output_and_sleep(arrays: Mapping[str, memoryview], value: int) -> None:
    os.closerange(1, 3)
    time.sleep(3600)


def talk_without_end(arrays: Mapping[str, memoryview], value: int) -> None:
    while True:
        os.write(1, b"still here\n" * 1000)


def ignore_signals_and_sleep(arrays: Mapping[str, memoryview], value: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


def take_memory(arrays: Mapping[str, memoryview], value: int) -> None:
    block = bytearray(value)
    block[::4096] = b"x" * len(block[::4096])


def kill_worker(arrays: Mapping[str, memoryview], value: int) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


state = 0


def count(arrays: Mapping[str, memoryview], value: int) -> None:
    global state
    state += 1
    arrays["part"][0] = state
