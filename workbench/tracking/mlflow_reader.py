"""Conversion of MLflow's runs to `Run`: points from tags, configuration and rows from artifacts."""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import yaml

from workbench.core.errors import CorruptFileError
from workbench.error_text import text_of
from workbench.tracking.record import FINISHED, Run, check_run
from workbench.tracking.tags import ERROR, dataset_of, point_of

CONFIG, ROWS = "config.yaml", "rows.json"

Download = Callable[[Any, str, str], None]
"""Downloads an artifact, given a run, the artifact's name and a folder; raises FileNotFoundError if it is missing."""

_NUM_DOWNLOADS = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _DamagedError(Exception):
    """A file of a run is missing or damaged."""


def read_runs(entities: Iterable[Any], download: Download) -> list[Run]:
    """Convert MLflow's runs, ordered by start; runs with missing or damaged rows or tags are skipped with a warning.

    Args:
        entities: runs as MLflow returns them.
        download: function for artifacts that are not on this machine.
    """
    entities = list(entities)
    read = partial(_read, download=download)
    if all(local_folder(entity) for entity in entities):
        runs = [read(entity) for entity in entities]
    else:
        with ThreadPoolExecutor(_NUM_DOWNLOADS) as pool:
            runs = list(pool.map(read, entities))
    return sorted((run for run in runs if run is not None), key=lambda run: run.started_at)


def _read(entity: Any, download: Download) -> Run | None:
    """Convert a run; warn and return None if its point must run again, because a power cut emptied its files, say."""
    try:
        return check_run(_run(entity, download), "the run")
    except _DamagedError as error:
        problem = str(error)
    except (CorruptFileError, KeyError, TypeError) as error:
        problem = f"its tags are not those of a point ({text_of(error)})"
    warnings.warn(
        f"run {entity.info.run_id} is left out, its point runs again: {problem}; delete the run or restore the file",
        stacklevel=2,
    )
    return None


def _run(entity: Any, download: Download) -> Run:
    info, tags, finished = entity.info, entity.data.tags, entity.info.status == FINISHED
    config = _parsed(entity, CONFIG, download, lambda text: yaml.load(text, _LOADER), dict)
    rows = _parsed(entity, ROWS, download, json.loads, list) if finished else []
    inputs = [entry.dataset for entry in (entity.inputs.dataset_inputs if entity.inputs else ())]
    dataset = dataset_of(tags, inputs[0].source, inputs[0].profile) if inputs else None
    return Run(
        point_of(tags, config, dataset),
        info.run_id,
        info.status,
        tuple(rows),
        tags.get(ERROR),
        info.start_time / 1000,
        None if info.end_time is None else max(0.0, (info.end_time - info.start_time) / 1000),
    )


def _parsed(entity: Any, name: str, download: Download, parse: Callable[[str], Any], kind: type) -> Any:
    """Return the parsed contents of an artifact, which may be missing for a run that did not finish."""
    folder = entity.info.artifact_uri
    try:
        if (text := _text(entity, name, download)) is None:
            if entity.info.status != FINISHED:
                return kind()
            raise _DamagedError(f"{name} is missing in {folder}")
        parsed = parse(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _DamagedError(f"{name} is damaged in {folder} ({' '.join(text_of(error).split())})") from None
    if not isinstance(parsed, kind):
        raise _DamagedError(f"{name} is {'damaged' if text else 'empty'} in {folder}")
    return parsed


def _text(entity: Any, name: str, download: Download) -> str | None:
    """Return an artifact's contents, or None if it does not exist."""
    try:
        if (folder := local_folder(entity)) is not None:
            return (folder / name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as copy:
            download(entity, name, copy)
            return (Path(copy) / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def local_folder(entity: Any) -> Path | None:
    """Return the folder of a run's artifacts if it is on this machine; MLflow's access to local files is slow.

    Args:
        entity: a run as MLflow returns it.
    """
    parts = urlsplit(entity.info.artifact_uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None
