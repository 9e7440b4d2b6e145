"""Bytes of an epoch as the kernel counts them, beside the prediction and the counters."""

from pathlib import Path

import pytest
import torch

import workbench as wb

WIDTH, P, NODES = 1024, 8, 135_000  # 1.1 GB of values and state


def kernel_bytes() -> tuple[int, int]:
    """Bytes that the process has had read from devices and written to them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_epoch_moves_what_was_predicted(tmp_path: Path, prefetch: bool) -> None:
    src, dst = torch.randint(0, NODES, (2, 4_000_000), generator=torch.Generator().manual_seed(0))
    init, links = wb.outofcore.LearntInit(WIDTH), wb.Traffic()
    store = wb.outofcore.PartitionStore.build(
        tmp_path / "s", [(src, dst)], rows=init, num_partitions=P, num_nodes=NODES
    )
    order = wb.outofcore.beta_order(P, 3)
    predicted = wb.outofcore.epoch_io(store, order)
    with wb.outofcore.PartitionBuffer(store, capacity=3, prefetch=prefetch, traffic=links) as buffer:
        if not buffer.direct:
            pytest.skip("the file system of temporary folders does not support O_DIRECT")
        before = kernel_bytes()
        for state in buffer.epoch(order):
            for partition in state.partitions.tolist():
                first = torch.tensor([partition * store.partition_rows])
                state.rows.write(first, state.rows.read(first) + 1)
        read, written = (after - start for after, start in zip(kernel_bytes(), before, strict=True))
    if read == written == 0:
        pytest.skip("the file system of temporary folders does not count bytes in /proc/self/io")
    assert store.num_partitions * store.partition_bytes >= 10**9
    assert buffer.io == predicted
    assert links.row()["disk_rows_bytes"] + links.row()["disk_edges_bytes"] == predicted.read_bytes
    assert read == pytest.approx(predicted.read_bytes, rel=0.01)
    assert written == pytest.approx(predicted.written_bytes, rel=0.01)
