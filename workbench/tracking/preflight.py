"""Translation of MLflow's errors to one line: the store, the reason and the remedy."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from workbench.error_text import text_of
from workbench.tracking.database import ELSEWHERE, has_no_runs
from workbench.tracking.store import StoreError
from workbench.tracking.uri import TRACKING_URI, database_file, shown_uri

_RENAME = "rename the experiment on the server, so that a new one is created whose files the server stores"
_RAW_CHARS = 100_000  # of an error, with the statement that failed
_REASON_HEAD, _REASON_TAIL = 120, 200  # characters; the cause comes last
_NOISE = re.compile(r"\(raised as a result of [^)]*\)")  # SQLAlchemy's advice to authors of queries
_REMEDIES = {  # remedy by text in the reason
    "is locked": "end the process that holds it",
    "is full": "free space there",
    "No space left": "free space there",
    "Disk quota": "free space there",
    "readonly": "make it and its folder writable",
    "Read-only": "make it and its folder writable",
    "Permission": "make it and its folder writable",
}

_F = TypeVar("_F", bound=Callable[..., Any])


def reporting(errors: tuple[type[Exception], ...], explain: Callable[[str, Any], StoreError]) -> Callable[[_F], _F]:
    """Create a decorator for methods of a store that converts errors to one-line StoreErrors.

    Args:
        errors: exceptions that mean that the store failed; all others propagate to the caller.
        explain: builds the StoreError from the store's location and the exception.
    """

    def decorate(method: _F) -> _F:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(self, *args, **kwargs)
            except StoreError:
                raise
            except errors as error:
                raise explain(self.location, error) from None

        return cast(_F, call)

    return decorate


def check_files(location: str, experiment: str, folder: str) -> None:
    """Check that an experiment's artifacts can be accessed from this machine.

    Args:
        location: URI of the store.
        experiment: name of the experiment.
        folder: URI of the folder of its artifacts.

    Raises:
        StoreError: if only a server can access the artifacts, or they are on another machine.
    """
    parts, through_server, shown = urlsplit(folder), location.startswith("http"), shown_uri(location)
    if parts.scheme == "mlflow-artifacts" and not through_server:
        raise StoreError(f"{shown}: a server stores the files of {experiment!r}; set {TRACKING_URI} to that server")
    if through_server and parts.scheme in ("", "file") and not Path(url2pathname(parts.path)).parent.exists():
        raise StoreError(
            f"{shown}: the files of {experiment!r} are in {folder}, which is not on this machine; {_RENAME}"
        )


def unreachable(location: str, error: Exception) -> StoreError:
    """Explain an error of MLflow, its database, its server or its files, with the remedy.

    Args:
        location: URI of the store.
        error: the exception.

    Returns:
        The error to raise.
    """
    text = " ".join(_NOISE.sub("", text_of(error, _RAW_CHARS).partition("[SQL:")[0]).split())
    reason = _shorten(shown_uri(text))
    remedy = _remedy(location, reason)
    return StoreError(f"{shown_uri(location)} can't be used; {remedy} ({type(error).__name__}: {reason})")


def _shorten(text: str) -> str:
    fits = len(text) <= _REASON_HEAD + _REASON_TAIL
    return text if fits else f"{text[:_REASON_HEAD]} … {text[-_REASON_TAIL:]}"


def _remedy(location: str, reason: str) -> str:
    file, shown = database_file(location), shown_uri(location)
    if "out-of-date database schema" in reason:
        return f"it was created by an older MLflow: make a copy and run `python -m mlflow db upgrade {shown}`"
    if known := next((remedy for words, remedy in _REMEDIES.items() if words in reason), None):
        return f"{known}, {ELSEWHERE}"
    if location.startswith("http"):
        return f"start the server, check address and credentials, {ELSEWHERE}"
    if file is not None and file.exists() and has_no_runs(file):
        return f"it is incomplete and contains no runs: move {file} away, and a new one is created"
    return f"check the address, {ELSEWHERE}"
