"""`wb.Machine`: the speeds that configurations are priced on: measured, known by name, or read from a file."""

import math
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator, model_validator

from workbench.advisor.known_machines import MACHINE_NAMES, USUAL_HOST, Sourced, known_machine
from workbench.core.errors import check_at_least, check_choice, check_type
from workbench.core.machine import Machine as PeSpeeds
from workbench.core.units import format_bytes, parse_bytes
from workbench.core.yaml_file import read_yaml
from workbench.files import write_file

SPEEDS: Mapping[str, str] = MappingProxyType(
    {
        "gamma": "bytes",
        "alpha": "bytes",
        "beta": "bytes",
        "flops": "operations",
        "gather": "bytes",
        "disk": "bytes",
        "disk_reads": "reads",
        "disk_writes": "bytes",
        "network": "bytes",
    }
)
"""Fields that are speeds, to what they count per second."""

SIZES = ("disk_block_bytes", "device_memory_bytes", "host_memory_bytes", "cores")
"""Fields that are whole numbers, or not known."""

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "gamma": "device memory",
        "alpha": "between devices",
        "beta": "host to device",
        "flops": "float32 products",
        "gather": "gather of host rows",
        "disk": "disk, long reads",
        "disk_reads": "disk, random reads",
        "disk_writes": "disk, new files",
        "network": "between ranks",
        "disk_block_bytes": "block of the disk",
        "device_memory_bytes": "size of device memory",
        "host_memory_bytes": "size of host memory",
        "cores": "CPU cores",
    }
)
"""Speeds and sizes, for people, in the order of a table."""

_PREFIXES = ("", "k", "M", "G", "T", "P")


def shown(name: str, value: float | int | None) -> str:
    """A speed or a size with its unit.

    Args:
        name: of the field.
        value: its value.

    >>> shown("gamma", 3.35e12), shown("disk_reads", 20_000), shown("flops", 999.96e9), shown("beta", float("inf"))
    ('3.35 TB/s', '20,000 reads/s', '1 Tflop/s', 'no cost')
    """
    if value is None:
        return "not known"
    if name == "cores":
        return f"{value}"
    if name in SIZES:
        return format_bytes(value)
    if math.isinf(value):
        return "no cost"
    if SPEEDS[name] == "reads":
        return f"{value:,.0f} reads/s"
    power = 0
    while float(f"{value:.3g}") >= 1000 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_PREFIXES[power]}{'B' if SPEEDS[name] == 'bytes' else 'flop'}/s"


HERE = "here"
"""The name of this machine, measured."""


@dataclass(frozen=True, repr=False)
class Machine(PeSpeeds):
    """The speeds of one processing element (PE), such as a GPU, among equal ones, and of its host.

    γ, α and β are those of the complexity analysis of Cooperative Minibatching, which counts bytes alone; the others
    are additions. `Machine.here()` measures this machine, `Machine.named("A100")` knows data sheets, and
    `Machine.read("my.yaml")` reads a file of one's own.

    Args:
        gamma: γ, bytes per second of the PE's own memory.
        alpha: α, bytes per second between the PE and the others in an all-to-all exchange.
        beta: β, bytes per second from storage (disk, network, host memory) to the PE.
        flops: floating-point operations per second; infinite: arithmetic takes no time.
        name: of the machine, for people.
        gather: bytes per second of random rows that the host's CPU reads from its memory (`x[ids]`).
        disk: bytes per second of long reads from disk.
        disk_reads: small random reads of the disk per second.
        disk_writes: bytes per second of new files, which are synced; at most that of long reads is used.
        network: bytes per second that a rank receives from the others.
        disk_block_bytes: reads of the disk begin and end at multiples of it; None: not known.
        device_memory_bytes: memory of the PE; None: not known.
        host_memory_bytes: memory of the host; None: not known.
        cores: CPU cores that a process may use; None: not known.
        is_cpu: the PE is the host's CPU: batches are not copied to another device, and β is that of `gather`.
        sources: field to how its value was found, such as "data sheet"; not compared.

    Raises:
        ValueError: a speed that is not a positive number, a size below 1, or a source of an unknown field.
        TypeError: `name` is not a text, or `is_cpu` not a bool.

    Source: Cooperative Minibatching, section 3.1, Table 1.
    """

    gamma: float
    alpha: float
    beta: float
    flops: float = float("inf")
    _: KW_ONLY
    name: str = ""
    gather: float = float("inf")
    disk: float = float("inf")
    disk_reads: float = float("inf")
    disk_writes: float = float("inf")
    network: float = float("inf")
    disk_block_bytes: int | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
    cores: int | None = None
    is_cpu: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_type("name", self.name, str, 'pass a text, such as name="my server"')
        check_type("is_cpu", self.is_cpu, bool, "pass True or False")
        for name in SPEEDS:
            value = getattr(self, name)
            if not (isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0):
                raise ValueError(
                    f"{name} is {value!r}; it must be a positive number of {SPEEDS[name]} per second, such as 64e9, or "
                    "float('inf') for no cost"
                )
        for name in SIZES:
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        for name in self.sources:
            check_choice("source", name, (*SPEEDS, *SIZES))

    @classmethod
    def here(cls, folder: str | os.PathLike[str] | None = None) -> Self:
        """Measure this machine: copies, gathers, products, disk, loopback, and the GPU if torch sees one.

        It takes some seconds, once per process; `save` keeps the result for other processes.

        Args:
            folder: a folder on the disk to measure; None: the workbench's cache (`WORKBENCH_CACHE`), or else the folder
                of temporary files.

        Returns:
            The speeds; `sources` says of each what was measured, or why it was not.

        Raises:
            OSError: `folder` does not exist or can't be written, or its disk is full.
        """
        from workbench.advisor.this_machine import measure_this_machine

        name, is_cpu, found = measure_this_machine(folder)
        return cls._of(found, name=name, is_cpu=is_cpu)

    @classmethod
    def named(cls, name: str) -> Self:
        """The machine of a GPU by its data sheet: "A100", "H100", "V100", "L4" or "RTX 4090".

        What a data sheet does not tell (the host, its disk and network) is assumed to be that of a usual server, and
        `sources` says so.

        Args:
            name: in any case, with or without spaces.

        Raises:
            ValueError: an unknown name.

        >>> import workbench as wb
        >>> wb.Machine.named("h100").gamma
        3350000000000.0
        """
        known, found = known_machine(name)
        return cls._of(found, name=known)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Self:
        """Read a machine from a YAML file, whose keys are the arguments of this class.

        Speeds are numbers or texts such as "64 GB/s", sizes such as "80 GiB". With `base: H100` (any known name) all
        that the file does not give is that machine's; without, it must give γ, α, β and `flops`, and the rest is
        assumed to be that of a usual server.

        Args:
            file: the file.

        Raises:
            OSError: the file can't be read.
            ValueError: invalid YAML, an unknown key, a missing key or an invalid value; the message names file and key.
        """
        about, found = read_machine(file)
        return cls._of(found, **about)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write this machine to a YAML file that `read` reads.

        Args:
            file: to create or replace.

        Raises:
            OSError: the file can't be written.
        """
        write_machine(file, {"name": self.name, "is_cpu": self.is_cpu, **self._numbers()}, self.sources)

    def rows(self) -> list[dict[str, str]]:
        """Rows of a table for people: of each speed and size the quantity, the field, its value and its source."""
        return [
            {
                "quantity": LABELS[name],
                "field": name,
                "value": shown(name, value),
                "source": self.sources.get(name, "as given"),
            }
            for name, value in self._numbers().items()
        ]

    def __repr__(self) -> str:
        """The name, and the speeds and sizes that are known."""
        known = [f"{name}={value:.4g}" for name, value in self._numbers().items() if value not in (None, float("inf"))]
        name, cpu = [f"name={self.name!r}"] * bool(self.name), ["is_cpu=True"] * self.is_cpu
        return f"Machine({', '.join([*name, *known, *cpu])})"

    def _numbers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LABELS}

    @classmethod
    def _of(cls, found: Mapping[str, tuple[Any, str]], **about: Any) -> Self:
        values = {name: value for name, (value, _) in found.items()}
        return cls(**values, **about, sources={name: source for name, (_, source) in found.items()})


def resolve_machine(machine: PeSpeeds | str | os.PathLike[str] | None = None) -> Machine:
    """The machine that an argument means.

    Args:
        machine: a machine; a known name, such as "A100"; a path that ends in .yaml or .yml; None or "here": this one,
            measured once per process. One of `wb.core.MACHINES` has no costs beyond α, β and γ.

    Raises:
        TypeError: anything else.
        ValueError: an unknown name, or an invalid file.
        OSError: the file can't be read.

    >>> resolve_machine("V100").flops
    15700000000000.0
    """
    if machine is None or machine == HERE:
        return Machine.here()
    if isinstance(machine, Machine):
        return machine
    if isinstance(machine, PeSpeeds):
        return Machine(machine.gamma, machine.alpha, machine.beta, machine.flops)
    check_type("machine", machine, (str, os.PathLike), 'pass a wb.Machine, a name such as "A100", or a YAML file')
    if isinstance(machine, os.PathLike) or machine.endswith((".yaml", ".yml")):
        return Machine.read(machine)
    return Machine.named(machine)


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
    disk_writes: float = 0
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
        if value is not None and (number is None or not math.isfinite(number) or number < 1 or number != int(number)):
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
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no machine file {path}; `workbench machine --save {path}` writes this machine's, and "
            "docs/advisor.md shows the fields"
        )
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
