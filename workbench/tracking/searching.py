"""Paginated search for MLflow runs by tags."""

from collections.abc import Iterator
from typing import Any

from workbench.tracking.mlflow_experiments import find_experiment
from workbench.tracking.tags import quoted

PAGE = 1000
"""The API's maximum of runs per response."""


def search_runs(
    client: Any, location: str, paper: str | None, *, status: str | None = None, **tags: str | None
) -> list[Any]:
    """Return the runs that have these tags, oldest first.

    Args:
        client: MLflow client.
        location: URI of the store.
        paper: name of the experiment to search; None for all experiments.
        status: status of the runs; None for any status.
        tags: values by name; None for any value.
    """
    if paper is None:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    else:
        experiments = list(filter(None, [find_experiment(client, location, paper)]))
    terms = [f"tags.`{name}` = {quoted(value)}" for name, value in tags.items() if value is not None]
    terms += [f"attributes.status = '{status}'"] if status else []
    return list(_pages(client, experiments, " and ".join(terms))) if experiments else []


def _pages(client: Any, experiments: list[str], terms: str) -> Iterator[Any]:
    order, token = ["attributes.start_time ASC"], None
    while True:
        page = client.search_runs(experiments, terms, max_results=PAGE, order_by=order, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
