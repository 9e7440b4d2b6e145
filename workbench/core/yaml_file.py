"""YAML files as validated records; messages name file, key and the allowed values."""

from collections.abc import Collection
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from workbench.core.suggestions import did_you_mean

# libyaml, ten times as fast, where PyYAML was built with it
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(YAML_LOADER):
    """Refuses a key that a mapping repeats, of which PyYAML takes the last."""

    def flatten_mapping(self, node: Any) -> None:
        if not hasattr(node, "own_keys"):  # later calls see those of merged mappings (<<), too, which it may override
            node.own_keys = set()
            for key, _ in node.value:
                if (own := (key.tag, str(key.value))) in node.own_keys:
                    problem = f"the key {key.value!r} is repeated; keep one of them"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                node.own_keys.add(own)
        super().flatten_mapping(node)


Record = TypeVar("Record", bound=BaseModel)


class ConfigError(ValueError):
    """Invalid configuration; the message names file, key and allowed values."""


def read_yaml(file: Path, model: type[Record]) -> Record:
    """Read a YAML file as a validated record.

    Args:
        file: to read.
        model: class of the record.

    Raises:
        ConfigError: invalid YAML, a repeated, unknown or missing key, a wrong type; the message names file, key and the
            allowed values.
    """
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError of the encoding, or of a date or number
        raise ConfigError(f"{file}: invalid YAML: {' '.join(str(error).split())}") from None
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise explain(error, model, str(file)) from None


def explain(
    error: ValidationError, model: type[BaseModel], where: str, overridden: Collection[str] = ()
) -> ConfigError:
    """Convert a validation error; the message has one clause per problem.

    Args:
        error: from validating `model`.
        model: class whose fields are the allowed keys.
        where: file that the values come from.
        overridden: keys whose values come from the caller instead, as "dataset.scale".
    """
    problems = error.errors()
    clauses = "; ".join(_clause(problem, model) for problem in problems)
    outer = {key.partition(".")[0] for key in overridden}
    callers = bool(problems) and all(problem["loc"] and problem["loc"][0] in outer for problem in problems)
    return ConfigError(f"your setting of {clauses} (for {where})" if callers else f"{where}: {clauses}")


def _clause(problem: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = _fields(model, problem["loc"][:-1])
        meant = did_you_mean(problem["loc"][-1], allowed)
        return f"{key}: unknown key; allowed: {', '.join(allowed)}" + (f"; {meant}" if meant else "")
    if problem["type"] == "missing":
        return f"{key}: is missing"
    text = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] == "value_error" or not key:
        return f"{key}: {text}" if key else text
    return f"{key}: is {problem['input']!r} and {text}"


def _fields(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Fields of the innermost model that a path into `model` leads to."""
    for part in path:
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        model = inner or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, dict, list, tuple):
        return next(filter(None, map(_model_in, get_args(annotation))), None)
    return None
