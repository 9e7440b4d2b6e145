"""Learnt rows in half precision in the partition buffer: their state is float32, in memory, files and byte counts."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.core.errors import CorruptFileError
from workbench.files import digest

HALF = [torch.float16, torch.bfloat16]
NODES, DIM, P, STEPS = 35, 5, 5, 3  # 7 rows per partition: the values end within a row of the state
GRAPH = wb.Graph.from_edges(torch.arange(NODES), torch.arange(NODES).roll(1), num_nodes=NODES)
SCALES = torch.tensor([0.0, 1e-4, 1.0, 30.0, 1000.0])


def build(folder: Path, dtype: torch.dtype) -> wb.outofcore.PartitionStore:
    rows = wb.outofcore.LearntInit(DIM, std=0.5, dtype=dtype)
    return wb.outofcore.PartitionStore.build(folder / "store", GRAPH, rows=rows, num_partitions=P)


def gradient(ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (SCALES * (1 + ids[:, None] % 3)).to(dtype)


@pytest.mark.parametrize("dtype", HALF)
def test_rows_equal_those_in_float64(tmp_path: Path, dtype: torch.dtype) -> None:
    store = build(tmp_path, dtype)
    start = store.read()
    assert start.dtype == dtype and 0.3 < float(start.float().std()) < 0.7
    assert store.read(state=True).dtype == torch.float32 and not store.read(state=True).any()
    exact, sums = start.double(), torch.zeros(NODES, DIM, dtype=torch.float64)
    order = wb.outofcore.comet_order(P, 2, num_groups=P)
    for _ in range(STEPS):
        seen = torch.zeros(NODES, dtype=torch.int64)
        with wb.outofcore.PartitionBuffer(store, capacity=2) as buffer:
            for state in buffer.epoch(order):
                rows = wb.LearnedRows(state.rows, state.state_rows, lr=0.25)
                ids = torch.cat(
                    [torch.arange(NODES)[torch.arange(NODES) // store.partition_rows == p] for p in state.partitions]
                )
                rows.add_gradients(ids, gradient(ids, dtype))
                rows.step()
                total = gradient(ids, dtype).double()
                sums[ids] += total.square()
                exact[ids] = (exact[ids] - 0.25 * total / (sums[ids].sqrt() + 1e-10)).to(dtype).double()
                seen[ids] += 1
        assert bool((seen > 0).all())
    reopened = wb.outofcore.PartitionStore.open(store.folder)
    torch.testing.assert_close(reopened.read(state=True).double(), sums, rtol=1e-5, atol=0)
    torch.testing.assert_close(reopened.read().double(), exact, rtol=0.02, atol=0.01)
    assert torch.equal(reopened.read()[:, 0], start[:, 0]), "no gradient, no step"
    assert not reopened.damaged()


@pytest.mark.parametrize("dtype", HALF)
def test_bytes_are_those_of_both_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    store = build(tmp_path, dtype)
    layout = store.layout
    assert (layout.row_bytes, layout.state_row_bytes) == (2 * DIM, 4 * DIM)
    values = -(-7 * 2 * DIM // (4 * DIM)) * 4 * DIM  # up to a whole row of the state
    assert layout.record_bytes == values + 7 * 4 * DIM and store.partition_bytes == 4096
    assert (store.folder / "rows.bin").stat().st_size == layout.num_slots * layout.slot_bytes
    traffic = wb.Traffic()
    with wb.outofcore.PartitionBuffer(store, capacity=P, traffic=traffic) as buffer:
        for state in buffer.epoch(wb.outofcore.comet_order(P, P)):
            state.rows.read(torch.arange(10))
            assert state.state_rows is not None and state.state_rows.read(torch.arange(NODES)).dtype == torch.float32
    assert traffic.snapshot().nbytes("host", "rows") == 10 * 2 * DIM


def test_float32_stores_keep_their_format(tmp_path: Path) -> None:
    store = build(tmp_path, torch.float32)
    assert "state_dtype" not in json.loads((store.folder / "store.json").read_text())
    assert store.layout.record_bytes == 2 * 7 * 4 * DIM


def test_stores_with_a_state_in_half_precision_are_refused(tmp_path: Path) -> None:
    """As earlier versions wrote them: small enough that all sizes of files are the same."""
    store = build(tmp_path, torch.float16)
    header = store.folder / "store.json"
    values = json.loads(header.read_text())
    assert values.pop("state_dtype") == "float32"
    fields = {name: value for name, value in values.items() if name not in ("kind", "version", "digest")}
    header.write_text(json.dumps(values | {"digest": digest(fields)}))
    with pytest.raises(CorruptFileError, match=r"state is float16, too, .*build the store again, .* float32"):
        wb.outofcore.PartitionStore.open(store.folder)


def test_learnt_rows_are_floating() -> None:
    with pytest.raises(ValueError, match=r"dtype is torch.int64, but learnt rows are floating; pass torch.float32"):
        wb.outofcore.LearntInit(DIM, dtype=torch.int64)


def test_the_tuned_buffer_counts_the_state() -> None:
    sizes: dict[str, Any] = {"num_edges": 10**7, "edge_bytes": 16, "memory": "300 MiB", "learnt": True}
    half = wb.outofcore.plan_buffer(10**6, 200, state_bytes=400, **sizes)
    assert half == wb.outofcore.plan_buffer(10**6, 300, **sizes), "2 + 4 bytes per value, as 3 + 3"
    sizes["learnt"] = False
    with pytest.raises(ValueError, match="only learnt rows have a state; pass learnt=True"):
        wb.outofcore.plan_buffer(10**6, 200, state_bytes=400, **sizes)
