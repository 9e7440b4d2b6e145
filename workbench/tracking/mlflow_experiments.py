"""MLflow experiments, one per paper."""

from typing import Any

from workbench.tracking.preflight import check_files
from workbench.tracking.store import StoreError
from workbench.tracking.uri import shown_uri


def find_experiment(client: Any, location: str, paper: str) -> str | None:
    """Return the id of a paper's experiment, or None if it does not exist.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment.

    Raises:
        StoreError: if the experiment was deleted, or its artifacts can't be accessed from this machine.
    """
    experiment = client.get_experiment_by_name(paper)
    if experiment is None:
        return None
    if experiment.lifecycle_stage != "active":
        restore = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
        raise StoreError(
            f"{shown_uri(location)}: experiment {paper!r} was deleted; restore it with `{restore}`, or delete it "
            "permanently with `mlflow gc`"
        )
    check_files(location, paper, experiment.artifact_location)
    return experiment.experiment_id


def create_experiment(client: Any, location: str, paper: str, files: str | None, title: str = "") -> str:
    """Create a paper's experiment and return its id; another process may be creating it concurrently.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment.
        files: URI of the artifact folder; None lets the server choose it.
        title: the paper as people cite it, for the description.

    Raises:
        StoreError: if the experiment was deleted, or its artifacts can't be accessed from this machine.
    """
    try:
        return client.create_experiment(paper, artifact_location=files, tags=_about(paper, title))
    except Exception as error:
        if getattr(error, "error_code", None) != "RESOURCE_ALREADY_EXISTS":
            raise
        experiment_id = find_experiment(client, location, paper)
        if experiment_id is None:
            raise
        return experiment_id


def _about(paper: str, title: str) -> dict[str, str]:
    """A description, and the kind that makes MLflow open its pages for models instead of those for language models."""
    return {
        "mlflow.note.content": f"**{title or paper}**, reproduced: one run per grid point, and one per figure with its "
        f'plot, table and verdicts. `tags.sweep = "{paper}/fig11"` selects the points of a figure; `make ui` prints a '
        "link for each. Parameters are the configuration, the file rows.json has the results, metrics mirror them.",
        "mlflow.experimentKind": "custom_model_development",
    }
