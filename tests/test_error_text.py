"""Texts of errors: any length, any characters, and errors that can't tell theirs."""

import pytest

from workbench.core.errors import RankError
from workbench.distributed import rank_child
from workbench.distributed.progress import FUNCTION, Progress, Reporter
from workbench.distributed.rank_pool import RankState, failed_rank
from workbench.error_text import line_of, printable, shortened, stack_of, text_of
from workbench.experiment.attempt import described

TEN_MB = 10_000_000


class Mute(Exception):
    """An error whose text can't be had."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    def __str__(self) -> str:
        raise self.failure


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # pyright: ignore[reportReturnType]


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def fails_far_away(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as cause:
        try:
            raise LookupError("the consequence") from cause
        except LookupError as raised:
            return raised


@pytest.mark.parametrize(
    "error", [Mute(ArithmeticError()), Mute(SystemExit(3)), Mute(KeyboardInterrupt()), NoText(), Mute(RecursionError())]
)
def test_an_error_whose_text_raises_keeps_its_type_and_stack(error):
    told = line_of(caught(error)), stack_of(caught(error))
    assert told[0].startswith(f"{type(error).__name__}: (no text: its str() raised ")
    assert "test_error_text.py" in told[1] and "raise error" in told[1] and type(error).__name__ in told[1]


def test_a_long_text_keeps_its_ends_and_tells_its_size_once():
    error = caught(ValueError("begin " + "x" * (TEN_MB - 10) + " end"))
    line, stack = line_of(error), stack_of(error)
    assert line.startswith("ValueError: begin xxx") and line.endswith("xxx end")
    assert (line + stack).count("10,000,000 characters") == 1 and len(line) + len(stack) < 10_000
    assert "raise error" in stack


@pytest.mark.parametrize("lines", [True, False])
def test_long_texts_of_causes_notes_and_groups_are_shortened(lines):
    long = ("line\n" if lines else "text ") * 200_000
    cause = fails_far_away(ValueError(long))
    cause.add_note(long)
    told = stack_of(cause)
    assert len(told) < 20_000 and "raise LookupError" in told and "fails_far_away" in told
    group = caught(BaseExceptionGroup("several", [ValueError(long), cause]))
    assert len(stack_of(group)) < 20_000 and "several" in line_of(group)


def test_surrogates_can_be_printed():
    error = caught(OSError("caf\udce9 \ud800"))
    for text in (line_of(error), stack_of(error), text_of(error), *described(error)):
        assert "caf\\udce9 \\ud800" in text and text.encode()
    assert printable("é ✓") == "é ✓"


def test_short_texts_stay_as_they_are():
    text = "two\n  lines"
    assert text_of(ValueError(text)) == text and shortened("x" * 2000) == "x" * 2000
    assert line_of(ValueError(text)) == "ValueError: two lines" and line_of(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    "error", [ValueError("a" * TEN_MB), Mute(SystemExit()), ValueError("caf\udce9"), SystemExit(2)]
)
def test_a_rank_reports_any_error(monkeypatch, error):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(rank_child, "_rows", fail)
    found = rank_child._outcome(None, Reporter())  # pyright: ignore[reportArgumentType]
    state = RankState(0, Progress(FUNCTION), found.error, found.trace or "", found.failed_at)
    told = failed_rank("m:f", [state])
    assert isinstance(told, RankError) and f": {type(error).__name__}: " in str(told) and "test_error_text" in str(told)
    assert len(str(told).encode()) < 10_000 and str(told).count("characters") == (len(str(found.error)) > 1000)
