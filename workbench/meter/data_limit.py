"""A limit on the memory that a process may still allocate, enforced by the system."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.core.errors import check_bytes
from workbench.meter.host_peak import status_bytes


@contextmanager
def limit_data(budget_bytes: int | str) -> Iterator[None]:
    """Limit what this process may allocate inside a `with` block beyond what it has: RLIMIT_DATA of Linux.

    Everything counts that is private and writable: tensors, NumPy arrays, anonymous maps, stacks of threads, objects of
    the interpreter; files mapped for reading and the page cache do not. An allocation beyond the limit fails: torch
    raises RuntimeError, NumPy and Python MemoryError.

    Args:
        budget_bytes: bytes beyond those of the entry, a number or text such as "64MiB".

    Raises:
        ValueError: a negative number, or a limit that the process is not allowed.
        OSError: the system does not report the memory of a process (only Linux does).
    """
    budget = check_bytes("budget_bytes", budget_bytes, 0)
    present = status_bytes("VmData")
    if present is None:
        raise OSError("the system does not report VmData in /proc/self/status; limit_data needs Linux")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (present + budget, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
