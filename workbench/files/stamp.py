"""`FileStamp`: what tells that a file may have changed since it was last read, without reading it."""

import time
from pathlib import Path
from typing import NamedTuple

_SETTLED_SECONDS = 2.0


class FileStamp(NamedTuple):
    """Size, times and inode of a file.

    Size and modification time alone are not enough: `cp -p`, `rsync -t` and `tar` set the time of another file. Those,
    and every write, set the time of change, which no program can choose; a renamed file has an inode of its own.

    Args:
        size: bytes.
        mtime_ns: time of modification, nanoseconds since 1970.
        ctime_ns: time of change, of contents or attributes.
        inode: number of the file in its file system.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @staticmethod
    def of(path: Path) -> "FileStamp":
        """Return the stamp of a file as it is now."""
        stat = path.stat()
        return FileStamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @property
    def changed_seconds(self) -> float:
        """When contents or attributes changed last, seconds since 1970."""
        return max(self.mtime_ns, self.ctime_ns) / 1e9

    @property
    def is_settled(self) -> bool:
        """Whether a later change gives another stamp: one made right after the last may have the same times."""
        return time.time() - self.changed_seconds > _SETTLED_SECONDS
