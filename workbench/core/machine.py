"""`Machine`: the speeds that cost models divide counted bytes and operations by."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from types import MappingProxyType


@dataclass(frozen=True)
class Machine:
    """The speeds of one processing element (PE), such as a GPU, among equal ones.

    The three bandwidths are those of the complexity analysis of Cooperative Minibatching, which counts bytes alone;
    `flops` is an addition for models whose arithmetic takes longer than their memory traffic.

    Args:
        gamma: γ, bytes per second of the PE's own memory.
        alpha: α, bytes per second between the PE and the others in an all-to-all exchange.
        beta: β, bytes per second from storage (disk, network, host memory) to the PE.
        flops: floating-point operations per second; infinite: arithmetic takes no time.

    Raises:
        ValueError: a speed that is not a positive number.

    Source: Cooperative Minibatching, section 3.1, Table 1.
    """

    gamma: float
    alpha: float
    beta: float
    flops: float = float("inf")

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if not (isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0):
                unit = "operations" if name == "flops" else "bytes"
                raise ValueError(
                    f"{name} is {value!r}; it must be a positive number of {unit} per second, such as 64e9, or "
                    "float('inf') for no cost"
                )


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "A100": Machine(gamma=2e12, alpha=600e9, beta=64e9),
        "V100": Machine(gamma=0.9e12, alpha=300e9, beta=32e9),
    }
)
"""GPUs as Table 4 of Cooperative Minibatching gives them: memory, NVLink, PCI-e."""
