"""`open_store`: the store of a tracking URI."""

from pathlib import Path

from workbench.paths import project_root
from workbench.tracking.store import Store, StoreError
from workbench.tracking.uri import has_mlflow, shown_uri, tracking_uri


def open_store(uri: str | None = None, *, root: Path | None = None) -> Store:
    """Return the store of a tracking URI, without reading or creating anything yet.

    Args:
        uri: "sqlite:////absolute/path.db", "http://host:port", another URI of MLflow, or a file that ends in ".jsonl";
            by default MLFLOW_TRACKING_URI, otherwise `mlflow.db` in `root`, or `runs.jsonl` there without MLflow.
        root: folder of the default store; by default the checkout this package is imported from, otherwise the current
            folder.

    Raises:
        StoreError: if the URI is invalid, or needs MLflow and MLflow is not installed.
    """
    location = tracking_uri(uri, root=root)
    if location.endswith(".jsonl"):
        from workbench.tracking.file_store import FileStore

        return FileStore(location)
    if not has_mlflow():
        raise StoreError(
            f"{shown_uri(location)}: MLflow is not installed; install it, or use a file that ends in .jsonl"
        )
    from workbench.tracking.mlflow_store import MlflowStore

    return MlflowStore(location, root=root or project_root())
