"""`PartitionTable`: which slot of its file each partition is in, replaced atomically by every write of a partition."""

import json
from dataclasses import dataclass, replace

from workbench import files
from workbench.core.errors import CorruptFileError
from workbench.outofcore.store_folder import StoreFolder
from workbench.outofcore.store_layout import TABLE, StoreLayout, read_json


@dataclass(frozen=True)
class PartitionTable:
    """The table of a store.

    Args:
        slots: slot of every partition.
        checksums: XXH3 of every partition's record.
        commits: number of writes so far: two tables of one store with the same number are the same.
    """

    slots: tuple[int, ...]
    checksums: tuple[int, ...]
    commits: int = 0

    def with_record(self, partition: int, slot: int, checksum: int) -> "PartitionTable":
        """The table in which a partition has moved to another slot."""
        slots, sums = list(self.slots), list(self.checksums)
        slots[partition], sums[partition] = slot, checksum
        return replace(self, slots=tuple(slots), checksums=tuple(sums), commits=self.commits + 1)

    def as_json(self, layout: StoreLayout) -> str:
        """The content of the table's file."""
        values = [layout.build_id, self.commits, list(self.slots), list(self.checksums)]
        fields = dict(zip(("build_id", "commits", "slots", "checksums"), values, strict=True))
        return json.dumps({**fields, "digest": files.digest(values)})


def read_table(folder: StoreFolder, layout: StoreLayout) -> PartitionTable:
    """Read the table of a store.

    Raises:
        FileNotFoundError: the table is missing.
        ValueError: the store was rebuilt since its handle was opened.
        CorruptFileError: the table was modified, or is that of another store.
    """
    file = folder.path / TABLE
    try:
        table = read_json(file, folder=folder.descriptor)
    except FileNotFoundError:
        raise folder.gone(TABLE) from None
    slots, sums, commits = table.get("slots"), table.get("checksums"), table.get("commits")
    values = [slots, sums] if commits is None else [table.get("build_id"), commits, slots, sums]  # none in version 2
    if table.get("digest") != files.digest(values) or not isinstance(slots, list) or not isinstance(sums, list):
        raise CorruptFileError(f"{file} was modified: its digest does not match; {layout.remedy}")
    sizes_match = len(slots) == len(set(slots)) == len(sums) == layout.num_partitions and max(slots) < layout.num_slots
    if table.get("build_id") != layout.build_id or not sizes_match:
        folder.check_build()
        raise CorruptFileError(f"{file} is the table of another store; {layout.remedy}")
    return PartitionTable(tuple(slots), tuple(sums), commits or 0)
