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

from workbench.tracking.record import FINISHED, Run
from workbench.tracking.tags import ERROR, dataset_of, point_of

CONFIG, ROWS = "config.yaml", "rows.json"

Download = Callable[[Any, str, str], None]
"""From a run, an artifact's name and a folder: put it there, or raise FileNotFoundError."""

_AT_ONCE = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_runs(entities: Iterable[Any], download: Download) -> list[Run]:
    """Runs by their start; finished ones whose rows are gone are left out, with a warning.

    Args:
        entities: runs as MLflow returns them.
        download: for artifacts that do not lie on this machine.
    """
    entities = list(entities)
    read = partial(_read, download=download)
    if all(_folder(entity) for entity in entities):
        found = [read(entity) for entity in entities]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(read, entities))
    return sorted((run for run in found if run is not None), key=lambda run: run.started_at)


def _read(entity: Any, download: Download) -> Run | None:
    info, tags = entity.info, entity.data.tags
    config = _text(entity, CONFIG, download)
    rows = _text(entity, ROWS, download) if info.status == FINISHED else "[]"
    if rows is None or (config is None and info.status == FINISHED):
        missing = f"{CONFIG if config is None else ROWS} is missing in {info.artifact_uri}"
        warnings.warn(f"run {info.run_id} is left out: {missing}; delete it or restore the file", stacklevel=2)
        return None
    inputs = [entry.dataset for entry in (entity.inputs.dataset_inputs if entity.inputs else ())]
    dataset = dataset_of(tags, inputs[0].source, inputs[0].profile) if inputs else None
    return Run(
        point_of(tags, yaml.load(config or "{}", _LOADER), dataset),
        info.run_id,
        info.status,
        tuple(json.loads(rows)),
        tags.get(ERROR),
        info.start_time / 1000,
        None if info.end_time is None else (info.end_time - info.start_time) / 1000,
    )


def _text(entity: Any, name: str, download: Download) -> str | None:
    """An artifact's contents; None if there is none of that name."""
    try:
        if (folder := _folder(entity)) is not None:
            return (folder / name).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as copy:
            download(entity, name, copy)
            return (Path(copy) / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _folder(entity: Any) -> Path | None:
    """Where a run's artifacts lie, if on this machine: MLflow's own way to local files is slow."""
    parts = urlsplit(entity.info.artifact_uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None
