"""MLflow's runs as ours: points from tags, configuration and rows from artifacts."""

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
from workbench.tracking.checks import check_run
from workbench.tracking.record import FINISHED, Run
from workbench.tracking.tags import ERROR, dataset_of, point_of

CONFIG, ROWS = "config.yaml", "rows.json"

Download = Callable[[Any, str, str], None]
"""From a run, an artifact's name and a folder: put it there, or raise FileNotFoundError."""

_AT_ONCE = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _DamagedError(Exception):
    """A file of a run is missing or does not hold what it should."""


def read_runs(entities: Iterable[Any], download: Download) -> list[Run]:
    """Runs by their start; those whose rows or tags are missing or damaged are left out, with a warning.

    Args:
        entities: runs as MLflow returns them.
        download: for artifacts that do not lie on this machine.
    """
    entities = list(entities)
    read = partial(_read, download=download)
    if all(local_folder(entity) for entity in entities):
        found = [read(entity) for entity in entities]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(read, entities))
    return sorted((run for run in found if run is not None), key=lambda run: run.started_at)


def _read(entity: Any, download: Download) -> Run | None:
    """None, and a warning, if the run must be run again: a power cut may have emptied its files."""
    try:
        return check_run(_run(entity, download), "it")
    except _DamagedError as error:
        problem = str(error)
    except (CorruptFileError, KeyError, TypeError) as error:
        problem = f"its tags are not those of a point ({error})"
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
    """What an artifact contains; a run that did not finish may lack it."""
    place = entity.info.artifact_uri
    try:
        if (text := _text(entity, name, download)) is None:
            if entity.info.status != FINISHED:
                return kind()
            raise _DamagedError(f"{name} is missing in {place}")
        found = parse(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _DamagedError(f"{name} is damaged in {place} ({' '.join(str(error).split())})") from None
    if not isinstance(found, kind):
        raise _DamagedError(f"{name} is {'damaged' if text else 'empty'} in {place}")
    return found


def _text(entity: Any, name: str, download: Download) -> str | None:
    """An artifact's contents; None if there is none of that name."""
    try:
        if (folder := local_folder(entity)) is not None:
            return (folder / name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as copy:
            download(entity, name, copy)
            return (Path(copy) / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def local_folder(entity: Any) -> Path | None:
    """Folder of a run's artifacts, if it is on this machine: MLflow's own way to local files is slow.

    Args:
        entity: a run as MLflow returns it.
    """
    parts = urlsplit(entity.info.artifact_uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None
