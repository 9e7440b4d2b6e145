"""Rows of the cost model's sweeps on a tiny graph, against the primitives and by hand."""

import pandas as pd
import pytest
import torch

import workbench as wb
from experiments.cooperative import step_costs
from workbench.experiment.figure_loader import load_experiment

TINY = {"name": "synthetic-papers100M", "scale": 0.0002, "undirected": True}
STEP = {"dataset": TINY, "model": "gcn", "sampler": "NS", "fanouts": [3, 2], "batch_size": 8, "hidden_dim": 16}
KEYS = {"model": "gcn", "sampler": "LABOR-0", "approach": "cooperative"}
TABLE = {**STEP, "steps": 2, "warmup": 1, "kappa": 4, "cache_rows": 12_800, "system": "4 A100"}


def row(figure, **config):
    module = load_experiment(f"cooperative/{figure}").module
    (found,) = module.run(module.Config(**config))
    return found


@pytest.fixture(scope="module")
def data():
    return wb.load_dataset(**TINY)


def batches_of(data, approach, num_pes=4):
    module = load_experiment("cooperative/table4").module
    config = module.Config(**TABLE, approach=approach)
    return module.PeBatches(config, data, num_pes)


def test_seeds_are_training_nodes_of_their_owners_and_new_in_every_step(data):
    batches = batches_of(data, "cooperative")
    steps = [batches.seeds(step) for step in range(batches.steps_per_epoch)]
    assert all(batches.owner[seeds].tolist() == sorted([*range(4)] * 8) for seeds in steps)
    seen = torch.cat(steps)
    assert len(seen.unique()) == len(seen) and set(seen.tolist()) <= set(data.train_idx.tolist())
    assert not torch.equal(batches.seeds(batches.steps_per_epoch), steps[0])


def test_a_row_of_table_4_is_its_counts_over_the_bandwidths(data):
    found = row("table4", **TABLE, approach="cooperative")
    sampler = wb.NeighborSampler([3, 2], seed=0)
    batches = batches_of(data, "cooperative")
    whole = [sampler.sample(data.graph, batches.seeds(step), step=step) for step in range(3)]
    times = 1024 / 8
    inputs = sum(mb.num_inputs for mb in whole[1:]) / 2 / 4 * times
    assert found["owned_0"] == 1024 and found["owned_2"] == inputs
    assert found["edges_1"] == sum(mb.blocks[-1].num_edges for mb in whole[1:]) / 2 / 4 * times
    exchanged = 512 * found["halo_2"] / 600e9
    assert found["copy_seconds"] == pytest.approx(512 * inputs / 64e9 + exchanged)
    reads = zip(*([mb.node_ids for mb in pes] for pes in batches.sample(sampler, range(3))), strict=True)
    caches = [
        wb.features.simulate_cache(wb.AccessTrace.of(ids), 100, num_rows=data.graph.num_nodes, warmup=1)
        for ids in reads
    ]
    misses = sum(cache.num_misses for cache in caches) / sum(cache.num_accesses for cache in caches)
    assert found["cache_miss_rate"] == pytest.approx(misses)
    assert found["cache_seconds"] == pytest.approx(misses * 512 * inputs / 64e9 + exchanged)
    ids = 2 * (found["owned_0"] + found["owned_1"]) + found["edges_1"] + found["edges_2"]
    asked = found["halo_1"] + found["halo_2"]
    assert found["sampling_seconds"] == pytest.approx(8 * ids / 64e9 + 8 * asked / 600e9)
    hidden = 2 * 4 * 16 * found["halo_1"] / 600e9
    assert found["forward_backward_seconds"] == pytest.approx(found["work_bytes"] / 2e12 + hidden)
    assert found["arithmetic_seconds"] == pytest.approx(found["work_flops"] / 19.5e12)
    assert found["total_seconds"] == pytest.approx(
        found["sampling_seconds"] + found["cache_seconds"] + found["forward_backward_seconds"]
    )
    assert found["kappa_seconds"] is None


def test_this_machine_is_priced_by_its_measured_speeds_and_shown_beside_the_published(monkeypatch):
    speeds = wb.Machine(gamma=4e9, alpha=5e8, beta=2e9, flops=7e10)
    step_costs._measured.cache_clear()
    monkeypatch.setattr(wb.distributed, "measure_machine", lambda num_ranks: speeds)
    rows = [
        row("table4", **TABLE | {"system": system}, approach="cooperative") for system in ("this machine", "4 A100")
    ]
    step_costs._measured.cache_clear()
    here = rows[0]
    assert here["num_pes"] == 2 and here["copy_exchange_seconds"] == pytest.approx(512 * here["halo_2"] / 5e8)
    assert here["arithmetic_seconds"] == pytest.approx(here["work_flops"] / 7e10)
    table = pd.DataFrame([here, rows[1]]).assign(system=["this machine", "4 A100"], dataset="papers100M", **KEYS)
    for figure in ("table1", "table4"):
        module = load_experiment(f"cooperative/{figure}").module
        assert module.shown(table).system.tolist() == ["4 A100"]
        assert module.shown(table, here=True).system.tolist() == ["this machine"]
    compared = load_experiment("cooperative/table4").compare(table)
    assert compared.system.tolist()[-1] == "this machine (γ 4, α 0.5, β 2 GB/s)"


def test_dependent_batches_of_labor_are_the_last_copy_and_independent_pes_exchange_nothing():
    found = row("table4", **TABLE | {"sampler": "LABOR-0"}, approach="independent")
    assert found["halo_2"] == found["cross_ratio"] == found["copy_exchange_seconds"] == 0
    assert found["needed_2"] == found["owned_2"] and found["kappa_miss_rate"] < found["cache_miss_rate"]
    assert found["total_seconds"] == pytest.approx(
        found["sampling_seconds"] + found["kappa_seconds"] + found["forward_backward_seconds"]
    )


def test_relations_are_counted_per_destination():
    relations = load_experiment("cooperative/table4").module.relations_per_row
    graph = wb.Graph.from_edges(
        torch.tensor([0, 1, 2, 3]), torch.tensor([3, 3, 3, 2]), num_nodes=4, edge_type=torch.tensor([0, 0, 1, 1])
    )
    batch = wb.FullNeighborSampler(1).sample(graph, torch.tensor([3, 2, 0]))
    assert relations([batch]) == 3 / 2  # of the destinations with in-edges, 3 has two types and 2 has one


def test_one_pe_of_section_4_3_is_the_baseline_and_four_exchange():
    options = {**STEP, "steps": 2, "approach": "cooperative"}
    one, four = (row("scaling", **options, num_pes=num_pes) for num_pes in (1, 4))
    for name in ("forward_backward_seconds", "bandwidth_seconds", "exchange_seconds"):
        assert one[name] == one[f"alone_{name}"] == one[f"slowest_{name}"]
    assert one["edges_2"] == one["alone_edges_3"] and one["imbalance"] == 1 and one["halo_2"] == 0
    assert four["edges_2"] <= four["alone_edges_3"] and four["exchange_seconds"] > 0 == four["alone_exchange_seconds"]
    assert four["imbalance"] >= 1


def test_too_few_training_nodes_are_refused(data):
    with pytest.raises(ValueError, match=r"a PE owns \d+ training nodes, 0 batches of 8 seeds; below 4"):
        batches_of(data, "cooperative", num_pes=60)
