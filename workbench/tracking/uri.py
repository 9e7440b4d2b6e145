"""Tracking URIs: the default, SQLite files, and redaction of passwords in messages."""

import importlib.util
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from workbench.paths import project_root
from workbench.tracking.store import StoreError

TRACKING_URI = "MLFLOW_TRACKING_URI"
SQLITE = "sqlite:///"

_PASSWORD = re.compile(r"(\w://[^\s/:@]*:)[^\s/]*@")  # a password may contain "@"
_SECRET = re.compile(r"([?&][\w.-]*(?:password|passwd|pwd|token|secret|key)=)[^\s&]*", re.IGNORECASE)


def tracking_uri(uri: str | None = None, *, root: Path | None = None) -> str:
    """Return the absolute location of the store.

    Args:
        uri: "sqlite:////absolute/path.db", "http://host:port", another URI of MLflow, or a file that ends in ".jsonl";
            by default MLFLOW_TRACKING_URI, otherwise `mlflow.db` in `root`, or `runs.jsonl` there without MLflow.
        root: folder of the default store; by default the checkout this package is imported from, otherwise the current
            folder.

    Raises:
        StoreError: if the URI is a relative database path, or a folder, which MLflow no longer supports.
    """
    given = uri or os.environ.get(TRACKING_URI)
    shown = shown_uri(given or "")
    if not given:
        folder = (root or project_root()).absolute()
        return database_uri(folder / "mlflow.db") if has_mlflow() else str(folder / "runs.jsonl")
    if given.endswith(".jsonl"):
        return str(Path(given.removeprefix("file://")).expanduser().absolute())
    if given.startswith("sqlite:") and database_file(given) is None:
        # MLflow would resolve it against the current folder, which differs between notebooks, terminals and the UI.
        raise StoreError(f"{shown!r} is relative to the current folder; write {SQLITE}/absolute/path.db (4 slashes)")
    if "://" not in given or given.startswith("file:"):
        raise StoreError(
            f"{shown!r} is not a store: write sqlite:////absolute/path.db, http://host:port or a .jsonl file"
        )
    return given


def shown_uri(text: str) -> str:
    """Redact passwords and tokens in a URI, or in a message that contains URIs.

    >>> shown_uri("no answer from http://me:secret@host:5000/api?token=abc")
    'no answer from http://me:***@host:5000/api?token=***'
    """
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def database_uri(file: Path) -> str:
    """Return the URI of an SQLite database, with reserved characters of its path escaped."""
    return f"{SQLITE}{quote(str(file))}"


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite database; None for other URIs and for relative paths."""
    path = Path(unquote(uri.removeprefix(SQLITE).partition("?")[0]))
    return path if uri.startswith(SQLITE) and path.is_absolute() else None


def has_mlflow() -> bool:
    """Return whether MLflow is installed, without importing it."""
    return importlib.util.find_spec("mlflow") is not None
