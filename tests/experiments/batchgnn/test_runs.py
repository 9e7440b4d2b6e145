"""Rows of BatchGNN's sweeps on tiny graphs, against the primitives and by hand."""

import subprocess
import sys
import time

import pytest
import torch

import workbench as wb
from experiments.batchgnn import distdgl, rank_epochs
from experiments.batchgnn.rank_fetches import (
    CACHE,
    MACROBATCH,
    ONE_BY_ONE,
    counts_of_ranks,
    fetched_rows,
    rank_orders,
)
from workbench.experiment.figure_loader import load_experiment

TINY = {"name": "synthetic-arxiv", "scale": 0.003, "undirected": "multi"}
EPOCH = {"dataset": TINY, "fanouts": [2, 3], "batch_size": 8, "num_ranks": 3}


def rows(figure, **config):
    module = load_experiment(f"batchgnn/{figure}").module
    return list(module.run(module.Config(**config)))


@pytest.fixture(scope="module")
def data():
    return wb.load_dataset(**TINY)


def remote_ids(data, *, expanded):
    """Per rank and mini-batch, the foreign inputs, or the foreign nodes that the last hop expands, as sets."""
    config = load_experiment("batchgnn/table5").module.Config(**EPOCH)
    owner = wb.partition_graph(data.graph, 3, method="random", seed=0)
    found = []
    for rank, orders in enumerate(rank_orders(data.train_idx, owner, config, 0)):
        sampler = wb.NeighborSampler([2, 3], replace=True)
        batches = [sampler.sample(data.graph, seeds, step=rank * len(orders) + i) for i, seeds in enumerate(orders)]
        ids = [mb.node_ids[: mb.blocks[0].num_dst if expanded else None] for mb in batches]
        found.append([{v for v in one.tolist() if int(owner[v]) != rank} for one in ids])
    return found


def test_a_row_of_table_5_counts_sets_of_foreign_nodes(data):
    found = {row["fetching"]: row["rows"] for row in rows("table5", **EPOCH)}
    inputs, expanded = (remote_ids(data, expanded=way) for way in (False, True))
    assert found[ONE_BY_ONE] == sum(len(one) for rank in inputs for one in rank)
    assert found[MACROBATCH] == sum(len(set().union(*rank)) for rank in inputs)
    assert found[CACHE] == 2 * sum(len(set().union(*rank)) for rank in expanded)


def test_seeds_are_owned_training_nodes_of_equally_many_mini_batches(data):
    config = load_experiment("batchgnn/table5").module.Config(**EPOCH)
    owner = wb.partition_graph(data.graph, 3, method="random", seed=0)
    orders = rank_orders(data.train_idx, owner, config, 0)
    assert len({len(order) for order in orders}) == 1 and len(orders[0]) > 1
    for rank, order in enumerate(orders):
        seeds = torch.cat(order)
        assert len(seeds.unique()) == len(seeds) and set(owner[seeds].tolist()) == {rank}
        assert set(seeds.tolist()) <= set(data.train_idx.tolist())
    with pytest.raises(ValueError, match="a rank owns fewer than 1000 of"):
        rank_orders(data.train_idx, owner, config.model_copy(update={"batch_size": 1000}), 0)


def test_figure_3_ends_where_table_5_does():
    ends = {row["fetching"]: row["rows"] for row in rows("table5", **EPOCH)}
    found = rows("fig3", **EPOCH, sizes=[1, 2, "all"])
    assert [found[0]["rows"], found[-1]["rows"]] == [ends[ONE_BY_ONE], ends[MACROBATCH]]
    assert [row["macrobatch"] for row in found] == [1, 2, found[0]["num_batches"]]
    for row in found:
        assert row["features_bytes"] * 3 == pytest.approx(row["rows"] * 4 * 128)
        assert row["relays"] == 3 * -(-row["num_batches"] // row["macrobatch"])


def test_table_2_scales_counts_to_the_paper_s_batch():
    found = {row["fetching"]: row for row in rows("table2", **EPOCH, rival="P3", hidden_dim=16)}
    ends = {row["fetching"]: row["rows"] for row in rows("table5", **EPOCH)}
    assert {name: row["rows"] for name, row in found.items()} == {n: 125 * count for n, count in ends.items()}
    one = found[ONE_BY_ONE]
    assert one["epoch_seconds"] == pytest.approx(
        sum(one[f"{p}_seconds"] for p in ("topology", "features", "memory", "arithmetic"))
    )
    assert one["features_seconds"] == pytest.approx(one["rows"] * 512 / 3 / (183.6e6 * 512 / 32 / 2.76))
    assert found[CACHE]["memory_seconds"] < one["memory_seconds"] == found[MACROBATCH]["memory_seconds"]


TRAINING = {
    "dataset": TINY, "fanouts": [2, 3], "test_fanouts": [4, 4], "hidden_dim": 8, "batch_size": 32, "test_nodes": 20,
    "learning_rate": 0.01, "steps": 2, "evaluate_every": 1, "dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("cached", [False, True])
def test_training_with_and_without_the_cache_is_that_of_the_primitives(data, cached):
    found = rows("fig4", model="gin", cached=cached, **TRAINING)
    assert [row["step"] for row in found] == [1, 2] and all(0 <= row["accuracy"] <= 1 for row in found)
    module = load_experiment("batchgnn/fig4").module
    config = module.Config(model="gin", cached=cached, **TRAINING)
    model, seeds = config.build(data), next(module.training_seeds(config, data))
    mb = wb.NeighborSampler([2, 3], replace=True).sample(data.graph, seeds, step=0)
    blocks, aggregated = mb.blocks, None
    nodes = mb.node_ids
    if cached:
        nodes, blocks = nodes[: blocks[0].num_dst], blocks[1:]
        whole = wb.Block(data.graph.indptr, data.graph.indices, data.graph.num_nodes, data.graph.num_nodes)
        aggregated = model.layers[0].aggregate(whole, torch.as_tensor(data.x))[nodes]
    loss = torch.nn.functional.cross_entropy(model(blocks, data.x[nodes], aggregated=aggregated), data.y[seeds])
    assert found[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_invalid_trainings_are_refused():
    with pytest.raises(ValueError, match="steps is 3 and evaluate_every 2"):
        rows("fig4", model="gcn", cached=False, **TRAINING | {"steps": 3, "evaluate_every": 2})


def test_a_rank_alone_fetches_nothing_and_its_parts_add_up_to_an_epoch():
    values = {**EPOCH, "num_ranks": 1, "model": "gcn", "hidden_dim": 8, "epochs": 1, "export": ["pyg"]}
    config = load_experiment("batchgnn/table4").module.Config(**values).model_dump(mode="json")
    found = {row["fetching"]: row for row in rank_epochs.on_rank(config)}  # several: the notebook of Table 4
    assert set(found) == {ONE_BY_ONE, MACROBATCH, CACHE}
    for row in found.values():
        assert row["rows"] == row["features_bytes"] == row["topology_bytes"] == row["modelled_features_bytes"] == 0
        parts = sum(row[f"{part}_seconds"] for part in rank_epochs.PARTS)
        assert 0 < parts <= row["epoch_seconds"] and row["range_seconds"] == 0 < row["batch_seconds"]
        assert row["export_pyg_seconds"] > 0
    assert found[CACHE]["cache_seconds"] > 0 and found[ONE_BY_ONE]["cache_seconds"] is None
    assert found[MACROBATCH]["macrobatch"] == found[MACROBATCH]["num_batches"] > found[ONE_BY_ONE]["macrobatch"] == 1


def distdgl_may_run():
    try:
        distdgl.check_rights()
    except PermissionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not distdgl_may_run(), reason="needs the rights to mount")
def test_distdgl_fetches_as_many_rows_as_one_by_one():
    values = {**EPOCH, "num_ranks": 2, "model": "gin", "hidden_dim": 8, "epochs": 2}
    (found,) = rows("table4", **values, system="DistDGL")
    config = load_experiment("batchgnn/table4").module.Config(**values)
    counts = [counts_of_ranks(config, config.dataset.load(), number) for number in range(8)]
    ours = [fetched_rows(ranks, ONE_BY_ONE) / len(ranks[0].sampled.fetched) for ranks in counts]
    assert found["rows"] / found["num_batches"] == pytest.approx(sum(ours) / len(ours), rel=0.15)  # 4 deviations
    more = 1 + 1e-6  # medians are rounded to single precision
    assert 0 < sum(found[f"{part}_seconds"] for part in rank_epochs.PARTS) <= more * found["epoch_seconds"]
    assert found["epoch_seconds_low"] <= more * found["epoch_seconds"] <= more**2 * found["epoch_seconds_high"]


def test_distdgl_without_rights_is_refused(monkeypatch):
    epochs_of = load_experiment("batchgnn/table4").module.epochs_of  # other tests import experiments anew
    monkeypatch.setitem(epochs_of.__globals__, "OWN_MOUNTS", ["no-such-program"])
    with pytest.raises(PermissionError, match=r"there is no unshare; run as root on Linux, or leave the system out"):
        rows("table4", **{**EPOCH, "model": "gin", "hidden_dim": 8, "epochs": 1}, system="DistDGL")


@pytest.mark.parametrize(
    ("other", "seconds", "error", "message"),
    [
        ("raise SystemExit(3)", 60, RuntimeError, "DistDGL failed:\nthe last line"),
        ("import time; time.sleep(60)", 0, TimeoutError, "longer than timeout_seconds; set more, or fewer epochs"),
    ],
)
def test_a_process_of_distdgl_that_fails_or_hangs_ends_the_others(tmp_path, other, seconds, error, message):
    (tmp_path / "machine.log").write_text("the last line")
    scripts = ("import time; time.sleep(60)", other)
    processes = [subprocess.Popen([sys.executable, "-c", script]) for script in scripts]
    with pytest.raises(error, match=message):
        distdgl.finish(processes, tmp_path, time.monotonic() + seconds)
    assert all(process.returncode for process in processes)
