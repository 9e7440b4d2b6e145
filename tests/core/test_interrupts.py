"""Interrupts that wait: raised when the block is left, in any order of blocks, and never lost."""

import os
import signal
import threading

import pytest

from workbench.core import interrupts
from workbench.core.interrupts import deferred_interrupt, surely


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


def test_work_is_surely_done_when_the_interrupt_comes_before_its_deferral(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = deferred_interrupt.__enter__
    moments = iter([interrupt])

    def interrupted_enter(block: deferred_interrupt) -> deferred_interrupt:
        next(moments, lambda: None)()
        return enter(block)

    done = []
    monkeypatch.setattr(interrupts.deferred_interrupt, "__enter__", interrupted_enter)
    with pytest.raises(KeyboardInterrupt):
        surely(lambda: done.append(1))
    assert done == [1]


def test_work_is_done_and_the_interrupt_raised_when_it_comes_in_it() -> None:
    done = []

    def work() -> None:
        interrupt()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        surely(work)
    assert done[0] == 1
    surely(lambda: done.clear())
    assert done == []
