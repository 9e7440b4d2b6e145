"""Machines in YAML files: `Machine.read` and `Machine.save`."""

import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator

from workbench.advisor.known_machines import MACHINE_NAMES, USUAL_HOST, Sourced, known_machine
from workbench.advisor.quantities import SIZES, SPEEDS
from workbench.core.errors import check_choice
from workbench.core.units import parse_bytes
from workbench.core.yaml_file import read_yaml
from workbench.files import write_file

_NEEDED = ("gamma", "alpha", "beta", "flops")


class MachineFile(BaseModel):
    """The keys of a machine's file: the fields of `Machine`, and a known machine that those left out are taken from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str | None = None
    name: str = ""
    gamma: float = 0
    alpha: float = 0
    beta: float = 0
    flops: float = 0
    gather: float = 0
    disk: float = 0
    disk_reads: float = 0
    network: float = 0
    disk_block_bytes: int | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
    cores: int | None = None
    is_cpu: bool = False
    sources: dict[str, str] = {}

    @field_validator(*SPEEDS, mode="before")
    @classmethod
    def _speed(cls, value: Any, info: ValidationInfo) -> float:
        unit = SPEEDS[str(info.field_name)]
        number = _number(value, "/s")
        if number is None or not number > 0:
            example = "64e9 or 64 GB/s" if unit == "bytes" else "64e9"
            raise ValueError(
                f"is {value!r}; it must be a positive number of {unit} per second, such as {example}, or .inf for no "
                "cost"
            )
        return number

    @field_validator(*SIZES, mode="before")
    @classmethod
    def _size(cls, value: Any, info: ValidationInfo) -> int | None:
        number = None if value is None else _number(value)
        if value is not None and (number is None or not isfinite(number) or number < 1 or number != int(number)):
            what = "cores" if info.field_name == "cores" else "bytes, such as 80 GiB"
            raise ValueError(f"is {value!r}; it must be a whole number of at least 1 of {what}, or null if not known")
        return None if number is None else int(number)

    @field_validator("base")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            known_machine(name)
        return name

    @field_validator("sources")
    @classmethod
    def _of_fields(cls, sources: dict[str, str]) -> dict[str, str]:
        for name in sources:
            check_choice("source", name, (*SPEEDS, *SIZES))
        return sources

    @model_validator(mode="after")
    def _complete(self) -> "MachineFile":
        missing = [name for name in _NEEDED if name not in self.model_fields_set]
        if self.base is None and missing:
            raise ValueError(
                f"{', '.join(missing)}: missing; give {'them' if len(missing) > 1 else 'it'}, or a known machine to "
                f"take them from, such as base: {MACHINE_NAMES[0]}"
            )
        return self


def read_machine(file: str | os.PathLike[str]) -> tuple[dict[str, Any], Sourced]:
    """Read what a file gives, completed by its base, or a usual host.

    Returns:
        `name` and `is_cpu`, and the speeds and sizes with their sources.
    """
    path = Path(file)
    given = read_yaml(path, MachineFile)
    numbers = given.model_dump(include={*SPEEDS, *SIZES}, exclude_unset=True)
    found = {name: (value, given.sources.get(name, f"file {path.name}")) for name, value in numbers.items()}
    rest = USUAL_HOST if given.base is None else known_machine(given.base)[1]
    name = given.name if "name" in given.model_fields_set else path.stem
    return {"name": name, "is_cpu": given.is_cpu}, {**rest, **found}


def write_machine(file: str | os.PathLike[str], values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Write a file that `read_machine` reads.

    Args:
        file: to create or replace.
        values: all fields, and `sources`: how they were found.
    """
    plain = {name: float(value) if name in SPEEDS else value for name, value in values.items()}
    text = yaml.safe_dump(plain | {"sources": dict(sources)}, sort_keys=False, allow_unicode=True, width=120)
    write_file(Path(file), f"# Speeds are bytes, operations or reads per second.\n{text}")


def _number(value: Any, suffix: str = "") -> float | None:
    """A number that may be written as text, such as 64e9 (text to YAML), "64 GB/s" or "80 GiB"; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value
    text = value.strip().removesuffix(suffix)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_bytes(text)
    except ValueError:
        return None
