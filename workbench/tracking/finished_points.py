"""Which sweeps have finished points in a store on this machine, without importing MLflow or reading rows."""

import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from workbench.tracking.uri import database_file

_QUERY = """
SELECT sweep.value, size.value, COUNT(DISTINCT key.value) FROM runs
JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = 'kind' AND kind.value = 'point'
JOIN tags AS sweep ON sweep.run_uuid = runs.run_uuid AND sweep.key = 'sweep'
JOIN tags AS size ON size.run_uuid = runs.run_uuid AND size.key = 'size'
JOIN tags AS key ON key.run_uuid = runs.run_uuid AND key.key = 'key'
WHERE runs.status = 'FINISHED' AND runs.lifecycle_stage = 'active' GROUP BY sweep.value, size.value
"""


def finished_points(uri: str) -> dict[tuple[str, str], int]:
    """Counts the finished points of every sweep and size, whatever code ran them.

    Args:
        uri: tracking URI; of a server, or of a store that does not exist, nothing is known.

    Returns:
        (sweep, size) to the number of points.
    """
    if uri.endswith(".jsonl"):
        return _in_a_file(Path(uri))
    file = database_file(uri)
    with suppress(sqlite3.Error):
        if file is not None and file.is_file():
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
                return {(sweep, size): count for sweep, size, count in database.execute(_QUERY)}
    return {}


def _in_a_file(file: Path) -> dict[tuple[str, str], int]:
    from workbench.tracking.file_store import FileStore

    if not file.exists():
        return {}
    keys = {(run.point.sweep, run.point.size, run.point.key) for run in FileStore(file).runs()}
    return dict(Counter((sweep, size) for sweep, size, _ in keys))
