"""Regression test: samples and partitions of fixed seeds stay bit-equal, and losses equal up to rounding.

`python -m tests.test_unchanged_results` prints the current digests. They may change only if a release changes results
intentionally, and then the changelog says so.
"""

import hashlib
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb

RECORDED = Path(__file__).with_name("unchanged_results.json")
FANOUTS = [(5, 10), (-1, 3), (2, 3, 4)]
METHODS = ["range", "random", "metis", "reg", "reg_unweighted", "reg_normalized", "star", "star_refined"]
MODELS = ["sage-mean", "sage-pool", "sage-lstm", "gcn", "gin", "gat"]
LOSS_TOLERANCE = 1e-9  # float64; CPUs sum in different orders


def dataset() -> wb.Dataset:
    return wb.load_dataset("synthetic-products", scale=0.002, seed=3)


def digest(*tensors: torch.Tensor | None) -> str:
    """Return the sha256 over dtypes, shapes and bytes."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(b"none" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(b"" if tensor is None else tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


def batch_digest(batch: wb.MiniBatch) -> str:
    structure = [t for b in batch.blocks for t in (b.indptr, b.indices, b.edge_ids, b.edge_weight)]
    return digest(batch.node_ids, batch.parent, *structure)


def samples() -> dict[str, str]:
    """Return digests of batches by sampler, including weighted sampling and sampling with replacement."""
    data = dataset()
    src, dst = torch.randint(500, (2, 6000), generator=torch.Generator().manual_seed(0))
    weight = torch.rand(6000, generator=torch.Generator().manual_seed(1))
    weighted = wb.Graph.from_edges(src, dst, num_nodes=500, edge_weight=weight)
    typed = wb.Graph(weighted.indptr, weighted.indices, weighted.edge_ids, weight, edge_type=weighted.indices % 3)
    found = {}
    for replace in (False, True):
        for name, fanout in (("weighted draws", 5), ("by type", {0: 3, 1: -1, 2: 1})):
            sampler = wb.NeighborSampler([fanout, 4], weighted=fanout == 5, replace=replace, seed=7, edge_ids=True)
            found[f"{name}, {replace=}"] = batch_digest(sampler.sample(typed, torch.arange(50), step=2))
    for fanouts in FANOUTS:
        for replace in (False, True):
            if replace and -1 in fanouts:
                continue
            sampler = wb.NeighborSampler(fanouts, replace=replace, seed=7, edge_ids=True)
            name = f"{fanouts} {'with' if replace else 'without'} replacement"
            found[name] = batch_digest(sampler.sample(data.graph, data.train_idx, step=5))
            found[f"{name}, weighted graph"] = batch_digest(sampler.sample(weighted, torch.arange(50), step=2))
    epoch = wb.batches(data.graph, data.train_idx, sampler=wb.NeighborSampler([3, 3]), batch_size=64, epoch=2, seed=1)
    found["an epoch"] = digest(*(batch.node_ids for _, batch in epoch))
    return found


def partitions() -> dict[str, str]:
    """Return digests of batch partitions by method, of graph partitions, and of the micro-batches of a split."""
    data = dataset()
    batch = wb.NeighborSampler([5, 10], seed=1).sample(data.graph, data.train_idx)
    found = {method: digest(wb.partition_batch(batch, 6, method=method, seed=2)) for method in METHODS}
    for method in ("range", "random", "metis"):
        found[f"graph, {method}"] = digest(wb.partition_graph(data.graph, 5, method=method, seed=2))
    micro = batch.split(wb.partition_batch(batch, 6, method="random", seed=2))
    found["split"] = hashlib.sha256("".join(map(batch_digest, micro)).encode()).hexdigest()
    return found


def losses() -> dict[str, list[float]]:
    """Return the losses of three steps of four micro-batches, in float64, by model."""
    data, found = dataset(), {}
    sampler = wb.NeighborSampler([4, 6], seed=1)
    for kind in MODELS:
        model = wb.build_model(
            kind, in_dim=data.num_features, hidden_dim=8, out_dim=data.num_classes, num_layers=2, dropout=0.3, seed=4
        ).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found[kind] = []
        for step in range(3):
            batch = sampler.sample(data.graph, data.train_idx[:200], step=step)
            micro = batch.split(wb.partition_batch(batch, 4, method="random"))
            loss = wb.train_step(model, micro, data.x.double(), data.y, cross_entropy, optimizer)
            found[kind].append(float(loss))
    return found


@pytest.fixture(scope="module")
def recorded() -> dict:
    return json.loads(RECORDED.read_text())


def test_samples_are_unchanged(recorded: dict):
    assert samples() == recorded["samples"]


def test_partitions_are_unchanged(recorded: dict):
    pytest.importorskip("pymetis")
    assert partitions() == recorded["partitions"]


def test_losses_are_unchanged(recorded: dict):
    found = losses()
    assert found.keys() == recorded["losses"].keys()
    for kind, values in recorded["losses"].items():
        assert found[kind] == pytest.approx(values, rel=LOSS_TOLERANCE), kind


if __name__ == "__main__":
    json.dump({"samples": samples(), "partitions": partitions(), "losses": losses()}, sys.stdout, indent=1)
