"""A limit of open files, to test what happens beyond it."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def few_open_files(existing: Path, more: int) -> Iterator[int]:
    """Let this process open `more` files beside those it has; yields the limit. `existing` is any file."""
    with existing.open() as file:
        most = file.fileno() + more
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
