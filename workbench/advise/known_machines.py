"""GPUs by name: what their data sheets tell, in a usual server."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from workbench.core.errors import check_type
from workbench.core.machine import MACHINES, Machine
from workbench.core.suggestions import unknown

USUAL_HOST: Mapping[str, Any] = MappingProxyType(
    {
        "gather": 20e9,
        "disk": 3e9,
        "disk_reads": 300e3,
        "network": 3.125e9,
        "host_memory_bytes": 128 * 10**9,
        "cores": 16,
    }
)

"""Speeds and sizes of the host that a data sheet of a GPU does not tell."""

_ASSUMED = "assumed: "

USUAL_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "gather": f"{_ASSUMED}rows of 512 B, on all cores of a server",
        "disk": f"{_ASSUMED}an NVMe disk",
        "disk_reads": f"{_ASSUMED}an NVMe disk, many reads at the same time",
        "network": f"{_ASSUMED}Ethernet of 25 Gbit/s",
        "host_memory_bytes": f"{_ASSUMED}128 GB",
        "cores": f"{_ASSUMED}16",
    }
)

"""How they were found."""

_TABLE_4 = "Cooperative Minibatching, Table 4: "
_BOTH = "both directions together"


def _gpu(name: str, speeds: Machine, flops: float, memory_gb: int, links: tuple[str, str, str], sheet: str) -> Machine:
    """A GPU in a usual server.

    Args:
        speeds: γ, α and β.
        flops: in float32, without tensor cores.
        memory_gb: its memory in 10⁹ bytes.
        links: sources of γ, α and β.
        sheet: name of the data sheet.
    """
    told = dict(zip(("gamma", "alpha", "beta"), links, strict=True))
    told |= {"flops": f"{sheet}: float32 without tensor cores", "device_memory_bytes": f"{sheet}: {memory_gb} GB"}
    return replace(
        speeds,
        name=name,
        flops=flops,
        device_memory_bytes=memory_gb * 10**9,
        **USUAL_HOST,
        sources=told | dict(USUAL_SOURCES),
    )


def _sheet_links(sheet: str, memory: str, peers: str, host: str) -> tuple[str, str, str]:
    return f"{sheet}: {memory}", f"{sheet}: {peers}, {_BOTH}", f"{sheet}: {host}, {_BOTH}"


_PUBLISHED = (f"{_TABLE_4}memory", f"{_TABLE_4}NVLink, {_BOTH}", f"{_TABLE_4}PCIe, {_BOTH}")
_H100, _L4 = "NVIDIA's data sheet of the H100 SXM5 80 GB", "NVIDIA's data sheet of the L4"
_RTX = "NVIDIA's specification of the GeForce RTX 4090"

_GPUS: Mapping[str, Machine] = MappingProxyType(
    {
        machine.name: machine
        for machine in (
            _gpu("A100", MACHINES["A100"], 19.5e12, 80, _PUBLISHED, "NVIDIA's data sheet of the A100 SXM 80 GB"),
            _gpu(
                "H100",
                Machine(gamma=3.35e12, alpha=900e9, beta=128e9),
                67e12,
                80,
                _sheet_links(_H100, "HBM3", "NVLink", "PCIe 5.0 x16"),
                _H100,
            ),
            _gpu("V100", MACHINES["V100"], 15.7e12, 32, _PUBLISHED, "NVIDIA's data sheet of the V100 SXM2 32 GB"),
            _gpu(
                "L4",
                Machine(gamma=300e9, alpha=64e9, beta=64e9),
                30.3e12,
                24,
                _sheet_links(_L4, "GDDR6", "PCIe 4.0 x16 (no NVLink)", "PCIe 4.0 x16"),
                _L4,
            ),
            _gpu(
                "RTX 4090",
                Machine(gamma=1008e9, alpha=64e9, beta=64e9),
                82.6e12,
                24,
                _sheet_links(_RTX, "GDDR6X", "PCIe 4.0 x16 (no NVLink)", "PCIe 4.0 x16"),
                _RTX,
            ),
        )
    }
)

MACHINE_NAMES = tuple(_GPUS)
"""Names that `Machine.named` knows."""


def named_machine(name: str) -> Machine:
    """Do what `Machine.named` does."""
    check_type("name", name, str, 'pass a name such as "A100"')
    found = {_key(each): machine for each, machine in _GPUS.items()}.get(_key(name))
    if found is None:
        raise ValueError(
            f"{unknown('machine', name, MACHINE_NAMES)}; describe any other machine in a file that ends in .yaml"
        )
    return found


def _key(name: str) -> str:
    return name.lower().translate({ord(each): None for each in " -_"})
