"""Rows of Betty's sweeps, on a graph so small that they can be checked against the primitives."""

import pytest

import workbench as wb
from workbench.experiment.figure_loader import load_experiment

TINY = {"name": "synthetic-products", "scale": 0.001}


def row(figure: str, **config):
    module = load_experiment(f"betty/{figure}").module
    given = {"dataset": TINY, "model": "sage-mean", "fanouts": [3, 3], "hidden_dim": 8, "learning_rate": 0.01}
    (found,) = module.run(module.Config(**given, timed_passes=1, **config))
    return found


@pytest.fixture(scope="module")
def batch():
    data = wb.load_dataset(**TINY)
    return wb.NeighborSampler([3, 3], seed=0).sample(data.graph, data.train_idx)


@pytest.mark.parametrize("method", ["range", "random", "metis", "reg", "reg_unweighted"])
def test_redundancy_is_that_of_the_partition(batch, method):
    found = row("fig11", method=method, num_parts=4)
    expected = wb.redundancy(batch.split(wb.partition_batch(batch, 4, method=method, seed=0)), batch)
    assert (found["total_inputs"], found["full_inputs"]) == (expected.total_inputs, expected.full_inputs)
    assert found["inputs_ratio"] == expected.ratio and found["largest_inputs"] == expected.largest


def test_cluster_follows_a_partition_of_the_graph():
    assert row("fig11", method="cluster", num_parts=4)["inputs_ratio"] > 1


def test_loss_is_the_same_however_the_batch_is_cut():
    losses = [row("fig11", method="reg", num_parts=k)["loss"] for k in (1, 4)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_micro_and_mini_batches_cover_the_training_nodes(batch):
    micro, mini = (row("table6", method="reg", num_parts=4, approach=a) for a in ("micro", "mini"))
    whole = row("table6", method="reg", num_parts=1, approach="mini")
    assert whole["total_inputs"] == batch.num_inputs
    assert batch.num_inputs <= micro["total_inputs"] < mini["total_inputs"]
    assert micro["partition_seconds"] >= 0 and "partition_seconds" not in mini
