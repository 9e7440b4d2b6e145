"""Peaks and misses of programs that are on a GPU together: of each one alone."""

import pytest
import torch

import workbench as wb
from experiments.beyond.advisor import Program

pytestmark = pytest.mark.cuda

CODE = """
import torch
import workbench as wb

kept = torch.zeros({kept}, dtype=torch.uint8, device="cuda")
x = wb.CachedRows(data.x, {rows}, policy="lru", device="cuda")

def epoch(number):
    for start in range(0, 40, 20):
        rows = x.read(torch.arange(start, start + 20))
        used = torch.zeros({used}, dtype=torch.uint8, device="cuda")
        total = rows.sum() + used.sum()
        del rows, used  # or those of the next round would be beside them
        yield total
"""
MIB = 2**20


def test_a_program_has_a_peak_of_its_own():
    ids = torch.arange(40)
    graph = wb.Graph.from_edges(ids, ids.roll(1), num_nodes=40)
    data = wb.Dataset.build(
        graph, torch.ones(40, 4), ids % 2, train_idx=ids[:20], val_idx=ids[20:30], test_idx=ids[30:]
    )
    sizes = {"few": (MIB, 40, 3 * MIB), "many": (8 * MIB, 20, MIB)}
    programs = {
        name: Program(data, CODE.format(kept=kept, rows=rows, used=used)) for name, (kept, rows, used) in sizes.items()
    }
    for _ in range(2):
        for program in programs.values():
            program.train(1, 0.0)
    for name, (kept, rows, used) in sizes.items():
        found = programs[name].found()
        assert kept + used <= found["peak_bytes"] <= kept + used + MIB // 2
        assert found["missed_rows"] == (0 if rows == 40 else 40), "of timed epochs"
