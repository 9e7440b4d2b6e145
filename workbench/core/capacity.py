"""Refuse work that this machine has no memory for, before it allocates."""

from workbench.core.errors import CapacityError
from workbench.core.host_memory import available_bytes
from workbench.core.units import format_bytes

_MUCH_BYTES = 1 << 28  # what takes less is allocated without asking the system


def check_fits(what: str, nbytes: int, remedy: str) -> None:
    """Check an allocation on the host against the memory that is free.

    Args:
        what: takes the memory.
        nbytes: that it takes, at least.
        remedy: how to take less.

    Raises:
        CapacityError: with both numbers.
    """
    if nbytes > _MUCH_BYTES and nbytes > (free := available_bytes()):
        raise CapacityError(f"{what} takes {format_bytes(nbytes)}, but {format_bytes(free)} are free; {remedy}")
