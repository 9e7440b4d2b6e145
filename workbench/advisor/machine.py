"""`wb.Machine`: the speeds that configurations are priced on: measured, known by name, or read from a file."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import Any, Self

from workbench.advisor.known_machines import known_machine
from workbench.advisor.quantities import LABELS, SIZES, SPEEDS, shown
from workbench.core.errors import check_at_least, check_choice, check_type
from workbench.core.machine import Machine as PeSpeeds

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
        from workbench.advisor.machine_file import read_machine

        about, found = read_machine(file)
        return cls._of(found, **about)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write this machine to a YAML file that `read` reads.

        Args:
            file: to create or replace.

        Raises:
            OSError: the file can't be written.
        """
        from workbench.advisor.machine_file import write_machine

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
