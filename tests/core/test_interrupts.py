"""Interrupts that wait: raised when the block is left, in any order of blocks, and never lost."""

import os
import signal
import threading

import pytest

from workbench.core.interrupts import deferred_interrupt


def interrupt() -> None:
    """A real SIGINT, handled before this returns."""
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))


def test_the_block_ends_before_the_interrupt() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
        interrupt()
        done.append(1)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_is_raised() -> None:
    with deferred_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_nest() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
        with deferred_interrupt():
            interrupt()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_an_error_of_the_block_is_the_context() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, deferred_interrupt():  # noqa: PT012
        interrupt()
        raise KeyError("own")
    assert isinstance(caught.value.__context__, KeyError)


def test_a_second_interrupt_is_raised_at_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
        interrupt()
        done.append(1)
        interrupt()
        done.append(2)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_python_function_stays(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with deferred_interrupt():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_run_as_always() -> None:
    ran = []

    def work() -> None:
        with deferred_interrupt():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
