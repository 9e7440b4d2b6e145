"""Training from disk in a process that may allocate a quarter of what features and edges occupy, and less."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.core.graph import Graph


def build(folder: Path, num_nodes: int, width: int, degree: int, num_partitions: int) -> int:
    """Build a store of a random graph; returns the bytes of features and edges."""
    generator = torch.Generator().manual_seed(1)
    sources = torch.randint(num_nodes, (num_nodes * degree,), dtype=torch.int32, generator=generator)
    graph = Graph(torch.arange(0, num_nodes * degree + 1, degree), sources)
    rows = torch.rand(num_nodes, width, generator=generator)
    wb.outofcore.PartitionStore.build(folder, graph, rows=rows, num_partitions=num_partitions)
    return rows.nbytes + sources.nbytes


def check(folder: Path, num_nodes: int, width: int) -> None:
    build(folder / "warm", 2000, width, 10, 32)
    nbytes = build(folder / "store", num_nodes, width, 10, 32)
    budget = nbytes // 4
    command = [sys.executable, "-m", "tests.outofcore.limited_memory", str(folder), str(budget)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found["losses"]) > 29 and found["peak_bytes"] <= budget
    assert found["refused"] is not None and "memory" in found["refused"]


@pytest.mark.slow
def test_a_quarter_of_the_memory_is_enough_from_disk_and_not_in_memory(tmp_path):
    check(tmp_path, 60_000, 512)


@pytest.mark.slow
def test_a_quarter_of_the_memory_of_a_larger_store(tmp_path):
    check(tmp_path, 1_000_000, 256)
