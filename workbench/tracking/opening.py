"""`open_store`: the store of a tracking URI; `finished_points`: what a store has, without importing MLflow."""

import os
from collections import Counter
from pathlib import Path

from workbench.paths import project_root
from workbench.tracking.store import Store, StoreError, has_mlflow, query_database, shown_uri, tracking_uri


def open_store(uri: str | os.PathLike[str] | None = None, *, root: Path | None = None) -> Store:
    """Return the store of a tracking URI, without reading or creating anything yet.

    Args:
        uri: "sqlite:////absolute/path.db", "http://host:port", another URI of MLflow, or a file that ends in ".jsonl";
            text or a path; by default MLFLOW_TRACKING_URI, otherwise `mlflow.db` in `root`, or `runs.jsonl` there
            without MLflow.
        root: folder of the default store; by default the checkout this package is imported from, otherwise the current
            folder.

    Raises:
        StoreError: if the URI is invalid, or needs MLflow and MLflow is not installed.
    """
    location = tracking_uri(None if uri is None else os.fspath(uri), root=root)
    if location.endswith(".jsonl"):
        from workbench.tracking.file_store import FileStore

        return FileStore(location)
    if not has_mlflow():
        raise StoreError(
            f"{shown_uri(location)}: MLflow is not installed; install it, or use a file that ends in .jsonl"
        )
    from workbench.tracking.mlflow_store import MlflowStore

    return MlflowStore(location, root=root or project_root())


_FINISHED = """
SELECT sweep.value, size.value, COUNT(DISTINCT key.value) FROM runs
JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = 'kind' AND kind.value = 'point'
JOIN tags AS sweep ON sweep.run_uuid = runs.run_uuid AND sweep.key = 'sweep'
JOIN tags AS size ON size.run_uuid = runs.run_uuid AND size.key = 'size'
JOIN tags AS key ON key.run_uuid = runs.run_uuid AND key.key = 'key'
WHERE runs.status = 'FINISHED' AND runs.lifecycle_stage = 'active' GROUP BY sweep.value, size.value
"""


def finished_points(uri: str) -> dict[tuple[str, str], int]:
    """Count the finished points of every sweep and size, whatever code ran them.

    Args:
        uri: tracking URI; of a server, or of a store that does not exist, nothing is known.

    Returns:
        (sweep, size) to the number of points.
    """
    if uri.endswith(".jsonl"):
        return _in_a_file(Path(uri))
    return {(sweep, size): count for sweep, size, count in query_database(uri, _FINISHED)}


def _in_a_file(file: Path) -> dict[tuple[str, str], int]:
    from workbench.tracking.file_store import FileStore

    if not file.exists():
        return {}
    keys = {(run.point.sweep, run.point.size, run.point.key) for run in FileStore(file).runs()}
    return dict(Counter((sweep, size) for sweep, size, _ in keys))
