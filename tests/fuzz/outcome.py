"""Acceptable outcomes of a case: a valid result, or one of a few error types with a helpful message."""

import dis
import re
from pathlib import Path
from types import TracebackType

import workbench
from workbench.core.errors import PartitionError

PACKAGE = str(Path(workbench.__file__).parent)
KINDS = (ValueError, TypeError, LookupError, MemoryError, OverflowError, PartitionError)
_REMEDY = re.compile(
    r"\b(pass|reshape|must|give|use|choose|convert|ask|make|lie|lies|write|move|install|build|needs?|drop|replace|sample|set|"
    r"save|return|take|number|leave|unfreeze|call|put|cut|wrap|flatten|may|allow|train|find|fits?|smaller|only|go|split|"
    r"transpose|restore)\b"
)


def _last(traceback: TracebackType) -> TracebackType:
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def raised_here(error: BaseException) -> bool:
    """Return whether a `raise` statement of the library raised the error, as opposed to torch, NumPy or Python."""
    if error.__traceback__ is None:
        return False
    last = _last(error.__traceback__)
    code = last.tb_frame.f_code
    return code.co_filename.startswith(PACKAGE) and dis.opname[code.co_code[last.tb_lasti]] in (
        "RAISE_VARARGS",
        "RERAISE",
    )


def problem_of(error: BaseException) -> str | None:
    """Return why an error is not helpful, or None if it is."""
    name = f"{type(error).__name__}: {error}"
    if not isinstance(error, KINDS):
        return f"kind of error: {name}"
    if not raised_here(error):
        last = _last(error.__traceback__) if error.__traceback__ else None
        where = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else "?"
        return f"not raised by the library ({where}): {name}"
    text = str(error)
    if len(text) < 20 or not _REMEDY.search(text.lower()):
        return f"neither value nor remedy: {name}"
    return None
