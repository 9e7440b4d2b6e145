"""The sampling table: claims that can be lost, and rows about the batches that they say."""

import pandas as pd
import pytest

import workbench as wb
from experiments.mariusgnn import sampling
from experiments.mariusgnn.sampling import DENSE, DGL, NS
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

EDGES = {DENSE: [10, 90, 500, 1500, 2000], NS: [11, 120, 800, 3000, 7000], DGL: [11, 121, 801, 3001, 7001]}
NEW = [90, 300, 800, 700, 100]


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = []
    for name, edges in EDGES.items():
        for layers, count in enumerate(edges, start=1):
            seconds = count / 1000 * (10 if name == DGL else 1)
            times = {"sample_seconds": seconds, "fastest_seconds": seconds}
            sizes = {"num_edges": count, "num_inputs": count * 0.9, "new_nodes": NEW[layers - 1], "reached_share": 0.5}
            rows.append({"dataset": "a", "sampler": name, "num_layers": layers, **sizes, **times})
    return pd.DataFrame(rows)


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("mariusgnn/sampling", rows) if not finding.held}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    assert lost(table()) == set()
    assert lost(table().query("num_layers < 5 and sampler != @DGL")) == set()


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("sampler == @NS and num_layers == 2", "num_edges", 89, {"fewest-edges", "gain-grows"}),
        ("sampler == @DGL and num_layers == 3", "num_inputs", 100, {"fewest-nodes"}),
        ("sampler == @NS and num_layers == 5", "num_edges", 3900, {"gain-grows"}),
        ("sampler == @NS and num_layers == 4", "fastest_seconds", 1.4, {"fastest"}),
        ("sampler == @DGL and num_layers == 5", "fastest_seconds", 10.0, {"sixfold"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(rows: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table().astype({"num_edges": float})
    spoiled.loc[spoiled.query(rows).index, column] = value
    assert lost(spoiled) == names


def test_saturation_is_where_a_hop_reaches_fewer_new_nodes() -> None:
    (row,) = sampling.saturation(table()).to_dict("records")
    assert row == {"dataset": "a", "saturates_at": 4, "reached_share": 0.5}
    (row,) = sampling.saturation(table().query("num_layers < 4")).to_dict("records")
    assert row["saturates_at"] is None


def test_the_figure_and_the_comparison_have_all_rows() -> None:
    experiment = load_experiment("mariusgnn/sampling")
    assert sum(len(trace.x) for trace in experiment.draw(table()).data) == 3 * len(table())
    compared = experiment.compare(table())
    assert len(compared) == len(table()) + 15
    assert set(compared.dataset) == {"a", "papers100M (paper)"}


def test_rows_are_those_of_the_samplers() -> None:
    dataset = {"name": "synthetic-arxiv", "scale": 0.003, "undirected": False, "self_loops": False}
    config = sampling.Config(dataset=dataset, batch_size=10**9, fanout=2, num_layers=2, rounds=1)  # pyright: ignore
    found = {row["sampler"]: row for row in sampling.run(config)}
    data = wb.load_dataset(**dataset)
    seeds = data.train_idx[wb_order(len(data.train_idx))]
    batch = wb.DenseSampler([2, 2], out_fanouts=[2, 2]).sample(data.graph, seeds, step=0)
    assert (found[DENSE]["num_inputs"], found[DENSE]["num_edges"]) == (batch.num_inputs, batch.blocks[0].num_edges)
    assert found[DENSE]["new_nodes"] == batch.num_inputs - batch.blocks[0].num_dst
    assert found[NS]["num_edges"] > found[DENSE]["num_edges"]


def wb_order(count: int):
    from workbench.core.randomness import Purpose, permutation, stream

    return permutation(stream(0, Purpose.SHUFFLE, 0), count)
