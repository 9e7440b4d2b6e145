"""Texts of errors that others raise: of any length and characters, and of errors that can't even tell their text.

The standard library alone: it also tells why torch can't be imported.
"""

import traceback
from collections.abc import Iterator

_TEXT_CHARS, _STACK_CHARS = 2_000, 16_000


def printable(text: str) -> str:
    r"""Replace characters that UTF-8 does not have, as in file names of other encodings, by escapes.

    >>> printable("caf\udce9")
    'caf\\udce9'
    """
    return text.encode(errors="backslashreplace").decode()


def shortened(text: str, limit: int = _TEXT_CHARS) -> str:
    """Cut the middle out of a long text, and say how long it was.

    >>> shortened("0123456789" * 10, 20)
    '0123456789 … [100 characters, of which the middle is left out] … 0123456789'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … [{len(text):,} characters, of which the middle is left out] … {text[-half:]}"


def truncated(text: str, length: int) -> str:
    """Cut off the end of a text of more than `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def text_of(error: BaseException, limit: int = _TEXT_CHARS) -> str:
    """The text of an error, `str(error)`, of at most about `limit` characters, all of which can be printed.

    Args:
        error: of any kind, also one whose `str` raises.
        limit: length from which the middle is left out, in characters.
    """
    return printable(shortened(_raw_text(error), limit))


def line_of(error: BaseException) -> str:
    """Type and text of an error in one line.

    >>> line_of(MemoryError("no room\\nfor 4"))
    'MemoryError: no room for 4'
    """
    return f"{type(error).__name__}: {' '.join(text_of(error).split())}".removesuffix(": ")


def stack_of(error: BaseException) -> str:
    """The stack of an error, with those of its causes. A text that `line_of` shortens is not repeated."""
    try:
        text = "".join(traceback.format_exception(error))
        for number, one in enumerate(_chain(error)):
            if len(said := _raw_text(one)) > _TEXT_CHARS:
                text = text.replace(said, shortened(said) if number else "[its text, shortened, is in the error]")
    except Exception as failure:  # of an attribute of the error, or of what looks up lines of its code
        lines = traceback.format_list(traceback.extract_tb(error.__traceback__, limit=-64))
        text = f"{''.join(lines)}{line_of(error)}\n(its causes are not known: {type(failure).__name__})"
    return printable(shortened(text, _STACK_CHARS))


def _raw_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # whatever it is, the error itself must be told
        return f"(no text: its str() raised {type(failure).__name__})"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, each once."""
    found, waiting = set[int](), [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) not in found:
            found.add(id(one))
            yield one
            members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            waiting += [cause for cause in (one.__cause__, one.__context__, *members) if cause is not None]
