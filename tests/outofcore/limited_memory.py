"""Program: an epoch of node classification while the system limits the memory of the process; prints JSON.

    python -m tests.outofcore.limited_memory FOLDER BUDGET_BYTES

FOLDER contains the stores `warm` and `store`. The first is trained on before the limit, so that libraries, machine code
and threads are there; what the limit allows beyond that is the budget. Under the same limit, features and edges of the
second store are then allocated as tensors, as training in memory would do first.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.meter.limit import AnonymousPeak, limit_data

CAPACITY, CLASSES, BATCH, MIB = 3, 5, 256, 1 << 20


def train(folder: Path) -> list[float]:
    """Train an epoch from disk; every state after the first loads another partition."""
    store = wb.outofcore.PartitionStore.open(folder)
    model = wb.build_model("sage-mean", in_dim=store.row_shape[0], hidden_dim=16, out_dim=CLASSES, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters())
    order = wb.outofcore.node_order(store.num_partitions, CAPACITY, store.num_partitions)
    labels, ids = torch.arange(store.num_nodes) % CLASSES, torch.arange(0, store.num_nodes, 32)
    losses = []
    with wb.outofcore.PartitionBuffer(store, capacity=CAPACITY) as buffer:
        options: dict[str, Any] = {"sampler": wb.DenseSampler([5, 5]), "batch_size": BATCH, "epoch": 0}
        for state, _, mb in wb.outofcore.batches(buffer, order, ids, **options):
            losses.append(float(wb.train_step(model, mb, state.rows, labels, cross_entropy, optimizer)))
    return losses


def occupy(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate what training in memory needs at least: features and sources of the edges."""
    store = wb.outofcore.PartitionStore.open(folder)
    rows = torch.ones(store.num_nodes, *store.row_shape, dtype=store.dtype)
    return rows, torch.ones(int(store.bucket_edges.sum()), dtype=torch.int32)


def main(folder: Path, budget_bytes: int) -> None:
    """Train within the budget, allocate what training in memory needs, and print what happened."""
    threading.stack_size(MIB)  # 8 MiB by default, which the limit counts for each thread of the buffer
    train(folder / "warm")
    refused = None
    with AnonymousPeak(milliseconds=1) as peak, limit_data(budget_bytes), wb.limit_memory(budget_bytes):
        losses = train(folder / "store")
        try:
            occupy(folder / "store")
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError of the library's limit is one of these
            refused = str(error)
    sys.stdout.write(json.dumps({"losses": losses, "peak_bytes": peak.nbytes, "refused": refused}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
