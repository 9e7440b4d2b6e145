"""Errors of MLflow's stores as one line: the store, the reason, the remedy."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from workbench.tracking.database import ELSEWHERE, has_no_runs
from workbench.tracking.store import TRACKING_URI, StoreError, database_file, shown_uri

_OTHER_FILES = "rename it there, so that a new one is made whose files the server takes"
_REASON_HEAD, _REASON_TAIL = 120, 200  # characters; the cause comes last
_NOISE = re.compile(r"\(raised as a result of [^)]*\)")  # SQLAlchemy's advice to those who write queries
_REMEDIES = {  # words of a reason, to what helps
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
    """Decorator of a store's methods: these errors become StoreErrors of one line.

    Args:
        errors: that mean that the store failed; others are the caller's.
        explain: from the store's location and the error.
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


def check_files(location: str, experiment: str, place: str) -> None:
    """See that an experiment's artifacts can be read and written from here.

    Args:
        location: URI of the store.
        experiment: its name.
        place: URI of the folder of its artifacts.

    Raises:
        StoreError: a server keeps them, or they lie on another machine.
    """
    parts, through_server, shown = urlsplit(place), location.startswith("http"), shown_uri(location)
    if parts.scheme == "mlflow-artifacts" and not through_server:
        raise StoreError(f"{shown}: a server keeps the files of {experiment!r}; set {TRACKING_URI} to that server")
    if through_server and parts.scheme in ("", "file") and not Path(url2pathname(parts.path)).parent.exists():
        raise StoreError(f"{shown}: {experiment!r} keeps its files in {place}, which is not here; {_OTHER_FILES}")


def unreachable(location: str, error: Exception) -> StoreError:
    """What a user can do about an error of MLflow's, its database, its server or its files."""
    text = " ".join(_NOISE.sub("", str(error).partition("[SQL:")[0]).split())
    reason = _shorten(shown_uri(text))
    remedy = _remedy(location, reason)
    return StoreError(f"{shown_uri(location)} can't be used; {remedy} ({type(error).__name__}: {reason})")


def _shorten(text: str) -> str:
    whole = len(text) <= _REASON_HEAD + _REASON_TAIL
    return text if whole else f"{text[:_REASON_HEAD]} … {text[-_REASON_TAIL:]}"


def _remedy(location: str, reason: str) -> str:
    file, shown = database_file(location), shown_uri(location)
    if "out-of-date database schema" in reason:
        return f"it was made by an older MLflow: keep a copy and run `python -m mlflow db upgrade {shown}`"
    if known := next((remedy for words, remedy in _REMEDIES.items() if words in reason), None):
        return f"{known}, {ELSEWHERE}"
    if location.startswith("http"):
        return f"start the server, check address and credentials, {ELSEWHERE}"
    if file is not None and file.exists() and has_no_runs(file):
        return f"it is incomplete and contains no runs: move {file} away, and a new one is created"
    return f"check the address, {ELSEWHERE}"
