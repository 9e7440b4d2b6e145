"""Ranks that train in macrobatches and with precomputed aggregates equal one process."""

import pandas as pd
import pytest

import workbench as wb
from tests.distributed.cooperative_setting import GRAPH, X, owner_of
from tests.macrobatch.macrobatch_ranks import EPOCHS

TOLERANCE = 1e-10
SIZES = [1, 2, 3, 4]


def run(rank_pool, function, size, **config):
    return rank_pool.run(f"tests.macrobatch.{function}", config, world_size=size, timeout_seconds=120)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_macrobatches_equal_mini_batches_one_by_one(rank_pool, size):
    cases = [(name, dependent) for name in ("neighbor", "replace", "labor") for dependent in (False, True)]
    windows = [(1, 1), (3, 3), (4, 2), (9, 9), (5, 3), (5, 2)]
    orders = [(*case, *window) for case, window in zip(cases, windows, strict=True)]
    orders = {1: orders[::2], 2: orders, 4: orders[1::2]}[size]
    for order, row in zip(orders, run(rank_pool, "macrobatch_ranks:equal", size, cases=orders), strict=True):
        assert all(all(row[key]) for key in ("steps", "losses", "parameters", "seeds")), order
        (length,), window, group = set(row["length"]), *order[2:]
        sizes = [min(window, length - start) for start in range(0, length, window)]
        expected = sum(2 + -(-batches // group) for batches in sizes) if size > 1 else 0
        assert row["relays"] == [EPOCHS * expected] * size, order
        assert (max(row["empty"]) == EPOCHS * length) == (size > 2) and min(row["empty"]) == 0 and row["loss"] > 0


def test_macrobatches_prepared_ahead_are_the_same(rank_pool):
    (row,) = run(rank_pool, "macrobatch_ranks:equal", 2, cases=[("labor", False, 3, 2)], ahead=True)
    assert all(all(row[key]) for key in ("steps", "losses", "parameters", "seeds"))


@pytest.mark.parametrize("size", [2, 4])
def test_macrobatch_bytes_are_those_of_the_equations(rank_pool, size):
    rows = run(rank_pool, "macrobatch_ranks:counters", size, windows=[(1, 1), (3, 3), (9, 2)])
    for row in rows:
        assert all(value for value in row.values()), row
    one, several, _ = rows
    assert one["fetched"] > several["fetched"] and one["relay_bytes"] > several["relay_bytes"]


def test_ranks_load_their_parts_from_disk_and_hold_nothing_else(rank_pool, tmp_path):
    owner = owner_of(3)
    wb.partition.split_graph(GRAPH, owner, tmp_path / "graph")
    wb.features.split_rows(X, owner, tmp_path / "rows")
    (row,) = run(rank_pool, "macrobatch_ranks:from_disk", 3, folder=str(tmp_path))
    assert (row["resident_rows"], row["resident_edges"], row["foreign_edges"]) == (0, 0, 0) and row["batches"] > 1
    assert "and rank 0 has only its own" in row["refused"][0] and "rank 0 has the rows of its own" in row["refused"][1]
    assert "contains 3 parts, but there are 1 ranks; start as many ranks as parts" in row["wrong_parts"]


def test_more_ranks_than_parts_are_told_so_on_every_rank(rank_pool, tmp_path):
    wb.partition.split_graph(GRAPH, owner_of(2), tmp_path / "graph")
    (row,) = run(rank_pool, "macrobatch_ranks:refused_from_disk", 3, folder=str(tmp_path))
    assert ["contains 2 parts, but there are 3 ranks; start as many" in text for text in row["texts"]] == [True] * 3


def test_ranks_whose_part_owns_no_node_take_part(rank_pool, tmp_path):
    owner = owner_of(2)
    wb.partition.split_graph(GRAPH, owner, tmp_path / "graph", num_parts=3)
    wb.features.split_rows(X, owner, tmp_path / "rows", num_parts=3)
    (row,) = run(rank_pool, "macrobatch_ranks:idle_ranks_from_disk", 3, folder=str(tmp_path))
    assert row["ranks"] == 3 and row["batches"] > 1


@pytest.mark.parametrize("size", SIZES)
def test_aggregates_are_built_by_their_owners(rank_pool, size, tmp_path):
    kinds = ["sage-mean", "gin"] if size < 4 else ["sage-mean", "sage-gcn", "gin", "gcn-both"]
    config = {"kinds": kinds, "piece": 25, "folder": str(tmp_path)}
    rows = run(rank_pool, "aggregate_ranks:built", size, **config)
    assert len(rows) == len(kinds)
    for row in rows:
        assert row["error"] <= 1e-12 and not row["refused"] and 0 < row["largest"] <= 25
        assert sum(row["edges"]) == 440 and (len(set(row["pieces"])) > 1) == (size > 1), "ranks have unequal pieces"
        assert (row["pieces"][-1] == 0) == (size > 2)
    assert sorted(path.name for path in (tmp_path / "gin").iterdir()) == [f"rank-{rank}" for rank in range(size)]


def test_a_whole_graph_is_not_aggregated_from_the_rows_of_a_rank(rank_pool):
    (row,) = run(rank_pool, "aggregate_ranks:whole_graph", 2)
    assert [f"and rank {rank} has only its own" in text for rank, text in enumerate(row["texts"])] == [True, True]


@pytest.mark.parametrize("size", [2, 4])
def test_steps_on_aggregates_equal_those_of_one_process(rank_pool, size):
    kinds = ["sage-mean", "gcn"] if size < 4 else ["sage-gcn", "gin"]
    rows = run(rank_pool, "aggregate_ranks:trained", size, kinds=kinds)
    assert len(rows) == 2 * len(kinds)
    for row in rows:
        assert row["loss"] <= TOLERANCE and row["gradients"] <= TOLERANCE and row["scale"] > 1e-3, row


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_get_one_plan_whose_bytes_are_those_counted(rank_pool, size):
    *rows, refused = run(rank_pool, "aggregate_ranks:planned", size, capacities=[5000, 100_000])
    for row in rows:
        assert row["same"] and row["rows"] and row["moved"] == row["predicted"] > 0
        assert len(set(row["batches"])) > 1
    assert rows[0]["chosen"] != rows[1]["chosen"]
    assert "ranks passed row_bytes [8, 9" in refused["text"]


@pytest.mark.parametrize("size", [1, 2])
def test_a_program_of_all_pieces_trains_as_its_plain_form(rank_pool, size):
    """The program of the design: each piece can be replaced by its plain form."""
    pieces = ["disk", "cache", "placement", "macrobatch", "micro-batches"]
    plain, *others = [
        pd.DataFrame(run(rank_pool, "combined_ranks:train", size, plain=without))
        for without in (pieces, [], *([piece] for piece in pieces))
    ]
    assert len(plain.loss.dropna()) == 6 and plain.loss.iloc[0] > plain.loss.dropna().iloc[-1]
    for found in others:
        assert abs(found.loss - plain.loss).max() < TOLERANCE
    read = others[0].set_index("link").rows
    assert read["disk"] > 0 and read["host"] > 0 and read["device"] > 0 and (read["peer"] > 0) == (size > 1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_planned_macrobatches_move_the_predicted_bytes_and_train_the_same(rank_pool, size):
    for row in run(rank_pool, "aggregate_ranks:macrobatches", size):
        assert row["loss"] <= TOLERANCE and row["steps"] > 3, row
        assert row["moved"] == row["predicted"] and (row["moved"] > 0) == (size > 1)
        assert row["chosen"][0] > 1
