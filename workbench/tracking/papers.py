"""MLflow's experiments: one for each paper."""

from typing import Any

from workbench.tracking.reach import check_files
from workbench.tracking.store import StoreError, shown_uri


def find_experiment(client: Any, location: str, paper: str) -> str | None:
    """Id of a paper's experiment; None if there is none.

    Args:
        client: MLflow's.
        location: URI of its store.
        paper: name of the experiment.

    Raises:
        StoreError: it was deleted, or its files cannot be reached from here.
    """
    found = client.get_experiment_by_name(paper)
    if found is None:
        return None
    if found.lifecycle_stage != "active":
        restore = f"mlflow experiments restore --experiment-id {found.experiment_id}"
        where = shown_uri(location)
        raise StoreError(f"{where}: experiment {paper!r} was deleted; `{restore}`, or `mlflow gc` for good")
    check_files(location, paper, found.artifact_location)
    return found.experiment_id


def create_experiment(client: Any, location: str, paper: str, files: str | None) -> str:
    """Id of a paper's experiment, which another process may be creating at the same moment.

    Args:
        client: MLflow's.
        location: URI of its store.
        paper: name of the experiment.
        files: URI of the folder of its artifacts; None: a server decides.
    """
    try:
        return client.create_experiment(paper, artifact_location=files)
    except Exception as error:
        if getattr(error, "error_code", None) != "RESOURCE_ALREADY_EXISTS":
            raise
        by_another = find_experiment(client, location, paper)
        if by_another is None:
            raise
        return by_another
