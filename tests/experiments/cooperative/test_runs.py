"""Rows of the sweeps on graphs so small that they can be checked against the primitives and by brute force."""

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.cooperative import accuracy_runs
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment.figure_loader import load_experiment

TINY = {"name": "synthetic-arxiv", "scale": 0.003, "undirected": True, "self_loops": False}


@pytest.fixture(scope="module")
def graph():
    return wb.load_dataset(**TINY).graph


def rows(figure, **config):
    module = load_experiment(f"cooperative/{figure}").module
    return list(module.run(module.Config(dataset=TINY, **config)))


WORK = {"fanouts": [2, 3], "batch_sizes": [4, 64, 10**9], "permutations": 2, "singles": 3, "compared_size": 64}


def test_node_batches_are_those_of_the_sampler(graph):
    found = rows("fig3", task="node", sampler="NS", theorem=True, **WORK)
    assert [(r["batch_size"], r["permutation"]) for r in found] == [(4, 0), (64, 0), (4, 1), (64, 1)]
    data = wb.load_dataset(**TINY)
    sampler = wb.NeighborSampler([2, 3], seed=0)
    (work, *_) = wb.cooperative.measure_work(graph, data.train_idx, sampler=sampler, batch_sizes=[4], repetitions=1)
    assert (found[0]["num_seeds"], found[0]["num_inputs"]) == (4, work.num_inputs)
    ones = data.train_idx[permutation(stream(0, Purpose.SPLIT), len(data.train_idx))[:6]].split(1)
    alone = [sampler.sample(graph, one, step=step).num_inputs for step, one in enumerate(ones)]
    assert [r["alone_inputs"] for r in found[::2]] == [sum(alone[p::2]) / 3 for p in (0, 1)]
    (expected,) = wb.cooperative.work_curve(graph, data.train_idx, sampler=sampler, batch_sizes=[64], step=1).tolist()
    assert found[3]["expected_inputs"] == expected


def test_edge_batches_have_an_edge_and_a_pair_without_edge_per_item(graph):
    module = load_experiment("cooperative/fig3").module
    pairs = module.undirected_pairs(graph)
    assert len(pairs) * 2 == graph.num_edges and bool((pairs[:, 0] < pairs[:, 1]).all())
    seeds = module.endpoints(graph, pairs[:20], 3)
    assert len(seeds.unique()) == len(seeds)
    extra = set(seeds.tolist()) - set(pairs[:20].flatten().tolist())
    assert 0 < len(extra) <= 20
    found = rows("fig3", task="edge", sampler="NS", **WORK)
    assert all(r["batch_size"] < r["num_seeds"] <= 3 * r["batch_size"] for r in found)
    assert all(r["expected_inputs"] is None for r in found)


@pytest.mark.parametrize("sampler", ["RW", "NS", "LABOR-0", "LABOR-*"])
def test_every_sampler_runs(sampler):
    assert all(r["num_inputs"] >= r["num_seeds"] for r in rows("fig3", task="node", sampler=sampler, **WORK))


DENSITY = {"shares": [0.125, 1.0], "num_clusters": 16, "permutations": 3}


@pytest.mark.parametrize("method", ["uniform", "cluster", "node", "walk"])
def test_the_whole_graph_has_all_edges(graph, method):
    found = rows("density", method=method, **DENSITY)
    for row in found[1::2]:
        assert (row["batch_size"], row["num_edges"]) == (graph.num_nodes, graph.num_edges)
        assert row["expected_edges"] in (None, pytest.approx(graph.num_edges))
    assert all(row["batch_size"] < graph.num_nodes for row in found[::2])


def test_a_walk_of_two_steps_visits_at_most_three_nodes(graph):
    module = load_experiment("cooperative/density").module
    config = module.Config(dataset=TINY, method="walk", shares=(0.5, 1.0), num_clusters=4, permutations=2)
    sizes = [module.walk_nodes(graph, 1 / graph.num_nodes, number, config)[0][0] for number in range(100)]
    assert max(sizes) == 3 and min(sizes) >= 1
    path = wb.Graph.from_edges(torch.arange(9), torch.arange(1, 10), num_nodes=10)  # node 0 has no neighbour
    visited = [module.walk_nodes(path, 0.1, number, config)[0] for number in range(40)]
    assert set(visited) == {(1, 0), (2, 1), (3, 2)}


def test_batches_of_an_epoch_have_every_cluster_once(graph):
    module = load_experiment("cooperative/density").module
    of = module.clusters(graph, 16, 0)
    alone = [(of == part).nonzero()[:, 0] for part in range(16)]
    edges = [wb.sampling.induced_edges(graph, nodes) for nodes in alone]
    for row in rows("density", method="cluster", **DENSITY | {"shares": [1 / 16, 1.0]})[::2]:
        assert (row["num_batches"], row["num_edges"] * 16) == (16, pytest.approx(sum(edges)))
        per_node = [count / len(nodes) for count, nodes in zip(edges, alone, strict=True)]
        assert row["density"] == pytest.approx(sum(per_node) / 16)


def test_expected_edges_of_clusters_are_the_mean_over_all_pairs_of_clusters(graph):
    module = load_experiment("cooperative/density").module
    config = module.Config(dataset=TINY, method="cluster", shares=(0.5, 1.0), num_clusters=4, permutations=2)
    of = module.clusters(graph, 4, 0)
    pairs = [torch.isin(of, torch.tensor([a, b])).nonzero()[:, 0] for a in range(4) for b in range(a)]
    mean = sum(wb.sampling.induced_edges(graph, nodes) for nodes in pairs) / len(pairs)
    assert module.expected_edges(graph, 0.5, config) == pytest.approx(mean, rel=1e-12)


def test_miss_rates_are_those_of_the_trace_after_the_warm_up(graph):
    given = {"fanouts": [2, 3], "batch_size": 16, "kappas": [1, 4], "groups": 2, "capacity_share": 0.2, "runs": 2}
    found = rows("fig5a", sampler="LABOR-0", policies=["lru", "static"], **given)
    assert [(r["run"], r["kappa"], r["policy"]) for r in found[2:4]] == [(0, 4, "lru"), (0, 4, "static")]
    sampler = wb.LaborSampler([2, 3], seed=1, dependence=wb.Smoothed(4))
    train = wb.load_dataset(**TINY).train_idx
    batches = wb.batches(graph, train, sampler=sampler, batch_size=16, drop_last=True, seed=1)
    reads = [mb.node_ids for _ in range(1 + 12 // len(batches)) for _, mb in batches][:12]
    capacity = -(-graph.num_nodes // 5)
    expected = wb.features.simulate_cache(wb.AccessTrace.of(reads), capacity, num_rows=graph.num_nodes, warmup=4)
    assert (found[6]["miss_rate"], found[6]["capacity_rows"]) == (expected.miss_rate, capacity)
    assert found[6]["num_inputs"] == sum(map(len, reads[4:])) / 8


def test_a_row_of_table7_counts_the_batches_of_the_ranks(graph):
    given = {"sampler": "LABOR-0", "fanouts": [2, 2, 3], "batch_size": 8, "num_ranks": 3, "runs": 2}
    found = rows("table7", cases=[["random", "independent"], ["metis", "cooperative"]], **given)
    assert [(r["ownership"], r["minibatching"], r["run"]) for r in found[1:3]] == [
        ("metis", "cooperative", 0),
        ("random", "independent", 1),
    ]
    train = wb.load_dataset(**TINY).train_idx
    seeds = train[permutation(stream(0, Purpose.SHUFFLE, 1), len(train))[:24]]
    whole = wb.LaborSampler([2, 2, 3]).sample(graph, seeds, step=1)
    assert found[3]["owned_3"] * 3 == pytest.approx(whole.num_inputs)
    assert [found[3][f"edges_{hop}"] * 3 for hop in (3, 2, 1)] == pytest.approx([b.num_edges for b in whole.blocks])
    owner = wb.partition_graph(graph, 3, method="random", seed=1)
    alone = [wb.LaborSampler([2, 2, 3]).sample(graph, seeds[owner[seeds] == p], step=1).num_inputs for p in range(3)]
    assert found[2]["owned_3"] * 3 == pytest.approx(sum(alone))


def test_every_rank_of_fig5b_reads_its_own_rows(graph):
    given = {"fanouts": [2, 3], "batch_size": 8, "kappas": [1, 4], "groups": 1, "capacity_share": 0.1, "runs": 2}
    found = rows("fig5b", sampler="LABOR-0", num_ranks=3, **given)
    assert [r["minibatching"] for r in found[:4]] == ["independent", "cooperative", "one PE, one cache", "independent"]
    for _, cooperative, whole in zip(*[iter(found)] * 3, strict=True):
        assert cooperative["num_inputs"] == whole["num_inputs"]
        assert whole["capacity_rows"] == 3 * cooperative["capacity_rows"]
    assert found[0]["num_inputs"] > found[1]["num_inputs"]
    assert found[0]["missed_rows"] == pytest.approx(found[0]["num_inputs"] * found[0]["miss_rate"])


TRAINING = {"model": "gcn", "fanouts": [2, 3], "hidden_dim": 8, "learning_rate": 0.01, "seed": 1}


def first_steps(samplers, batch_size):
    """Two steps of training by the primitives: rows of the mean loss, the model, and the data set."""
    data = wb.load_dataset(**TINY)
    model = wb.build_model(
        "gcn", in_dim=data.num_features, hidden_dim=8, out_dim=data.num_classes, num_layers=2, seed=1
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = wb.batches(data.graph, data.train_idx, sampler=samplers[0], batch_size=batch_size, drop_last=True, seed=1)
    losses = []
    for step, batch in [*batches][:2]:
        shares = [batch.seeds[i * batch_size // len(samplers) :][: batch_size // len(samplers)] for i in (0, 1)]
        parts = [sampler.sample(data.graph, share, step=step) for sampler, share in zip(samplers, shares, strict=False)]
        outputs = [model(part.blocks, data.x[part.node_ids]) for part in parts]
        losses_of_parts = [cross_entropy(out, data.y[part.seeds]) for out, part in zip(outputs, parts, strict=True)]
        loss = torch.stack(losses_of_parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / 2, model.eval(), data


def full_accuracy(model, data):
    whole = wb.FullNeighborSampler(2).sample(data.graph, data.val_idx)
    return wb.accuracy(model(whole.blocks, data.x[whole.node_ids]), data.y[data.val_idx])


def test_dependent_training_is_that_of_the_primitives():
    config = {**TRAINING, "sampler": "LABOR-0", "kappa": 2, "batch_size": 32, "steps": 4, "evaluate_every": 2}
    found = rows("table3", **config)
    assert [row["step"] for row in found] == [2, 4]
    sampler = wb.LaborSampler([2, 3], seed=1, dependence=wb.Smoothed(2))
    loss, model, data = first_steps([sampler], 32)
    assert found[0]["loss"] == pytest.approx(loss, rel=1e-5)
    assert found[0]["val_f1"] == full_accuracy(model, data)
    next_batch = sampler.sample(data.graph, data.val_idx, step=2)
    logits = model(next_batch.blocks, data.x[next_batch.node_ids])
    assert found[0]["val_f1_sampled"] == wb.accuracy(logits, data.y[data.val_idx])


def test_infinite_kappa_never_changes_neighbourhoods():
    whole = len(wb.load_dataset(**TINY).train_idx)
    config = {**TRAINING, "sampler": "NS", "batch_size": whole, "steps": 2, "evaluate_every": 1, "learning_rate": 0.0}
    same, changed = ({row["loss"] for row in rows("table3", kappa=kappa, **config)} for kappa in ("inf", 1))
    assert max(same) - min(same) < 1e-6 < max(changed) - min(changed)


def test_independent_parts_are_sampled_with_seeds_of_their_own_and_averaged():
    config = {**TRAINING, "sampler": "NS", "batch_size": 64, "steps": 2, "evaluate_every": 2}
    (found,) = rows("fig9", num_parts=2, **config)
    loss, model, data = first_steps([wb.NeighborSampler([2, 3], seed=1000 + part) for part in (0, 1)], 64)
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["val_f1"] == full_accuracy(model, data)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"steps": 3, "evaluate_every": 2}, "steps is 3, not a multiple of evaluate_every, 2"),
        ({"num_parts": 65}, "num_parts is 65 for a batch_size of 64"),
        ({"batch_size": 10**6}, "batch_size is 1000000, but there are 2"),
    ],
)
def test_impossible_trainings_are_refused(config, message):
    given = {**TRAINING, "sampler": "NS", "batch_size": 64, "steps": 2, "evaluate_every": 2, "num_parts": 2}
    with pytest.raises(ValueError, match=message):
        rows("fig9", **given | config)


def test_micro_f1_counts_all_decisions():
    logits = torch.tensor([[1.0, -1, 2], [-1, 3, -2], [1, 1, -1]])
    y = torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 1, 1]])
    decisions = [(p > 0, bool(t)) for ps, ts in zip(logits, y, strict=True) for p, t in zip(ps, ts, strict=True)]
    true, false, missed = (sum(d == kind for d in decisions) for kind in ((True, True), (True, False), (False, True)))
    assert accuracy_runs.micro_f1(logits, y) == pytest.approx(true / (true + (false + missed) / 2))
    assert accuracy_runs.micro_f1(logits, torch.tensor([2, 0, 0])) == pytest.approx(2 / 3)


def test_differences_are_of_the_settings_that_a_data_set_has_and_undefined_where_a_run_has_none() -> None:
    rows = [
        ("a", 0, 1.0, 0.5),
        ("a", 0, 4.0, 0.75),
        ("a", 0, 16.0, float("nan")),
        ("b", 0, 1.0, 0.5),
        ("b", 0, 16.0, 1),
    ]
    table = pd.DataFrame(rows, columns=["dataset", "seed", "kappa", "f1"])
    found = accuracy_runs.paired_differences(table, value="f1", by=["dataset", "seed"], along="kappa", base=1.0)
    assert found[["dataset", "kappa"]].values.tolist() == [["a", 4.0], ["a", 16.0], ["b", 16.0]]
    assert found.difference.tolist() == pytest.approx([0.25, float("nan"), 0.5], nan_ok=True)
