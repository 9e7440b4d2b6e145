"""Program: build a store of random edges and learnt rows; prints JSON with the peak of memory and the files' bytes.

    python -m tests.outofcore.build_memory FOLDER

A process of its own: in a long test run, malloc serves a build from what earlier tests freed, or asks for more.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import workbench as wb
from workbench.meter.limit import AnonymousPeak

NODES, PARTITIONS, CHUNK = 20_000, 20, 1 << 15


class Chunks:
    """Random edges that are drawn anew in every pass."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.count):
            src, dst = torch.randint(0, NODES, (2, CHUNK), generator=generator)
            yield src, dst


def build(folder: Path, chunks: int) -> wb.outofcore.PartitionStore:
    rows = wb.outofcore.LearntInit(256)
    return wb.outofcore.PartitionStore.build(
        folder, Chunks(chunks), rows=rows, num_partitions=PARTITIONS, num_nodes=NODES
    )


def main(folder: Path, chunks: int = 120) -> None:
    """Build once to load libraries and machine code, then once measured."""
    build(folder / "warm", 1)
    with AnonymousPeak(milliseconds=1) as peak:
        store = build(folder / "store", chunks)
    assert store.num_edges == chunks * CHUNK
    files = sum(file.stat().st_size for file in (folder / "store").rglob("*") if file.is_file())
    sys.stdout.write(json.dumps({"peak_bytes": peak.nbytes, "file_bytes": files}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
