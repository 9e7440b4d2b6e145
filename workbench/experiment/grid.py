"""Grids of one size: values from YAML, the caller's overrides, all combinations of the axes, validated."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from pydantic import ValidationError

from workbench.core.yaml_file import ConfigError, explain
from workbench.experiment.config import PointConfig
from workbench.experiment.figure_spec import Axes, Spec
from workbench.experiment.point_dataset import alternatives
from workbench.tracking.mlflow_fields import cell, flatten
from workbench.tracking.record import Run


@dataclass(frozen=True)
class Grid:
    """Values that all points share, and axes with a list of values each.

    Args:
        fixed: key to value.
        axes: key to values; every combination is a point, and the last axis varies fastest.
    """

    fixed: Mapping[str, Any]
    axes: Mapping[str, list[Any]]

    def points(self) -> list[dict[str, Any]]:
        """Configurations of all combinations."""
        return [{**self.fixed, **dict(zip(self.axes, values, strict=True))} for values in product(*self.axes.values())]

    def set(self, key: str, value: Any) -> "Grid":
        """The grid with another value of an axis, of a part of one, or of all points.

        Args:
            key: of the configuration; "dataset.scale" reaches into a mapping.
            value: new value; a list replaces all values of an axis, and makes one of a key that has a single value.
        """
        outer, _, inner = key.partition(".")
        if inner:
            axes = {**self.axes, outer: [_within(v, inner, value) for v in self.axes.get(outer, [])]}
            fixed = {**self.fixed, outer: _within(self.fixed.get(outer, {}), inner, value)}
            return replace(self, axes=axes) if outer in self.axes else replace(self, fixed=fixed)
        one = key not in self.axes and not (
            key in self.fixed and isinstance(value, list) and value and _is_single(self.fixed[key])
        )
        if not one:
            fixed = {name: kept for name, kept in self.fixed.items() if name != key}
            return Grid(fixed, {**self.axes, key: value if isinstance(value, list) else [value]})
        return replace(self, fixed={**self.fixed, key: value})


def grids(
    spec: Spec, size: str, *, device: str | None = None, overrides: Mapping[str, Any] | None = None
) -> list[Grid]:
    """The grids of a size, with the caller's overrides.

    Args:
        spec: of the experiment that yields the rows.
        size: one of its sizes.
        device: default: the size's.
        overrides: configuration key to value; "dataset.scale" reaches into a mapping.

    Raises:
        ConfigError: the experiment does not have this size.
    """
    if size not in spec.sizes:
        raise ConfigError(f"size {size!r} is not one of this experiment's: {', '.join(spec.sizes)}")
    chosen = spec.sizes[size]
    fixed = {**spec.fixed, **chosen.fixed, "device": device or chosen.device}
    found = [Grid(fixed, _all_axes(axes, chosen.seeds, chosen.repetitions)) for axes in chosen.grids]
    for key, value in (overrides or {}).items():
        found = _set_all(found, key, value)
    return found


def _set_all(found: list[Grid], key: str, value: Any) -> list[Grid]:
    """Set a key in every grid.

    A value that some grids have on that axis is set in these alone, so setting one of two models drops the other
    model's grid. A list selects values of an axis, in the grids that have this axis.
    """
    values = value if isinstance(value, list) else [value]
    offered = [v for grid in found for v in grid.axes.get(key, [])]
    if offered and not values:
        raise ConfigError(
            f"{key}: is [], which leaves no points; give at least one value, such as {key}=[{offered[0]}]"
        )
    changed = []
    for grid in found:
        own = grid.axes.get(key)
        if own is None and offered and isinstance(value, list):
            changed.append(grid)
            continue
        kept = values if own is None else [v for v in values if v in own or v not in offered]
        if kept or own is None:
            changed.append(grid.set(key, value if own is None else kept))
    return changed


def _all_axes(axes: Axes, seeds: list[int], repetitions: int) -> Axes:
    """The axes with seeds and repetitions; an axis `seed` or `repetition` of the grid overrides those of its size."""
    repeated = {"seed": seeds, "repetition": list(range(repetitions))}
    return {**axes, **{name: axes.get(name, values) for name, values in repeated.items()}}


def configs(
    found: list[Grid], model: type[PointConfig], where: str, overridden: Collection[str] = ()
) -> list[PointConfig]:
    """Validated configurations of all points, each once, in the grids' order.

    Args:
        found: result of `grids`.
        model: the experiment's `Config`.
        where: file that the grids come from, for messages.
        overridden: keys that the caller set.

    Raises:
        ConfigError: an invalid value; the message names file, key and the allowed values.
    """
    unique: dict[str, PointConfig] = {}
    for values in (point for grid in found for point in grid.points()):
        try:
            config = model.model_validate(values)
        except ValidationError as error:
            raise explain(error, model, where, overridden) from None
        unique.setdefault(config.model_dump_json(), config)
    return list(unique.values())


def resolved(config: PointConfig) -> dict[str, Any]:
    """A configuration as JSON values; keys that few experiments share come first, since they tell runs apart."""
    plain = config.model_dump(mode="json", exclude={"dataset": {"otherwise"}})
    kinds = [kind for kind in type(config).__mro__ if issubclass(kind, PointConfig)]
    return dict(sorted(plain.items(), key=lambda item: sum(item[0] in kind.model_fields for kind in kinds)))


def varying(found: Collection[PointConfig]) -> list[str]:
    """The flat keys, as in tables, of which some configurations have other values than others, most values first.

    Args:
        found: validated configurations.
    """
    flat = [{name: json.dumps(value) for name, value in flatten(resolved(config)).items()} for config in found]
    names = dict.fromkeys(name for config in flat for name in config)
    numbers = {name: len({config.get(name) for config in flat}) for name in names}
    return sorted((name for name in names if numbers[name] > 1), key=lambda name: -numbers[name])


def parse_overrides(texts: list[str]) -> dict[str, Any]:
    """Parse `key=value` texts; values are YAML.

    >>> parse_overrides(["num_parts=[2, 4]", "dataset.scale=0.01", "method=reg"])
    {'num_parts': [2, 4], 'dataset.scale': 0.01, 'method': 'reg'}

    Raises:
        ConfigError: a text without "=", or a value that is invalid YAML.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {text!r}: write key=value, such as --set num_parts=[2,4]")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--set {text!r}: the value is not valid YAML; quote it") from None
    return found


def _is_single(value: Any) -> bool:
    """A number or a name; a key whose value is a list takes a list as one value."""
    return not isinstance(value, list | Mapping) and value is not None


def _within(value: Any, key: str, inner: Any) -> dict[str, Any]:
    """A mapping with one value replaced; a plain name is {"name": …}, as for data sets."""
    if not isinstance(value, str | Mapping):
        raise ConfigError(f"--set ….{key}: the value {value!r} has no parts; leave out .{key}")
    mapping = {"name": value} if isinstance(value, str) else dict(value)
    outer, _, rest = key.partition(".")
    return {**mapping, outer: _within(mapping.get(outer, {}), rest, inner) if rest else inner}


class GridRuns(NamedTuple):
    """Runs of one grid on one device.

    Args:
        runs: of its points, in order; two data sets may share the run of the one that replaces both.
        ended: number of points that have a run.
        points: number of points of the grid.
    """

    runs: list[Run]
    ended: int
    points: int


def runs_of_grid(runs: Iterable[Run], grid: Sequence[PointConfig]) -> GridRuns:
    """Of some runs, those of a grid's points, in the grid's order; the last run of a point counts.

    Args:
        runs: made by the present code.
        grid: validated configurations of its points.
    """
    newest = {_as_text(run.point.config): run for run in runs}
    points = [[_as_text(resolved(either)) for either in alternatives(config)] for config in grid]
    return GridRuns(
        [newest[key] for key in dict.fromkeys(chain.from_iterable(points)) if key in newest],
        sum(any(key in newest for key in either) for either in points),
        len(points),
    )


def rows_of_points(table: pd.DataFrame, grid: Sequence[PointConfig]) -> list[list[int]]:
    """Positions of the rows of every point of a grid in a recorded table.

    A key that the table does not have, because it was added to the configuration since, tells points apart only if the
    grid varies it. Of two data sets that may replace each other, one is enough.

    Args:
        table: rows with their configuration, as `table_of` returns them.
        grid: validated configurations of its points.
    """
    either = [[settings(resolved(one)) for one in alternatives(config)] for config in grid]
    names = dict.fromkeys(name for points in either for point in points for name in point)
    varied = set(varying(grid))
    compared = [name for name in names if name in table or name in varied]
    there: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(table.reindex(columns=compared).to_dict("records")):
        there.setdefault(tuple(_plain(row[name]) for name in compared), []).append(place)
    wanted = [[tuple(_plain(point.get(name)) for name in compared) for point in points] for points in either]
    return [next((there[key] for key in keys if key in there), []) for keys in wanted]


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration as columns, without keys whose value is None."""
    return {name: cell(value) for name, value in flatten(config).items() if value is not None}


def _plain(value: Any) -> str:
    """A value as recorded tables give it back: six digits, 1 for 1.0, nothing for NaN."""
    if isinstance(value, bool | np.bool_) or value is None:
        return str(value) if value is not None else ""
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return "" if number != number else f"{number:.6g}"


def _as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)
