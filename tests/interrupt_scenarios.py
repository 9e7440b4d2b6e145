"""Work to interrupt: sampling, training, stores, data sets, on a graph, features and models that live long."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import workbench as wb
from workbench.datasets.cache import cached
from workbench.nn.gnn import GNN
from workbench.training.evaluate import full_neighbour_logits


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
