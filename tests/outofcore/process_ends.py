"""Scripts that leave an epoch of a buffer open, or hold a store, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import torch

import workbench as wb

NODES, P, WIDTH = 40, 5, 6
SRC, DST = torch.randint(0, NODES, (2, 200), generator=torch.Generator().manual_seed(1))
GRAPH = wb.Graph.from_edges(SRC, DST, num_nodes=NODES)
ORDER = wb.outofcore.beta_order(P, 2)
ALL = torch.arange(NODES)

BEGIN = """
import os, signal, sys, threading, time
import torch
import workbench as wb
from tests.outofcore.process_ends import *
store = wb.outofcore.PartitionStore.open(sys.argv[1])
"""

TRAIN = f"""{BEGIN}
buffer = wb.outofcore.PartitionBuffer(store, capacity=2)
epoch = buffer.epoch(ORDER)
for state in epoch:
    write_version(store, state)
    if state.number == 2:
        break
"""
"""Leaves the epoch open in its third state, as a notebook does whose cell was left by `break`."""


def build(folder: Path, **options: object) -> wb.outofcore.PartitionStore:
    """A store of learnt rows that are 0."""
    defaults = {"rows": wb.outofcore.LearntInit(WIDTH, std=0), "num_partitions": P}
    return wb.outofcore.PartitionStore.build(folder, GRAPH, **{**defaults, **options})  # type: ignore[arg-type]


def write_version(store: wb.outofcore.PartitionStore, state: wb.outofcore.BufferState) -> None:
    """Let the rows of a state be its number + 1, and their optimizer state the negative."""
    ids = ALL[torch.isin(ALL // store.partition_rows, state.partitions)]
    values = torch.full((len(ids), WIDTH), float(state.number + 1))
    assert state.state_rows is not None
    state.rows.write(ids, values)
    state.state_rows.write(ids, -values)


def versions(last_state: int) -> torch.Tensor:
    """What rows are after the states up to one were trained, [NODES, WIDTH], in plain torch."""
    rows = torch.zeros(NODES, WIDTH)
    for number, partitions in enumerate(ORDER.states[: last_state + 1]):
        for partition in partitions.tolist():
            rows[partition * NODES // P : (partition + 1) * NODES // P] = number + 1
    return rows


def run(code: str, *args: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; a script that hangs fails the test."""
    whole = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=seconds, check=False)


def started(code: str, *args: object) -> "subprocess.Popen[str]":
    """Start a script, and return when it has printed its first line."""
    whole = [sys.executable, "-c", code, *map(str, args)]
    process = subprocess.Popen(whole, stdin=-1, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", process.communicate()
    return process
