"""Machines by name and from files, and as tables: what the methods of `wb.Machine` call."""

import math
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from workbench.advise.known_machines import named_machine
from workbench.core.errors import check_type
from workbench.core.machine import SIZES, SPEEDS, Machine
from workbench.core.units import format_bytes

HERE = "here"
"""The name of this machine, measured."""


def resolve_machine(machine: Machine | str | os.PathLike[str] | None = None) -> Machine:
    """The machine that an argument means.

    Args:
        machine: a machine; a known name, such as "A100"; a path that ends in .yaml or .yml; None or "here": this one,
            measured once per process.

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
    check_type("machine", machine, (str, os.PathLike), 'pass a wb.Machine, a name such as "A100", or a YAML file')
    if isinstance(machine, os.PathLike) or str(machine).endswith((".yaml", ".yml")):
        return Machine.read(machine)
    return Machine.named(machine)


def _measured_here(folder: str | os.PathLike[str] | None) -> Machine:
    from workbench.advise.this_machine import measure_this_machine

    return measure_this_machine(folder)


def _read(file: str | os.PathLike[str]) -> Machine:
    from workbench.advise.machine_file import read_machine

    return read_machine(file)


def _save(machine: Machine, file: str | os.PathLike[str]) -> None:
    from workbench.advise.machine_file import save_machine

    save_machine(machine, file)


_QUANTITIES: Mapping[str, str] = MappingProxyType(
    {
        "gamma": "device memory",
        "alpha": "between devices",
        "beta": "host to device",
        "flops": "float32 products",
        "gather": "gather of host rows",
        "disk": "disk, long reads",
        "disk_reads": "disk, random reads",
        "network": "between ranks",
        "device_memory_bytes": "memory of the device",
        "host_memory_bytes": "memory of the host",
        "cores": "CPU cores",
    }
)
_UNITS = {"bytes": "B/s", "operations": "flop/s", "reads": "reads/s"}
_PREFIXES = ("", "k", "M", "G", "T", "P")


def _rows(machine: Machine) -> list[dict[str, str]]:
    return [
        {
            "quantity": quantity,
            "field": name,
            "value": _shown(name, getattr(machine, name)),
            "source": machine.sources.get(name, "as given"),
        }
        for name, quantity in _QUANTITIES.items()
    ]


def _shown(name: str, value: float | int | None) -> str:
    if value is None:
        return "not known"
    if name == "cores":
        return f"{value}"
    if name in SIZES:
        return format_bytes(value)
    return "no cost" if math.isinf(value) else _rate(value, _UNITS[SPEEDS[name]])


def _rate(value: float, unit: str) -> str:
    """A speed with a decimal prefix.

    >>> _rate(3.35e12, "B/s"), _rate(20_000, "reads/s"), _rate(999.96e9, "flop/s")
    ('3.35 TB/s', '20,000 reads/s', '1 Tflop/s')
    """
    if unit == "reads/s":
        return f"{value:,.0f} {unit}"
    power = 0
    while float(f"{value:.3g}") >= 1000 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_PREFIXES[power]}{unit}"


METHODS: Mapping[str, Any] = MappingProxyType(
    {
        "Machine.here": _measured_here,
        "Machine.named": named_machine,
        "Machine.read": _read,
        "Machine.save": _save,
        "Machine.rows": _rows,
    }
)
"""What the methods of `Machine` call."""
