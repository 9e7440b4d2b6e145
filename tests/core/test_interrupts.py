"""Deferred interrupts are raised when the outermost block exits, and never lost."""

import os
import signal
import threading

import pytest

from workbench.core import errors as interrupts
from workbench.core.errors import Terminated, complete_despite_interrupt, deferred_interrupt


def interrupt() -> None:
    """Send a real SIGINT and return after it was handled."""
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))


def test_the_interrupt_is_raised_after_the_block() -> None:
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


def test_an_exception_of_the_block_becomes_the_context() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, deferred_interrupt():  # noqa: PT012
        interrupt()
        raise KeyError("of the block")
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
def test_handlers_that_are_not_python_functions_stay(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with deferred_interrupt():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_not_affected() -> None:
    ran = []

    def work() -> None:
        with deferred_interrupt():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]


def test_cleanup_completes_when_the_interrupt_precedes_its_deferral(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = deferred_interrupt.__enter__
    moments = iter([interrupt])

    def interrupted_enter(block: deferred_interrupt) -> deferred_interrupt:
        next(moments, lambda: None)()
        return enter(block)

    done = []
    monkeypatch.setattr(interrupts.deferred_interrupt, "__enter__", interrupted_enter)
    with pytest.raises(KeyboardInterrupt):
        complete_despite_interrupt(lambda: done.append(1))
    assert done == [1]


def test_cleanup_completes_before_an_interrupt_during_it_is_raised() -> None:
    done = []

    def work() -> None:
        interrupt()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        complete_despite_interrupt(work)
    assert done[0] == 1
    complete_despite_interrupt(lambda: done.clear())
    assert done == []


def test_a_handler_of_termination_runs_after_the_block_and_cleanup_is_completed() -> None:
    def terminate(number: int, _: object) -> None:
        raise Terminated(number)

    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))
        done.append(1)

    done, before = [], signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(Terminated), deferred_interrupt():
            work()
        assert done == [1] and signal.getsignal(signal.SIGTERM) is terminate
        with pytest.raises(Terminated):
            complete_despite_interrupt(work)
        assert len(done) >= 2 and signal.getsignal(signal.SIGTERM) is terminate  # work is idempotent
    finally:
        signal.signal(signal.SIGTERM, before)
