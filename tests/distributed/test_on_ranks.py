"""Ranks that cooperate equal one process."""

import os
from typing import Any

import pandas as pd
import pytest

import workbench as wb
from experiments.performance import cooperation
from tests.distributed import rank_functions
from tests.toy_experiments import CODE, toys as toys
from workbench.experiment.figure_loader import load_experiment

TOLERANCE = 1e-10
SIZES = [1, 2, 3, 4]
SAMPLERS = [(name, dependent) for name in ("neighbor", "labor", "random walk") for dependent in (False, True)]
KINDS = ["gcn", "sage-mean", "gat", "rgcn"]
CASES = [(*s, kind, 1) for s in SAMPLERS for kind in KINDS if (s[0], kind) != ("random walk", "rgcn")]


def run(rank_pool, function, size, **config):
    return rank_pool.run(f"tests.distributed.{function}", config, world_size=size, timeout_seconds=120)


@pytest.mark.parametrize("world_size", [2, 4])
def test_rows_come_from_rank_0_and_scalars_become_numbers(rank_pool, world_size):
    rows = rank_pool.run(rank_functions.total, {"offset": 1, "steps": 2}, world_size=world_size)
    expected = float(sum(range(1, world_size + 1)))
    assert rows == [{"step": s, "total": expected, "world_size": world_size, "rank": 0} for s in (0, 1)]
    assert rank_pool.run(rank_functions.only_rank_0_yields, {}, world_size=world_size) == [{"rank": 0}]
    assert rank_pool.run(rank_functions.nothing, {}, world_size=world_size) == []


def test_a_pool_keeps_its_processes_and_configurations_arrive_as_json(rank_pool):
    config = {"fanouts": (10, 25), "dataset": {"name": "cora", "scale": None}, "rate": 0.1, "open": True}
    first, second = (rank_pool.run(rank_functions.received, config)[0] for _ in range(2))
    assert first == second and first["pid"] == rank_pool.pids[0] != os.getpid()
    assert first["config"] == repr({**config, "fanouts": [10, 25]})


def test_functions_of_a_figure_are_found_where_it_was_loaded(rank_pool, toys):
    (toys / "fig1.py").write_text(f"{CODE}\n\ndef on_ranks(config):\n    return [{{'file': __file__}}]\n")
    load_experiment("toys/fig1")
    assert rank_pool.run("experiments.toys.fig1:on_ranks", {}, world_size=2) == [{"file": str(toys / "fig1.py")}]


@pytest.mark.parametrize("size", SIZES)
def test_the_union_of_sampled_sets_is_the_batch_of_one_process(rank_pool, size):
    rows = run(rank_pool, "cooperative_ranks:sampled_sets", size, samplers=SAMPLERS)
    assert len(rows) == len(SAMPLERS) and all(row["nodes"] and row["edges"] for row in rows)
    assert all((row["fewest_seeds"] == 0) == (size > 2) and (row["halo"] > 0) == (size > 1) for row in rows)


@pytest.mark.parametrize("size", SIZES)
def test_loss_and_gradients_equal_those_of_one_process(rank_pool, size):
    cases = CASES[size % 3 :: 3]  # every third, in which all samplers and models occur
    check_training(rank_pool, size, [*cases, *[("labor", True, kind, 3) for kind in KINDS[:: 1 if size == 3 else 3]]])


def test_layers_that_read_no_row_where_a_rank_has_no_edge(rank_pool):
    """Of three ranks one has no seed: its LSTM runs on nothing, and yet others wait for gradients of their rows."""
    kinds = ["sage-lstm", "sage-pool", "gin", "sage-gcn"]
    check_training(rank_pool, 3, [("neighbor", False, kind, parts) for kind in kinds for parts in (1, 3)])


def test_a_rank_without_seeds_takes_part_in_a_sum_of_losses(rank_pool):
    (row,) = run(rank_pool, "cooperative_ranks:summed", 2)
    assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE and row["fewest_seeds"] == 0
    assert "has a label" in row["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_loss_and_gradients_in_every_case(rank_pool, size):
    check_training(rank_pool, size, [*CASES, *[(*case[:3], 3) for case in CASES]])


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_relational_layers_on_typed_edges_with_reverses(rank_pool, size):
    for row in run(rank_pool, "cooperative_ranks:relational", size, scale=3e-4):
        assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE and row["types"] >= 2


def check_training(rank_pool, size, cases):
    rows = run(rank_pool, "cooperative_ranks:training", size, cases=cases)
    for case, row in zip(cases, rows, strict=True):
        assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE and row["scale"] > 1e-3, case


def test_gat_multiplies_the_rows_of_a_rank_alone_where_that_sends_no_more_bytes(rank_pool):
    """6 input channels, whose gradient nobody needs; 8 hidden channels; 2 heads of 4 or 4 channels: products have 8."""
    rows = run(rank_pool, "exchange_ranks:attention", 3, products=[None, True, False])
    for products, row in zip([None, True, False], rows, strict=True):
        assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE
        first = 8 if products else 6
        assert row["forward"] == first * row["halo_0"] + 8 * row["halo_1"] > 0
        assert row["backward"] == (8 * row["sent_0"] if products else 0) + 8 * row["sent_1"]
        assert row["foreign_0"] == (0 if products else row["halo_0"])
        assert row["foreign_1"] == (row["halo_1"] if products is False else 0)


def test_independent_minibatching_is_the_same_code_without_the_exchange(rank_pool):
    (row,) = run(rank_pool, "cooperative_ranks:independent", 3)
    assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE
    assert row["rows"] == 0 and row["row_bytes"] == 0 and row["foreign"] > 0


@pytest.mark.parametrize("size", [2, 4])
def test_rows_and_their_gradients_equal_those_of_torch(rank_pool, size):
    rows = run(rank_pool, "exchange_ranks:torch_oracle", size)
    assert len(rows) == 6 and all(row["equal"] and row["received"] for row in rows)


def test_destinations_are_multiplied_while_rows_and_gradients_travel(rank_pool):
    (row,) = run(rank_pool, "exchange_ranks:overlap", 2)
    forward, backward = ["start", "own", "wait"] * 2, ["start", "gradient of own", "wait", "gradient of own"]
    assert row["same"] and row["seen"] == ", ".join([*forward, *backward])  # features need no gradient


def test_speeds_of_ranks_are_measured(rank_pool):
    sizes = {"num_bytes": 1 << 16, "repeats": 1}
    (row,) = rank_pool.run("workbench.distributed.measure_machine:on_rank", sizes, world_size=2)
    machine = wb.Machine(**row)
    assert min(machine.gamma, machine.alpha, machine.beta, machine.flops) > 1e3
    with pytest.raises(ValueError, match="num_ranks is 1; it must be a whole number of at least 2"):
        wb.distributed.measure_machine(1)


def test_rows_of_any_dtype_and_shape_are_exchanged(rank_pool):
    rows = run(rank_pool, "exchange_ranks:any_dtype", 3)
    assert len(rows) == 12 and all(row["equal"] for row in rows)


def test_a_rank_has_its_own_rows_and_edges_alone(rank_pool):
    (row,) = run(rank_pool, "owned_rows_ranks:foreign_row", 3)
    node, owner = row["node"], row["owner"]
    assert row["read"].startswith(f"row {node} belongs to rank {owner}, and rank 0 has only its own; sample with")
    assert f"{node}, which rank {owner} owns" in row["draw"]
    assert (
        "pass owned.graph" in row["other_graph"]
        and "owned is the graph of rank 2 of 3, but this is rank 0" in row["other_rank"]
    )
    assert row["rows"] and (row["resident_rows"], row["resident_edges"], row["foreign_edges"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_rows_are_fetched_in_the_order_of_the_ids(rank_pool, size):
    rows = run(rank_pool, "owned_rows_ranks:fetched", size)
    assert len(rows) == 16 and all(row["right"] for row in rows), rows


def test_counted_bytes_are_those_that_collectives_are_handed(rank_pool):
    (row,) = run(rank_pool, "owned_rows_ranks:counters", 2)
    assert all(row.values()), row


def test_caches_of_owned_rows_hit_as_simulated(rank_pool):
    (row,) = run(rank_pool, "owned_rows_ranks:caches", 2)
    assert row["rows"] and row["cooperative"] and row["independent"] and row["foreign"] == 0 and row["hits"] > 0


@pytest.mark.parametrize("size", [1, 2, 4])
def test_outputs_over_the_owners_equal_those_of_one_process(rank_pool, size):
    for row in run(rank_pool, "cooperative_ranks:evaluation", size, kinds=KINDS, chunk_edges=50):
        assert row["error"] <= TOLERANCE and row["nodes"] == 70


def test_ranks_that_differ_are_refused_with_what_differs_and_where(rank_pool):
    (row,) = run(rank_pool, "exchange_ranks:disagreement", 3)
    text = row["text"]
    assert row["same"] and text.startswith("ranks differ in owner ((70,) torch.int32 ")
    assert "config.lr (0.1 on ranks 0, 2; 0.2 on rank 1)" in text and "fanouts" not in text
    assert 'config.extra (nothing on ranks 0, 1; "xxx' in text and "on rank 2); start all ranks with the same" in text


def test_ranks_with_different_data_are_refused(rank_pool):
    (row,) = run(rank_pool, "exchange_ranks:other_data", 3)
    assert row["same"] == "agreed"
    assert row["other"].startswith("ranks differ in x ((70, 6) torch.float64 ") and "on ranks 0, 1; " in row["other"]
    assert row["other"].endswith(" on rank 2); start all ranks with the same configuration, data and code")


def test_ranks_with_different_code_are_refused_and_the_file_is_named(rank_pool, tmp_path):
    (row,) = run(rank_pool, "exchange_ranks:other_code", 3, folder=str(tmp_path))
    assert row["text"].startswith('ranks differ in code.rankcode/helper.py ("')
    assert "on ranks 0, 1; " in row["text"] and "on rank 2); start all" in row["text"] and "run.py" not in row["text"]


def test_ranks_need_equally_many_micro_batches(rank_pool):
    (row,) = run(rank_pool, "exchange_ranks:unequal_parts", 2)
    assert row["text"].startswith("ranks have [1, 2] micro-batches; cut the seeds of every rank into the same number")


def test_sampling_ahead_in_a_group_of_its_own_changes_nothing(rank_pool):
    (row,) = run(rank_pool, "cooperative_ranks:prefetched", 2)
    assert row["parameters"] <= TOLERANCE and row["equal_ranks"]


def check_placed(rank_pool, size, epochs, hosts, *, presampled=300):
    for options in ({}, {"rows_per_device": [40 + 30 * i for i in range(size)]}):
        config = {"hosts": hosts, "epochs": epochs, "options": options, "presampled": presampled}
        for row in run(rank_pool, "placed_rows_ranks:epoch", size, **config):
            assert row.pop("cost") <= 0.02 and all(row.values()), row


def test_an_epoch_through_buffers_is_read_from_where_the_placement_says(rank_pool):
    check_placed(rank_pool, 2, 2, ["memory", "owned", "cached"])


@pytest.mark.slow
def test_an_epoch_through_four_buffers(rank_pool):
    """Buffers of rows that were frequent by chance alone look better than they are: four need more presampling."""
    check_placed(rank_pool, 4, 12, ["memory", "owned", "cached"], presampled=3000)


def test_buffers_of_any_size_and_groups(rank_pool):
    unequal, groups, dtype = run(rank_pool, "placed_rows_ranks:windows_and_edges", 2)
    assert unequal["rows"] and groups["rows"] and dtype["rows"]
    assert unequal["peer"] == [0, 0] and groups["peer"] == [0, 0] and dtype["peer"][1] > 0


def test_ranks_are_the_devices_of_a_placement(rank_pool):
    (row,) = run(rank_pool, "placed_rows_ranks:refusals", 2)
    assert row["rank"] == "rank is 1, but this process is rank 0 of the group; pass rank=0"
    assert row["size"].startswith("the placement is for 3 devices, but the group has 2 ranks; place rows with")


@pytest.mark.slow
def test_the_benchmark_counts_what_one_process_counts(rank_pool):
    dataset: Any = {"name": "synthetic-arxiv", "scale": 0.002}
    config = cooperation.Config(
        dataset=dataset,
        fanouts=(3, 3),
        hidden_dim=4,
        model="sage-mean",
        batch_size=32,
        sampler="NS",
        ownership="random",
        num_ranks=2,
        steps=1,
        repeats=2,
    )
    function = "experiments.performance.cooperation:on_rank"  # by name: an earlier test may have had it imported anew
    (row,) = rank_pool.run(function, config.model_dump(mode="json"), world_size=2)
    data = config.dataset.load()
    (seeds,) = cooperation.global_batches(config, data, 2)
    drawn = {"sampler": wb.NeighborSampler((3, 3)), "num_ranks": 2}
    drawn["owner"] = wb.partition_graph(data.graph, 2, method="random", seed=config.seed)
    ranks = wb.cooperative.batches(data.graph, seeds, **drawn)
    layers = wb.cooperative.cooperative_work(ranks, row_bytes=[4 * data.num_features, 4 * 4]).rows()
    for name, column in {"id_bytes": "id_bytes", "row_bytes": "received_bytes", "edges": "edges"}.items():
        assert row[f"cooperative_{name}"] == sum(layer[column] for layer in layers)
    assert row["cooperative_gradient_bytes"] == 16 * sum(layer["halo"] for layer in layers if layer["hop"] == 1)
    assert row["cooperative_inputs"] == sum(mb.num_inputs for mb in ranks)
    alone = wb.cooperative.independent_batches(data.graph, seeds, **drawn)
    assert row["independent_inputs"] == sum(mb.num_inputs for mb in alone) > row["cooperative_inputs"]
    assert row["wall_ratio_low"] <= row["wall_ratio"] <= row["wall_ratio_high"]
    assert cooperation.draw(pd.DataFrame([{**config.model_dump(), **row}]), pd.DataFrame()).data
