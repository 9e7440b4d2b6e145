"""The speeds and sizes of a `wb.Machine`: what each counts, and how people read it."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from workbench.core.units import format_bytes

SPEEDS: Mapping[str, str] = MappingProxyType(
    {
        "gamma": "bytes",
        "alpha": "bytes",
        "beta": "bytes",
        "flops": "operations",
        "gather": "bytes",
        "disk": "bytes",
        "disk_reads": "reads",
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
