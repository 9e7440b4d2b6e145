"""Conversion of points and rows to MLflow's parameters, metrics, tags and names, and of tags back to points."""

import json
import math
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from workbench.error_text import printable, truncated
from workbench.tracking.record import DatasetInfo, Point, Row

NAME_LENGTH, VALUE_LENGTH = 250, 6000
"""MLflow's maximum lengths of names and of parameter values, in characters."""

SEPARATOR = " · "
"""Between the parts of a run's name."""

_RUN_NAME_LENGTH = 160

_NOT_IN_NAMES = re.compile(r"[^\w\-./ :]")


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested keys, joined by "."; the key "name" of a nested mapping is omitted.

    >>> flatten({"dataset": {"name": "cora", "features": {"given": 3}}, "fanouts": [10, 25]})
    {'dataset': 'cora', 'dataset.features.given': 3, 'fanouts': [10, 25]}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {key if name == "name" else f"{key}.{name}": inner for name, inner in flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat


def cell(value: Any) -> Any:
    """Convert a value for a table: lists become JSON, other values are unchanged."""
    return text(value) if isinstance(value, list | tuple) else value


def text(value: Any) -> str:
    """Convert a value for a parameter: strings are unchanged, other values become JSON.

    >>> text("reg"), text([10, 25]), text(None), text(0.5)
    ('reg', '[10, 25]', 'null', '0.5')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def safe_name(name: str) -> str:
    """Convert a string to a valid name of a parameter, metric or tag in MLflow.

    >>> safe_name("inputs/full (%)"), safe_name("../a//b")
    ('inputs/full ___', '_/a/b')
    """
    normal = posixpath.normpath(_NOT_IN_NAMES.sub("_", name)).lstrip("/")
    normal = "/".join("_" if part == ".." else part for part in normal.split("/"))
    return normal[:NAME_LENGTH].rstrip("/") if normal not in ("", ".") else "_"


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Convert a configuration to MLflow's parameters."""
    return {safe_name(key): truncated(text(value), VALUE_LENGTH) for key, value in flatten(config).items()}


def plain_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Copy rows as JSON values: scalars of NumPy and torch become Python's.

    Args:
        rows: mappings from column to value.

    Raises:
        TypeError: if a value is not a number, string, bool or None.
    """
    return [{str(name): _plain(str(name), value) for name, value in row.items()} for row in rows]


def milliseconds(seconds: float) -> int:
    """Convert seconds to MLflow's milliseconds, at least 1, because 0 would mean now."""
    return max(1, round(seconds * 1000))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield slices of a list with at most `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


def run_name(point: Point) -> str:
    """Build the name of a run: what tells the point from others of its sweep, then figure, and size unless it is smoke.

    MLflow cuts names after some 20 characters, so the figure, which all runs of a view share, comes last.

    >>> run_name(Point("betty/fig11", "real", "k", {"method": "reg"}, label="reg · parts=8"))
    'reg · parts=8 · fig11 real'
    """
    figure = point.sweep.split("/")[-1] + ("" if point.size == "smoke" else f" {point.size}")
    return truncated(f"{point.label or label(point.config)}{SEPARATOR}{figure}", _RUN_NAME_LENGTH)


def label(config: Mapping[str, Any], names: Collection[str] | None = None) -> str:
    """Describe a configuration in a few words: names and lists as they are, numbers with their key.

    Args:
        config: nested configuration.
        names: flat keys to show, in their order; None: those with a number or a text.

    >>> label({"method": "reg", "num_parts": 8, "fanouts": [10, 25], "cached": False})
    'reg · parts=8 · cached=false'
    >>> label({"method": "reg", "num_parts": 8, "fanouts": [10, 25]}, ["num_parts", "fanouts"])
    'parts=8 · 10,25'
    """
    flat = flatten(config)
    known = [name for name in flat if not isinstance(flat[name], list)]
    chosen = known if names is None else [name for name in names if name in flat]
    return SEPARATOR.join(_described(name, flat[name]) for name in chosen if flat[name] not in (None, ""))


def _described(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return ",".join(map(str, value))
    return f"{name.rpartition('.')[2].removeprefix('num_')}={text(value)}"


def _plain(name: str, value: Any) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"column {name!r} contains a {type(value).__name__}; rows may contain numbers, strings, bools and None"
    )


_MIB, _BYTES, _SECONDS = 2**20, "_bytes", "_seconds"

_HELD = {
    "allocated",
    "anonymous",
    "betty",
    "buffer",
    "capacity",
    "dropin",
    "estimate",
    "estimated",
    "limit",
    "measured",
    "memory",
    "native",
    "ours",
    "peak",
    "reserved",
    "term",
    "whole",
    "workspace",
}
"""Words of columns whose bytes are held at a time; those of other columns are moved."""


class Value(NamedTuple):
    """One value of a metric.

    Args:
        name: name of the metric.
        value: may be NaN.
        step: position on the curve.
    """

    name: str
    value: float
    step: int


def metrics(rows: Sequence[Row], drawn: Collection[str] = ()) -> list[Value]:
    """Convert the numbers that a figure draws to metrics, each once: `memory/peak_MiB`, `seconds/epoch`.

    MLflow draws a chart per metric, in a group for each part before a slash. Several rows are curves over their axis:
    "step" or "epoch", else the number with the most values among the columns that tell the rows apart. Texts of these
    become part of the name ("miss_rate/lru"), and values that differ only in the others, such as repetitions, are
    averaged. Infinities are dropped: MLflow would replace them by the largest float, which makes the curve unreadable.

    Args:
        rows: rows of JSON values.
        drawn: columns that the figure draws; empty, or none of them in the rows: all.
    """
    axis, texts, columns = _axes(rows)
    chosen = {name for row in rows for name in row if name not in columns}
    chosen = chosen.intersection(drawn) or chosen
    found = [
        ((_named(name, row, texts), _step(row, axis, position)), number)
        for position, row in enumerate(rows)
        for name, value in row.items()
        if name in chosen and (number := _number(name, value)) is not None
    ]
    places: dict[tuple[str, int], list[float]] = {}
    for place, number in found:
        places.setdefault(place, []).append(number)
    return [Value(name, fmean(numbers), step) for (name, step), numbers in places.items()]


def row_parameters(rows: Sequence[Row]) -> dict[str, str]:
    """The columns that tell rows apart, as parameters: the values that each takes, sorted.

    Args:
        rows: rows of JSON values; a single row has none.
    """
    columns = [name for name in _axes(rows)[2] if name not in ("step", "epoch")]
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in columns}
    return {safe_name(name): truncated(text(_sorted(found)), VALUE_LENGTH) for name, found in values.items()}


def _axes(rows: Sequence[Row]) -> tuple[str | None, list[str], list[str]]:
    """Axis of the curves, columns that become part of names, and all columns that tell rows apart.

    These come first in a row: they are the shortest sequence of leading columns whose values no two rows share.
    """
    step = next((name for name in ("step", "epoch") if _is_axis(rows, name)), None)
    if step is not None:
        return step, [], [step]
    columns = _leading(rows)
    numbers = {name: {row.get(name) for row in rows} for name in columns if _are_whole(rows, name)}
    axis = max(numbers, key=lambda name: len(numbers[name]), default=None)
    texts = [name for name in columns if all(isinstance(row.get(name), str) for row in rows)]
    return axis, texts, columns


def _leading(rows: Sequence[Row]) -> list[str]:
    """The columns that tell rows apart; none of a single row, or if only a measurement would do."""
    if len(rows) < 2:
        return []
    chosen: list[str] = []
    for name in rows[0]:
        values = [row.get(name) for row in rows]
        measured = any(isinstance(value, float) for value in values) and len(set(values)) == len(rows)
        if measured:
            return []
        if len(set(values)) > 1:
            chosen.append(name)
        if len({tuple(row.get(each) for each in chosen) for row in rows}) == len(rows):
            return chosen
    return []


def _named(name: str, row: Row, texts: Sequence[str]) -> str:
    return safe_name("/".join([_metric(name), *(str(row[column]).replace("/", " ") for column in texts)]))


def _metric(column: str) -> str:
    """Name a metric after its column, in the group of its unit.

    >>> [_metric(column) for column in ("peak_bytes", "read_bytes", "epoch_seconds", "seconds", "hits")]
    ['memory/peak_MiB', 'traffic/read_MiB', 'seconds/epoch', 'seconds', 'hits']
    >>> _metric("epoch_seconds_low")
    'seconds/epoch_low'
    """
    if column.endswith(_BYTES):
        group = "memory" if _HELD.intersection(column.split("_")) else "traffic"
        return f"{group}/{column.removesuffix(_BYTES)}_MiB"
    name, seconds, end = column.rpartition(_SECONDS)
    return f"seconds/{name}{end}" if seconds and end in ("", "_low", "_high") else column


def _step(row: Row, axis: str | None, position: int) -> int:
    return position if axis is None else int(row[axis])


def _number(column: str, value: Any) -> float | None:
    if not isinstance(value, int | float) or math.isinf(value):
        return None
    return value / _MIB if column.endswith(_BYTES) else float(value)


def _is_axis(rows: Sequence[Row], name: str) -> bool:
    """Return whether a column has distinct whole numbers, so that it can be the axis of the curves."""
    return _are_whole(rows, name) and len({row.get(name) for row in rows}) == len(rows)


def _are_whole(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row.get(name), int) and not isinstance(row.get(name), bool) for row in rows)


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # of several kinds
        return values


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


def drawn_columns(tags: Mapping[str, str]) -> list[str]:
    """Return the columns that the figures of a point draw, from the tags of its run; none if they don't say."""
    return tags.get(f"{_HIDDEN}columns", "").split()


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
    return {safe_name(name): truncated(value, TAG_LENGTH) for name, value in tags.items() if value != ""}


VIEW = "mlflow.sharedViewState."
"""Prefix of the tags of an experiment in which MLflow keeps its shared views."""


def finished_points(sweep: str, size: str | None, code: str | None) -> str:
    """Return MLflow's search for the finished points of a sweep.

    Args:
        sweep: "paper/figure".
        size: "smoke", "real" or "paper"; None: of any size.
        code: digest of the code that made them; None: of any.

    >>> finished_points("betty/fig11", "real", None)
    'tags.sweep = "betty/fig11" and tags.size = "real" and tags.kind = "point" and attributes.status = "FINISHED"'
    """
    tags = {"sweep": sweep, "size": size, "kind": POINT, f"`{_HIDDEN}code`": code}
    terms = [f'tags.{name} = "{value}"' for name, value in tags.items() if value is not None]
    return " and ".join([*terms, 'attributes.status = "FINISHED"'])


def chart_view(sweep: str, size: str, code: str) -> tuple[str, str]:
    """Return a shared view of a figure's charts, as a tag of its experiment: all points in the order of the sweep.

    Without one, MLflow shows the last ten.

    Args:
        sweep: "paper/figure".
        size: "smoke", "real" or "paper".
        code: digest of the code that made the points.
    """
    state = {
        "searchFilter": finished_points(sweep, size, code),
        "orderByKey": "attributes.start_time",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "runsHiddenMode": "SHOWALL",
        "hideEmptyCharts": True,
        "useGroupedValuesInCharts": True,
        "groupBy": None,
        "autoRefreshEnabled": True,
        **{key: [] for key in ("selectedColumns", "columnOrder", "runsPinned", "runsHidden")},
        **{key: {} for key in ("columnWidths", "runsExpanded", "runsVisibilityMap", "groupsExpanded")},
        **dict.fromkeys(("viewMaximized", "runListHidden", "isAccordionReordered"), False),
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
    return f"{VIEW}{sweep.partition('/')[2]}-{size}", json.dumps(state)


def quoted(value: str) -> str:
    """Quote a string for MLflow's search syntax."""
    return f"'{value}'" if "'" not in value else f'"{value}"'
