"""DistDGL itself, on machines that are all this one: the peer of "one by one" in Table 4.

`dgl.distributed` of DGL 1.1.3 with its own partitions, servers, samplers and sockets. A machine is a server and a
trainer that share memory under names without the machine, so each pair has a mount of /dev/shm of its own, which takes
Linux and the rights to mount; and DGL tells machines apart by their addresses, which is replaced, as all are this one.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn import functional as F

from experiments.batchgnn.rank_epochs import PARTS, RankConfig
from experiments.batchgnn.rank_fetches import DISTDGL
from workbench.kernels.threads import get_num_threads

OWN_MOUNTS = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]


def epochs_of(config: RankConfig) -> dict[str, Any]:
    """Train like a rank of Table 4 and return its row: medians over the epochs of means over the trainers.

    Args:
        config: of the point; there are as many machines as ranks.

    Raises:
        PermissionError: a process may not have mounts of its own.
        RuntimeError: a process failed; the message has the last lines that all printed.
        TimeoutError: they took longer than `timeout_seconds`.
    """
    check_rights()
    with TemporaryDirectory(prefix="distdgl-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
        addresses = [f"127.0.0.{1 + rank} {port}" for rank, port in enumerate(free_ports(config.num_ranks))]
        (folder / "ip.txt").write_text("\n".join(addresses) + "\n", encoding="utf-8")
        end = time.monotonic() + config.timeout_seconds
        finish([start(folder, "partition", 0)], folder, end)
        finish([start(folder, "machine", rank) for rank in range(config.num_ranks)], folder, end)
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    timed = rows[1:]  # the first one warms up
    seconds = {key: median(row[key] for row in timed) for key in rows[0] if "_seconds" in key}
    times = [row["epoch_seconds"] for row in timed]
    ends = {"epoch_seconds_low": min(times), "epoch_seconds_high": max(times)}
    return {"fetching": DISTDGL, "macrobatch": 1, **rows[-1], **seconds, **ends}


def check_rights() -> None:
    """Raise a PermissionError unless a process may have mounts of its own."""
    try:
        refused = subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).stderr
    except FileNotFoundError:
        refused = b"there is no unshare"
    if refused:
        raise PermissionError(
            f"DistDGL needs a mount of /dev/shm per machine, but: {refused.decode(errors='replace').strip()}; run as "
            "root on Linux, or leave the system out (--set system=workbench)"
        )


def free_ports(number: int) -> list[int]:
    """Ports that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def start(folder: Path, role: str, rank: int) -> subprocess.Popen[bytes]:
    """Start a process; what it prints is in the log of its role."""
    command = [sys.executable, "-m", "experiments.batchgnn.distdgl", str(folder), role, str(rank)]
    if role == "machine":
        command = [*OWN_MOUNTS, "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$0" "$@"', *command]
    with (folder / f"{role}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[2])


def finish(processes: list[subprocess.Popen[bytes]], folder: Path, end: float) -> None:
    """Wait until all have ended; once one has failed or time is over, end the others."""
    try:
        while None in (ends := [one.poll() for one in processes]) and not any(ends):
            if time.monotonic() > end:
                raise TimeoutError("DistDGL took longer than timeout_seconds; set more, or fewer epochs")
            time.sleep(0.05)
    finally:
        failed = any(one.returncode for one in processes)
        for one in processes:
            one.kill()
            one.wait()
    if failed:
        logs = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.glob("*.log"))]
        raise RuntimeError("DistDGL failed:\n" + "\n".join("\n".join(log.splitlines()[-20:]) for log in logs))


def run_role(folder: Path, role: str, rank: int) -> None:
    """What a process does."""
    config = RankConfig.model_validate_json((folder / "config.json").read_text(encoding="utf-8"))
    threads = max(1, get_num_threads() // config.num_ranks)
    os.environ.update(DGLBACKEND="pytorch", OMP_NUM_THREADS=str(threads))
    torch.set_num_threads(threads)
    if role == "partition":
        partition(config, folder)
    elif role == "machine":
        server = start(folder, "server", rank)
        train(config, folder, rank)
        server.wait()
    else:
        connect(config, folder, "server", rank)


def partition(config: RankConfig, folder: Path) -> None:
    """Write the parts of the graph, its nodes at random."""
    import dgl

    data: Any = config.dataset.load()
    graph = data.graph.to_dgl()
    mask = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    mask[data.train_idx] = True
    graph.ndata.update({"x": torch.as_tensor(data.x), "y": torch.as_tensor(data.y), "train": mask})
    write: Any = dgl.distributed.partition_graph  # pyright: ignore[reportAttributeAccessIssue]
    write(graph, "graph", config.num_ranks, str(folder), part_method="random", num_hops=1)


def connect(config: RankConfig, folder: Path, role: str, rank: int) -> Any:
    """Become a server, which never returns, or a client of all servers."""
    os.environ.update(
        DGL_ROLE=role,
        DGL_SERVER_ID=str(rank),
        DGL_IP_CONFIG=str(folder / "ip.txt"),
        DGL_CONF_PATH=str(folder / "graph.json"),
        DGL_NUM_SERVER="1",
        DGL_NUM_CLIENT=str(config.num_ranks),
        DGL_NUM_SAMPLER="0",
        DGL_GRAPH_FORMAT="csc",
        DGL_DIST_MODE="distributed",
    )
    import dgl
    import dgl.distributed.rpc_client as addresses

    addresses.get_local_machine_id = lambda _: rank
    distributed: Any = dgl.distributed
    distributed.initialize(str(folder / "ip.txt"), net_type="socket")
    return dgl


def train(config: RankConfig, folder: Path, rank: int) -> None:
    """Be the trainer of a machine; that of the first one writes a row per epoch."""
    dgl = connect(config, folder, "client", rank)
    group: Any = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=config.num_ranks)
    graph = dgl.distributed.DistGraph("graph", part_config=str(folder / "graph.json"))
    for row in epochs(dgl, config, graph, rank):
        if rank == 0:
            with (folder / "rows.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    dgl.distributed.exit_client()


def epochs(dgl: Any, config: RankConfig, graph: Any, rank: int) -> Iterator[dict[str, float]]:
    """Train one epoch more than are timed: seconds by part, means over the trainers; and rows fetched by all."""
    book, x, y = graph.get_partition_book(), graph.ndata["x"], graph.ndata["y"]
    seeds = dgl.distributed.node_split(graph.ndata["train"], book, force_even=True)
    classes = sum_over_ranks([float(y[seeds].max())], largest=True)[0]
    model: Any = Model(dgl, config, x.shape[1], int(classes) + 1)
    model = torch.nn.parallel.DistributedDataParallel(model) if config.num_ranks > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    sampler = dgl.dataloading.NeighborSampler(list(config.fanouts), replace=config.replace)
    options = {"batch_size": config.batch_size, "shuffle": True, "drop_last": True}
    loader = dgl.dataloading.DistNodeDataLoader(graph, seeds, sampler, **options)
    for _ in range(1 + config.epochs):
        sum_over_ranks([0.0])  # starts the ranks together
        spent, rows, steps = dict.fromkeys(PARTS, 0.0), 0, 0
        start = time.perf_counter()
        now, batches = start, iter(loader)
        while (batch := next(batches, None)) is not None:
            now = add(spent, "topology", now)
            inputs, outputs, blocks = batch
            features, labels = x[inputs], y[outputs]
            now = add(spent, "features", now)
            loss = F.cross_entropy(model(blocks, features), labels)
            now = add(spent, "forward", now)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now = add(spent, "backward", now)
            rows += int((book.nid2partid(inputs) != rank).sum())
            steps, now = steps + 1, time.perf_counter()
        whole = time.perf_counter() - start
        means = [value / config.num_ranks for value in sum_over_ranks([whole, *spent.values()])]
        names = ["epoch_seconds", *(f"{part}_seconds" for part in spent)]
        fetched = sum_over_ranks([float(rows)])[0]
        counts = {"num_batches": steps, "num_nodes": graph.num_nodes(), "rows": int(fetched)}
        yield dict(zip(names, means, strict=True)) | counts


def add(spent: dict[str, float], part: str, since: float) -> float:
    """Add the seconds since a time to a part, and return the present one."""
    now = time.perf_counter()
    spent[part] += now - since
    return now


def sum_over_ranks(values: list[float], *, largest: bool = False) -> list[float]:
    """Sums, or largest values, over the trainers; collective."""
    group: Any = torch.distributed
    found = torch.tensor(values, dtype=torch.float64)
    group.all_reduce(found, group.ReduceOp.MAX if largest else group.ReduceOp.SUM)
    return found.tolist()


class Model(torch.nn.Module):
    """The model of Table 4, of DGL's layers."""

    def __init__(self, dgl: Any, config: RankConfig, in_dim: int, out_dim: int) -> None:
        super().__init__()
        dims = [in_dim, *[config.hidden_dim] * (len(config.fanouts) - 1), out_dim]
        self.layers = torch.nn.ModuleList(_layer(dgl, config, *pair) for pair in pairwise(dims))
        norm = torch.nn.BatchNorm1d if config.model == "gin" else torch.nn.Identity
        self.norms = torch.nn.ModuleList(norm(dim) for dim in dims[1:-1])
        self.dropout = 0.0 if config.model == "gin" else 0.5

    def forward(self, blocks: Any, h: Any) -> Any:
        """The seeds' outputs."""
        for layer, norm, block in zip(self.layers, self.norms, blocks, strict=False):
            h = F.dropout(F.relu(norm(layer(block, h))), self.dropout, self.training)
        return self.layers[-1](blocks[-1], h)


def _layer(dgl: Any, config: RankConfig, in_dim: int, out_dim: int) -> Any:
    if config.model == "sage-mean":
        return dgl.nn.SAGEConv(in_dim, out_dim, "mean")
    if config.model == "gcn":
        return dgl.nn.GraphConv(in_dim, out_dim, norm="right", allow_zero_in_degree=True)
    first, second = torch.nn.Linear(in_dim, config.hidden_dim), torch.nn.Linear(config.hidden_dim, out_dim)
    norm = torch.nn.BatchNorm1d(config.hidden_dim)
    return dgl.nn.GINConv(torch.nn.Sequential(first, norm, torch.nn.ReLU(), second), "sum")


if __name__ == "__main__":
    run_role(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
