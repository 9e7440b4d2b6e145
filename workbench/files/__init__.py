"""Files of the library: written atomically, locked, and deleted only inside folders the library owns.

Every deletion, replacement and lock of the library goes through this package; a test walks all call sites.
"""

from workbench.files.atomic import (
    new_folder,
    remove_unfinished,
    restore,
    write_file,
    write_in_folder,
    write_new_file,
)
from workbench.files.lock import locked, locked_folder
from workbench.files.naming import digest
from workbench.files.removal import remove
from workbench.files.stamp import FileStamp

__all__ = [
    "FileStamp",
    "digest",
    "locked",
    "locked_folder",
    "new_folder",
    "remove",
    "remove_unfinished",
    "restore",
    "write_file",
    "write_in_folder",
    "write_new_file",
]
