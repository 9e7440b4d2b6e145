"""Interrupts sampling, training etc. at random moments and checks the results of the same work afterwards.

    python -m tests.interrupted --interrupts 2000 --seed 0

prints as JSON how many interrupts hit each scenario, which state was broken, and the results after the interrupts;
without `--interrupts`, the results of an uninterrupted process. Another process sends real SIGINTs to this one; after
each, the process's state is checked and the same scenario runs again.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from numba.core import config as numba_config
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import workbench as wb
from workbench.datasets.cache import cached
from workbench.nn.gnn import GNN
from workbench.training.evaluate import full_neighbour_logits

_KILLER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGINT)
    print(flush=True)
"""


def digest(tensors: Iterable[Tensor | None]) -> str:
    out = hashlib.sha256()
    for tensor in tensors:
        out.update(b"none" if tensor is None else tensor.detach().contiguous().numpy().tobytes())
    return out.hexdigest()


def batch_digest(mb: wb.MiniBatch) -> str:
    return digest(mb._tensors().values())


SCENARIOS = (
    "wide_sample",
    "weighted_sample",
    "epoch",
    "split",
    "partition",
    "train",
    "recover",
    "profile",
    "evaluate",
    "estimate",
    "cache",
    "disk",
    "cached_rows",
)


class Scenarios:
    """The work to interrupt. Graph, features and models live as long as the process, as in a notebook."""

    def __init__(self, cache: Path) -> None:
        os.environ["WORKBENCH_CACHE"] = str(cache)
        draw = torch.Generator().manual_seed(0)
        half = 1 << 19
        src = torch.randint(half, (4_000_000,), generator=draw)
        dst = torch.randint(half, 2 * half, (4_000_000,), generator=draw)
        self.bipartite = wb.Graph.from_edges(src, dst, num_nodes=2 * half)
        self.wide_seeds = half + torch.randperm(half, generator=draw)[:100_000]
        src, dst = torch.randint(3000, (2, 30_000), generator=draw)
        self.graph = wb.Graph.from_edges(src, dst, num_nodes=3000, edge_weight=torch.rand(30_000, generator=draw))
        self.plain = wb.Graph(self.graph.indptr, self.graph.indices)
        self.x = torch.randn(3000, 16, generator=draw, dtype=torch.float64)
        self.y = torch.arange(3000) % 5
        self.batch = wb.NeighborSampler([10, 10], seed=1).sample(self.plain, torch.arange(600))
        self.evaluated = self.new_model("sage-mean")
        self.kept = self.new_model("gcn")
        self.kept_optimizer = torch.optim.Adam(self.kept.parameters(), lr=0.01)
        self.built = 0
        self.rows, self.ids = cache / "rows", torch.randint(3000, (2000,), generator=draw)
        wb.MappedRows.create(self.rows, self.x)
        self.caches = [
            wb.CachedRows(self.x.clone(), 300, policy=policy, rows=self.ids.unique() if policy == "static" else None)
            for policy in ("lru", "sieve", "s3-fifo", "static")
        ]

    def new_model(self, kind: str) -> GNN:
        return wb.build_model(kind, in_dim=16, hidden_dim=16, out_dim=5, num_layers=2, dropout=0.5).double()

    def wide_sample(self) -> str:
        return batch_digest(wb.NeighborSampler([5], seed=3).sample(self.bipartite, self.wide_seeds))

    def weighted_sample(self) -> str:
        sampler = wb.NeighborSampler([5, 10, 80], weighted=True, edge_ids=True, seed=2)
        return batch_digest(sampler.sample(self.graph, torch.arange(200, 400), step=4))

    def epoch(self) -> str:
        sampler = wb.NeighborSampler([5, 5], seed=2)
        stream = wb.batches(self.plain, torch.arange(1500), sampler=sampler, batch_size=100, epoch=0)
        return digest(tensor for _, mb in wb.prefetch(stream) for tensor in mb._tensors().values())

    def split(self) -> str:
        return digest(t for part in self.batch.split(torch.arange(600) % 40) for t in part._tensors().values())

    def partition(self) -> str:
        methods = ("reg", "star_refined", "random")
        return digest(wb.partition_batch(self.batch, 4, method=method) for method in methods)

    def train(self) -> str:
        model = self.new_model("sage-pool")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        micro = self.batch.split(torch.arange(600) % 3)
        for _ in range(2):
            wb.train_step(model, micro, self.x, self.y, F.cross_entropy, optimizer)
        return digest(model.parameters())

    def recover(self) -> str:
        """Run out of memory: a third of the batch fits in two parts, but not in one."""
        model = self.new_model("sage-pool")
        micro = self.batch.split(torch.arange(600) // 200)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        cuts: list[int] = []
        recover = wb.Recovery(method="range", on_split=lambda whole, parts, error: cuts.append(len(parts)))
        with wb.limit_memory(1_300_000):
            wb.train_step(model, micro, self.x, self.y, F.cross_entropy, optimizer, recover=recover)
        assert cuts, "nothing was cut: the limit is too high"
        return digest(model.parameters())

    def profile(self) -> str:
        model = self.new_model("gat")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        found = wb.profile_epoch(model, [[self.batch]], self.x, self.y, F.cross_entropy, optimizer)
        return f"{found.peak_bytes} {dict(found.phase_peak_bytes)} {digest(model.parameters())}"

    def evaluate(self) -> str:
        return digest([full_neighbour_logits(self.evaluated, self.plain, self.x, chunk_edges=5000)])

    def estimate(self) -> str:
        class UserModel(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = torch.nn.Linear(16, 5, dtype=torch.float64)

            def forward(self, blocks: list[wb.Block], x: Tensor) -> Tensor:
                return self.inner(x)[: blocks[-1].num_dst]

        torch.manual_seed(0)
        return str(wb.estimate_memory(UserModel(), self.batch, in_dim=16).peak_bytes)

    def cache(self) -> str:
        """Build, cache and map a new data set each time."""
        self.built += 1
        found = cached("set", "a rule", (), {"number": self.built}, self.dataset)
        assert isinstance(found, wb.Dataset)
        return digest([found.x, found.y, found.graph.indices])

    def disk(self) -> str:
        store = wb.DiskRows(self.rows, threads=8)
        return digest(store.read(self.ids) for _ in range(20))

    def cached_rows(self) -> str:
        """Read, write and stage rows of caches that live as long as the process; writes repeat what is there."""
        found = []
        for cache in self.caches:
            for ids in self.ids.split(100):
                found.append(cache.read(ids))
                cache.write(ids.unique(), self.x[ids.unique()])
            found.append(cache.stage(self.ids[:500]).read(self.ids[:500]))
        return digest(found)

    def dataset(self) -> wb.Dataset:
        some, none = torch.arange(10), torch.empty(0, dtype=torch.int64)
        return wb.Dataset.build(
            self.plain, self.x.float(), self.y, train_idx=some, val_idx=none, test_idx=none, num_classes=5, name="set"
        )


def atomic_steps(scenarios: Scenarios) -> tuple[Callable[[], str], Callable[[], bool]]:
    """Return a function that trains a persistent model, and a check that its state is that of complete steps."""
    micro = scenarios.batch.split(torch.arange(600) % 2)
    model, optimizer = scenarios.kept, scenarios.kept_optimizer
    twin = scenarios.new_model("gcn")
    twin_optimizer = torch.optim.Adam(twin.parameters(), lr=0.01)

    def step(network: GNN, network_optimizer: torch.optim.Optimizer) -> str:
        wb.train_step(network, micro, scenarios.x, scenarios.y, F.cross_entropy, network_optimizer)
        return digest(network.parameters())

    def is_complete() -> bool:
        state = digest(model.parameters())
        for _ in range(100):
            if digest(twin.parameters()) == state:
                return True
            step(twin, twin_optimizer)
        return False

    return lambda: step(model, optimizer), is_complete


def rows_are_open() -> bool:
    """Return whether a descriptor of this process refers to a file of rows, on systems that list them."""
    links = [link for link in Path("/proc/self/fd").glob("*") if link.is_symlink()]  # without the listing's own
    return any(os.path.realpath(link).endswith("rows.bin") for link in links)


def collect_garbage() -> bool:
    """Free what an interrupt left in cycles, such as a frame that refers to its own traceback."""
    return gc.collect() >= 0


def broken_state() -> list[str]:
    """Return descriptions of global state that an interrupt left changed."""
    problems = {
        "a dispatch mode is active": bool(_get_current_dispatch_mode_stack()),
        "the garbage collector is frozen": gc.get_freeze_count() > 0,
        "the garbage collector is disabled": not gc.isenabled(),
        "gradients are disabled": not torch.is_grad_enabled(),
        "numba's cache folder is ours": "workbench" in str(numba_config.CACHE_DIR),  # type: ignore[attr-defined]
        "a thread still reads": any(thread.name == "workbench-io" for thread in threading.enumerate()),
        "a file of rows is open": rows_are_open() and collect_garbage() and rows_are_open(),
    }
    return [problem for problem, present in problems.items() if present]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="+", default=SCENARIOS, choices=SCENARIOS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenarios = Scenarios(Path(folder))
        runs: dict[str, Callable[[], str]] = {name: getattr(scenarios, name) for name in options.scenarios}
        results: dict[str, object] = {name: run() for name, run in runs.items()}
        if options.interrupts:
            results = interrupt(runs, scenarios, options.interrupts, random.Random(options.seed))
        sys.stdout.write(json.dumps(results))


def interrupt(
    runs: dict[str, Callable[[], str]], scenarios: Scenarios, interrupts: int, draw: random.Random
) -> dict[str, object]:
    """Interrupt each scenario in turn; return the number of hits, broken state, and results by scenario."""
    steps, is_complete = atomic_steps(scenarios)
    runs = {**runs, "steps": steps}
    seconds = {name: timed(run) for name, run in runs.items()}
    modes = [module.training for module in scenarios.evaluated.modules()]
    hits, broken = Counter(), []
    results: dict[str, set[str]] = {name: set() for name in runs}
    killer = subprocess.Popen([sys.executable, "-S", "-c", _KILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert killer.stdin is not None and killer.stdout is not None
    for number in range(interrupts):
        name = list(runs)[number % len(runs)]
        try:
            killer.stdin.write(f"{draw.uniform(0, 1.05 * seconds[name])}\n".encode())
            killer.stdin.flush()
            result = runs[name]()
            if name != "steps":
                results[name].add(result)  # an interrupt that Python lost, e.g. in a destructor, must not affect it
            select.select([killer.stdout], [], [])  # the scenario ended before the interrupt
            time.sleep(0.1)
        except KeyboardInterrupt as stop:
            hits[name] += stop.__traceback__ is not None and stop.__traceback__.tb_next is not None
        killer.stdout.readline()
        broken += [f"{name}: {problem}" for problem in broken_state()]
        torch.set_grad_enabled(True)  # so that later scenarios still run
        if [module.training for module in scenarios.evaluated.modules()] != modes:
            broken.append(f"{name}: a module is in another mode")
        if any(cache._lock.locked() for cache in scenarios.caches):
            broken.append(f"{name}: a cache is locked")
        if name == "steps":
            broken += [] if is_complete() else ["steps: a step was applied partially"]
        else:
            results[name].add(runs[name]())
    killer.stdin.close()
    killer.wait()
    return {
        "hits": hits,
        "broken": broken,
        "results": {name: sorted(found) for name, found in results.items() if found},
    }


def timed(run: Callable[[], str]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
