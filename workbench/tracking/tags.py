"""Conversion between a point and the tags of its run, which searches use."""

import json
from collections.abc import Mapping
from typing import Any

from workbench.tracking.mlflow_fields import run_name, safe_name, shorten
from workbench.tracking.record import DatasetInfo, Point

POINT, SUMMARY = "point", "summary"
"""Kinds of runs: a grid point, and a figure's summary of a sweep."""

ERROR = "error"

TAG_LENGTH = 8000
"""MLflow's maximum length of tag values, in characters."""

_SHOWN = {"device", "commit", "paper"}
_HIDDEN = "mlflow.workbench."
"""Prefix of tags that are read back but that MLflow's pages don't show: versions, digests, and so on."""

_SUMMARY_SHOWN = {*_SHOWN, "held", "claim"}
_LABEL = f"{_HIDDEN}label"
_POINT_TAGS = {"label", "figure", "figures", "sweep", "size", "key", "kind", "dataset", "dataset_fingerprint", ERROR}
_SYSTEM_PREFIXES = ("mlflow.", "workbench.")


def tags_of(point: Point) -> dict[str, str]:
    """Return the tags of a point; together with configuration and data set they determine the point (`point_of`)."""
    paper, _, figure = point.sweep.partition("/")
    dataset = point.dataset
    return _clean(
        {
            **{name if name in _SHOWN else _HIDDEN + name: value for name, value in point.tags.items()},
            "mlflow.runName": run_name(point),
            "mlflow.source.name": f"experiments/{point.sweep}.py",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": point.tags.get("commit", ""),
            "mlflow.note.content": f"Grid point of **{point.sweep}** at size {point.size}, shown by "
            f"{', '.join(point.figures) or point.sweep}.{_about(point.tags)}",
            _LABEL: point.label,
            "kind": POINT,
            "figure": figure or paper,
            "figures": ", ".join(point.figures),
            "sweep": point.sweep,
            "size": point.size,
            "key": point.key,
            "dataset": dataset.name if dataset else "",
            _HIDDEN + "dataset_fingerprint": dataset.fingerprint if dataset else "",
        }
    )


def summary_tags(figure: str, sweep: str, size: str, key: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a figure's summary of a sweep."""
    short = figure.split("/")[-1]
    return _clean(
        {
            **{name if name in _SUMMARY_SHOWN else _HIDDEN + name: value for name, value in tags.items()},
            "mlflow.runName": f"{short} · {size} · figure",
            "mlflow.source.name": f"experiments/{figure}.py",
            "mlflow.source.type": "LOCAL",
            "mlflow.note.content": f"Summary of **{figure}**, a view of {sweep} at size {size}: see the artifacts.",
            "kind": SUMMARY,
            "figure": short,
            "figures": figure,
            "sweep": sweep,
            "size": size,
            "key": key,
        }
    )


def point_of(tags: Mapping[str, str], config: Mapping[str, Any], dataset: DatasetInfo | None) -> Point:
    """Restore the point from the tags of its run."""
    user_tags = {
        name: value
        for name, value in _unhidden(tags).items()
        if name not in _POINT_TAGS and not name.startswith(_SYSTEM_PREFIXES)
    }
    figures = tuple(name for name in tags.get("figures", "").split(", ") if name)
    return Point(tags["sweep"], tags["size"], tags["key"], config, figures, dataset, user_tags, tags.get(_LABEL, ""))


def dataset_of(tags: Mapping[str, str], source: str, profile: str | None) -> DatasetInfo:
    """Restore the data set that was logged as a run's input."""
    sizes = json.loads(profile or "{}")
    return DatasetInfo(
        tags.get("dataset", ""),
        _unhidden(tags).get("dataset_fingerprint", ""),
        source,
        sizes.get("num_nodes", 0),
        sizes.get("num_edges", 0),
    )


def _unhidden(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags under their own names; stores of earlier versions do not hide any."""
    return {name.removeprefix(_HIDDEN): value for name, value in tags.items()}


def _about(tags: Mapping[str, str]) -> str:
    """A paragraph on machine and versions, whose tags are hidden."""
    versions = [f"{name.removeprefix('version.')} {value}" for name, value in tags.items() if "version." in name]
    facts = [*versions, *(f"{name} {tags[name]}" for name in ("threads", "load") if tags.get(name))]
    return f"\n\n{', '.join(facts)}" if facts else ""


def _clean(tags: Mapping[str, str]) -> dict[str, str]:
    """Drop empty tags and shorten the others to MLflow's limits."""
    return {safe_name(name): shorten(value, TAG_LENGTH) for name, value in tags.items() if value != ""}


def quoted(value: str) -> str:
    """Quote a string for MLflow's search syntax."""
    return f"'{value}'" if "'" not in value else f'"{value}"'
