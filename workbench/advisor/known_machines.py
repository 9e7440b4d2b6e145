"""GPUs by name, in a usual server: what data sheets tell, and what is assumed."""

from collections.abc import Mapping
from types import MappingProxyType

from workbench.core.errors import check_type
from workbench.core.machine import MACHINES
from workbench.core.suggestions import unknown

Sourced = Mapping[str, tuple[float, str]]
"""Fields of a machine to their value and how it was found."""

DISK = ("disk", "disk_reads", "disk_writes", "disk_block_bytes")
"""Fields of a machine's disk."""

USUAL_HOST: Sourced = MappingProxyType(
    {
        "gather": (20e9, "assumed: rows of 512 B, on all cores of a server"),
        "disk": (3e9, "assumed: an NVMe disk"),
        "disk_reads": (300e3, "assumed: an NVMe disk, many reads at the same time"),
        "disk_writes": (1e9, "assumed: an NVMe disk, with a checksum of what is written"),
        "disk_block_bytes": (4096, "assumed: an NVMe disk"),
        "network": (3.125e9, "assumed: Ethernet of 25 Gbit/s"),
        "host_memory_bytes": (128 * 10**9, "assumed: 128 GB"),
        "cores": (16, "assumed: 16"),
    }
)
"""The host, its disk and network, of which a GPU's data sheet tells nothing."""


def _published(name: str) -> Sourced:
    table = "Cooperative Minibatching, Table 4"
    speeds = MACHINES[name]
    return {
        "gamma": (speeds.gamma, f"{table}: memory"),
        "alpha": (speeds.alpha / 2, f"{table}: NVLink, one of two directions"),
        "beta": (speeds.beta / 2, f"{table}: PCIe, one of two directions"),
    }


def _from_sheet(sheet: str, flops: float, memory_gb: int, **links: tuple[float, str]) -> Sourced:
    told = {name: (speed, f"{sheet}: {what}") for name, (speed, what) in links.items()}
    return told | {
        "flops": (flops, f"{sheet}: float32 without tensor cores"),
        "device_memory_bytes": (memory_gb * 10**9, f"{sheet}: {memory_gb} GB"),
    }


_PCIE_4, _PCIE_5 = (32e9, "PCIe 4.0 x16, one direction"), (64e9, "PCIe 5.0 x16, one direction")
_PEERS = (32e9, "PCIe 4.0 x16 (no NVLink), one direction")

_GPUS: Mapping[str, Sourced] = MappingProxyType(
    {
        "A100": {**_published("A100"), **_from_sheet("NVIDIA's data sheet of the A100 SXM 80 GB", 19.5e12, 80)},
        "H100": _from_sheet(
            "NVIDIA's data sheet of the H100 SXM 80 GB",
            67e12,
            80,
            gamma=(3.35e12, "memory"),
            alpha=(450e9, "NVLink, one of two directions"),
            beta=_PCIE_5,
        ),
        "V100": {**_published("V100"), **_from_sheet("NVIDIA's data sheet of the V100 SXM2 32 GB", 15.7e12, 32)},
        "L4": _from_sheet(
            "NVIDIA's data sheet of the L4", 30.3e12, 24, gamma=(300e9, "memory"), alpha=_PEERS, beta=_PCIE_4
        ),
        "RTX 4090": _from_sheet(
            "NVIDIA's specification of the GeForce RTX 4090",
            82.6e12,
            24,
            gamma=(1008e9, "memory"),
            alpha=_PEERS,
            beta=_PCIE_4,
        ),
    }
)

MACHINE_NAMES = tuple(_GPUS)
"""Names that `wb.Machine.named` knows."""


def known_machine(name: str) -> tuple[str, Sourced]:
    """A known machine: its name as it is written, and its speeds and sizes.

    Args:
        name: in any case, with or without spaces.

    Raises:
        TypeError: `name` is not a text.
        ValueError: an unknown name.
    """
    check_type("name", name, str, f'pass a name such as "{MACHINE_NAMES[0]}"')
    for known, found in _GPUS.items():
        if _key(known) == _key(name):
            return known, {**found, **USUAL_HOST}
    raise ValueError(f"{unknown('machine', name, MACHINE_NAMES)} (describe any other in a file that ends in .yaml)")


def _key(name: str) -> str:
    return name.lower().translate({ord(each): None for each in " -_"})
