"""Errors in names and configurations of experiments; messages name file, key and allowed values."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


class ConfigError(ValueError):
    """Invalid configuration; the message names file, key and allowed values."""


class UnknownExperimentError(ValueError):
    """No experiment of that name; the message names those that exist."""


def explain(error: ValidationError, model: type[BaseModel], where: str) -> ConfigError:
    """Convert a validation error; the message has one clause per problem.

    Args:
        error: from validating `model`.
        model: class whose fields are the allowed keys.
        where: file that the values come from.
    """
    return ConfigError(f"{where}: " + "; ".join(_clause(problem, model) for problem in error.errors()))


def _clause(problem: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key; allowed: {', '.join(_fields(model, problem['loc'][:-1]))}"
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
