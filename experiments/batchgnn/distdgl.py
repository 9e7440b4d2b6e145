"""DistDGL itself on two machines that are this one: `python -m experiments.batchgnn.distdgl` prints a row per epoch.

The peer of Table 4's "one by one": `dgl.distributed` of DGL 1.1.3 with its own partitions, servers, samplers and
sockets; SAGE, fanouts 5, 10, 15 with replacement, 1024 training nodes per mini-batch, ogbn-arxiv undirected with
duplicate edges. A machine is a server and a trainer that share memory under names without the machine, so each pair has
a mount of /dev/shm of its own, which takes Linux and the rights to mount; and DGL tells machines apart by their
addresses, which is replaced, as both are this one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import workbench as wb

MACHINES, PORT, BATCH_SIZE, HIDDEN_DIM, EPOCHS = 2, 30050, 1024, 64, 3
FANOUTS = [5, 10, 15]


def main() -> None:
    """Partition the graph and run the servers and trainers of all machines."""
    with tempfile.TemporaryDirectory(prefix="distdgl-") as folder:
        partition(folder)
        addresses = "".join(f"127.0.0.{1 + rank} {PORT + rank}\n" for rank in range(MACHINES))
        Path(folder, "ip.txt").write_text(addresses, encoding="utf-8")
        role = f"{sys.executable} -m experiments.batchgnn.distdgl {folder}"
        machines = [
            subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script])
            for script in (
                f"mount -t tmpfs tmpfs /dev/shm && ({role} server {rank} >/dev/null 2>&1 & {role} client {rank})"
                for rank in range(MACHINES)
            )
        ]
        for machine in machines:
            machine.wait()


def partition(folder: str) -> None:
    """Write the parts of the graph, its nodes at random."""
    import dgl

    data = wb.load_dataset("ogbn-arxiv", undirected="multi", features="random:128")
    graph = data.graph.to_dgl()
    mask = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    mask[data.train_idx] = True
    graph.ndata.update({"x": torch.as_tensor(data.x), "y": torch.as_tensor(data.y), "train": mask})
    dgl.distributed.partition_graph(graph, "arxiv", MACHINES, folder, part_method="random", num_hops=1)  # pyright: ignore[reportAttributeAccessIssue]


def on_machine(folder: str, role: str, rank: int) -> None:
    """The server or the trainer of a machine; the first trainer prints a row per epoch."""
    os.environ.update(
        DGLBACKEND="pytorch",
        DGL_ROLE=role,
        DGL_SERVER_ID=str(rank),
        DGL_IP_CONFIG=f"{folder}/ip.txt",
        DGL_CONF_PATH=f"{folder}/arxiv.json",
        DGL_NUM_SERVER="1",
        DGL_NUM_CLIENT=str(MACHINES),
        DGL_NUM_SAMPLER="0",
        DGL_GRAPH_FORMAT="csc",
        DGL_DIST_MODE="distributed",
    )
    torch.set_num_threads(1)
    import dgl
    import dgl.distributed.rpc_client as addresses

    addresses.get_local_machine_id = lambda _: rank
    distributed: Any = dgl.distributed
    distributed.initialize(f"{folder}/ip.txt", net_type="socket")  # a server ends here
    group: Any = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=MACHINES)
    graph = distributed.DistGraph("arxiv", part_config=f"{folder}/arxiv.json")
    train = distributed.node_split(graph.ndata["train"], graph.get_partition_book(), force_even=True)
    for row in epochs(dgl, graph, train, rank):
        if rank == 0:
            print(json.dumps(row), flush=True)
    distributed.exit_client()


def epochs(dgl: Any, graph: Any, train: Any, rank: int) -> Any:
    """Train; rows and seconds of this trainer by epoch."""
    model = torch.nn.parallel.DistributedDataParallel(Sage(dgl.nn.SAGEConv))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    sampler, book = dgl.dataloading.NeighborSampler(FANOUTS, replace=True), graph.get_partition_book()
    options = {"batch_size": BATCH_SIZE, "shuffle": True, "drop_last": True}
    loader = dgl.dataloading.DistNodeDataLoader(graph, train, sampler, **options)
    for epoch in range(EPOCHS):
        torch.distributed.barrier()
        wall, processor, rows, steps = time.perf_counter(), time.process_time(), 0, 0
        for inputs, seeds, blocks in loader:
            rows += int((book.nid2partid(inputs) != rank).sum())
            loss = F.cross_entropy(model(blocks, graph.ndata["x"][inputs]), graph.ndata["y"][seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        seconds = {"epoch_seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
        yield {"epoch": epoch, "steps": steps, "rows": rows, **seconds}


class Sage(torch.nn.Module):
    """The paper's model of DGL's layers."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        dims = [(128, HIDDEN_DIM), (HIDDEN_DIM, HIDDEN_DIM), (HIDDEN_DIM, 40)]
        self.layers = torch.nn.ModuleList(layer(*pair, "mean") for pair in dims)

    def forward(self, blocks: Any, h: Any) -> Any:
        """The seeds' outputs."""
        for place, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if place < len(self.layers) - 1:
                h = F.dropout(F.relu(h), 0.5, self.training)
        return h


if __name__ == "__main__":
    if len(sys.argv) == 4:
        on_machine(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
