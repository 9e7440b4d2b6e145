"""`wb.advise`: prices against brute force and the meter, its choice, its text, and its programs."""

import ast
import builtins
import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.advisor import counts as counts_module
from workbench.advisor.advice import ranked
from workbench.advisor.configuration import CHANGES, INEXACT, SAME, Configuration
from workbench.advisor.counts import Counts, Estimated, Parts, mean_of
from workbench.advisor.prices import KAPPA, STAGES, Priced, with_margin
from workbench.nn.dropout import HashDropout
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN
from workbench.nn.sage import SAGELayer
from workbench.partition.batch.partitioner import Partitioner

CPU = wb.Machine(10e9, 5e9, 5e9, 1e11, name="a laptop", gather=4e9, disk=1e9, disk_reads=20e3, is_cpu=True)
GPU = dataclasses.replace(CPU, gamma=1e12, alpha=300e9, beta=16e9, flops=1e13, name="a GPU", is_cpu=False)

NAMES = ("synthetic-products", "synthetic-arxiv", "synthetic-papers100M", "synthetic-flickr")
SCALES = dict(zip(NAMES, (0.001, 0.02, 0.0001, 0.02), strict=True))


@pytest.fixture(
    scope="module", params=[*NAMES[::2], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1::2])]
)
def data(request: pytest.FixtureRequest) -> wb.Dataset:
    return wb.load_dataset(request.param, scale=SCALES[request.param], undirected=True)


@pytest.fixture(scope="module")
def arxiv() -> wb.Dataset:
    return wb.load_dataset("synthetic-arxiv", scale=0.02, undirected=True)


def model_of(data: wb.Dataset, kind: str = "sage-mean", **options: Any) -> Any:
    sizes = {"in_dim": data.num_features, "hidden_dim": 16, "out_dim": data.num_classes}
    return wb.build_model(kind, **sizes, **options)


def advised(data: wb.Dataset, model: Any = None, **options: Any) -> Any:
    options = {"machine": CPU, "memory": "4 GiB", "host_memory": "4 GiB", "batch_size": 64, "num_batches": 8} | options
    sampler = options.pop("sampler", wb.NeighborSampler([5, 5]))
    return wb.advise(data, model_of(data) if model is None else model, sampler=sampler, **options)


def reduced(data: wb.Dataset, share: float = 0.6) -> int:
    """Host memory for the graph and a share of the features."""
    return data.graph.nbytes + round(share * data.x.nbytes)


def losses_of(code: str, data: wb.Dataset) -> torch.Tensor:
    """Losses of epoch 0 of a program, which is run in this process."""
    names: dict[str, Any] = {"data": data, "__name__": "program"}
    exec(compile(code.replace("range(3)", "range(0)"), "program", "exec"), names)
    return torch.stack([*names["epoch"](0)])


def by_reading(advice: Any, **wanted: Any) -> Priced:
    matches = [
        one for one in advice.priced if all(getattr(one.configuration, name) == value for name, value in wanted.items())
    ]
    assert matches, (wanted, advice.table.configuration.tolist())
    return matches[0]


def test_bytes_of_an_epoch_are_those_that_its_batches_read(arxiv: wb.Dataset):
    sampler = wb.NeighborSampler([5, 5])
    plain = advised(arxiv, num_batches=100, batch_size=256).plain
    loader = wb.batches(arxiv.graph, arxiv.train_idx, sampler=sampler, batch_size=256)
    epochs = 100 // len(loader)
    rows = sum(mb.num_inputs for epoch in range(epochs) for _, mb in loader.epoch(epoch)) / epochs
    assert plain.link_bytes == pytest.approx({"host": rows * arxiv.x[:1].nbytes})


def test_bytes_of_a_long_epoch_are_within_the_stated_error(arxiv: wb.Dataset):
    advice = advised(arxiv, batch_size=8, num_batches=30)
    loader = wb.batches(arxiv.graph, arxiv.train_idx, sampler=wb.NeighborSampler([5, 5]), batch_size=8)
    assert len(loader) > 60
    rows = sum(mb.num_inputs for _, mb in loader.epoch(3))
    counted = advice.plain.link_bytes["host"] / arxiv.x[:1].nbytes
    error = advice.pricer.counts.sampled().inputs.error
    assert 0 < error < 0.2
    assert abs(counted / rows - 1) < 2 * error  # 95 % intervals: one in 10,000 is missed by twice its width


@pytest.mark.parametrize("batch_size", [2000, 227, 200, 64])
def test_bytes_of_several_devices_are_those_that_their_programs_read(arxiv: wb.Dataset, batch_size: int):
    devices, share = 8, len(arxiv.train_idx) // 8
    steps = -(-share // batch_size)
    sampler = wb.NeighborSampler([5, 5])
    advice = advised(arxiv, machine=GPU, devices=devices, batch_size=batch_size, num_batches=devices * steps)
    alone, windows = (
        by_reading(advice, **wanted, labor=False, kappa=1)
        for wanted in ({"spread": "alone", "cache": ""}, {"window": 8})
    )
    in_batches, in_windows = 0, 0
    for rank in range(devices):  # as the programs share them
        ids = arxiv.train_idx[rank::devices][:share]
        loader = wb.batches(arxiv.graph, ids, sampler=sampler, batch_size=batch_size)
        read = [mb.node_ids for _, mb in loader.epoch(0)]
        assert len(read) == steps
        in_batches += sum(map(len, read))
        in_windows += len(torch.cat(read).unique())  # a window ends with the epoch
    row_bytes = arxiv.x[:1].nbytes
    assert alone.link_bytes["host"] == pytest.approx(in_batches / devices * row_bytes)
    assert windows.link_bytes["host"] + windows.link_bytes["rank"] == pytest.approx(in_windows / devices * row_bytes)
    whole = wb.batches(arxiv.graph, arxiv.train_idx, sampler=sampler, batch_size=devices * batch_size)
    together = by_reading(advice, spread="cooperation", labor=False)
    in_global = sum(mb.num_inputs for _, mb in whole.epoch(0))
    assert together.link_bytes["host"] == pytest.approx(in_global / devices * row_bytes, rel=0.03)


def test_mean_of_all_batches_has_no_error():
    assert mean_of([1.0, 3.0], 2) == (2.0, 0.0)
    few, many = (mean_of([1.0, 3.0, 2.0, 4.0] * repeats, 10**6).error for repeats in (1, 25))
    assert few == pytest.approx(5 * many, rel=0.2)


@pytest.mark.parametrize(("kind", "budget"), [("sage-mean", 1.0), ("gcn", 0.6), ("gat", 1.0)])
def test_peak_is_what_the_meter_counts(arxiv: wb.Dataset, kind: str, budget: float):
    model = model_of(arxiv, kind)
    whole = advised(arxiv, model, batch_size=512).plain.peak_bytes
    best = advised(arxiv, model, batch_size=512, memory=round(whole * 1.03 * budget)).plain
    assert best.fits
    loader = wb.batches(arxiv.graph, arxiv.train_idx, sampler=wb.NeighborSampler([5, 5]), batch_size=512)
    steps = [[mb] for _, mb in loader.steps(8)]
    if (parts := best.configuration.num_parts) > 1:
        steps = [mb.split(wb.partition_batch(mb, parts)) for [mb] in steps]
    assert (parts > 1) == (budget < 1)
    optimizer = torch.optim.Adam(model.parameters())
    measured = wb.profile_epoch(model, steps, arxiv.x, arxiv.y, cross_entropy, optimizer).peak_bytes
    assert measured is not None
    assert measured == pytest.approx(best.peak_bytes, rel=0.05)
    assert measured <= round(whole * 1.03 * budget)


def test_fewest_micro_batches_are_chosen(arxiv: wb.Dataset):
    whole = advised(arxiv, batch_size=512).plain.peak_bytes
    counts = advised(arxiv, batch_size=512).pricer.counts.estimated("cpu")
    budget = round(0.5 * whole)
    chosen = advised(arxiv, batch_size=512, memory=budget).plain.configuration.num_parts
    assert chosen > 1
    assert counts.parts(chosen).peak_bytes * 1.02 <= budget
    assert counts.parts(chosen - 1).peak_bytes * 1.02 > budget


def test_programs_run_and_those_with_the_same_samples_have_the_same_losses(data: wb.Dataset):
    model = model_of(data)
    in_memory, on_disk = advised(data, model), advised(data, model, host_memory=reduced(data))
    expected = losses_of(in_memory.code(in_memory.plain, data="data"), data)
    readings = set()
    for one in on_disk.priced:
        if not one.fits:
            continue
        losses = losses_of(on_disk.code(one, data="data"), data)
        assert bool(losses.isfinite().all())
        readings.add(one.configuration.reading)
        if not one.configuration.changes_samples:
            assert torch.equal(losses, expected)
        elif one.configuration.reading != "buffer":
            assert not torch.equal(losses, expected)
    assert {"static", "belady", "packed"} <= readings
    assert "buffer" in readings or data.name == "synthetic-products", "two of its partitions are too large"


def test_program_of_micro_batches_has_the_losses_of_the_whole_batch(arxiv: wb.Dataset):
    whole = advised(arxiv, batch_size=512)
    parted = advised(arxiv, batch_size=512, memory=round(0.6 * whole.plain.peak_bytes))
    code = parted.code(parted.plain, data="data")
    assert f"min({parted.plain.configuration.num_parts}, mb.num_seeds)" in code
    expected = losses_of(whole.code(whole.plain, data="data"), arxiv)
    assert torch.allclose(losses_of(code, arxiv), expected, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:BatchNorm1d")
def test_micro_batches_of_batchnorm_are_not_called_exact(arxiv: wb.Dataset):
    for norm, result in (("batch", INEXACT), ("layer", SAME)):
        model = model_of(arxiv, norm=norm)
        whole = advised(arxiv, model, batch_size=512)
        assert whole.plain.result == SAME
        parted = advised(arxiv, model, batch_size=512, memory=round(0.6 * whole.plain.peak_bytes))
        assert parted.plain.configuration.num_parts > 1
        assert {one.result for one in parted.priced if not one.configuration.changes_samples} == {result}
        assert parted.table.exact.tolist() == [one.result for one in parted.priced]
        for text in (str(parted), parted._repr_html_()):
            assert (
                ("† changes the gradient" in text) == (f"{parted.plain.configuration} †" in text) == (norm == "batch")
            )
        losses = [losses_of(advice.code(advice.plain, data="data"), arxiv) for advice in (whole, parted)]
        assert torch.allclose(*losses, rtol=1e-4) == (norm == "layer")


def test_cooperation_draws_the_seeds_of_a_step_elsewhere(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU, devices=2)
    results = {one.configuration.spread: one.result for one in advice.priced if not one.configuration.labor}
    assert results["cooperation"] == CHANGES
    assert advice.table.set_index("configuration").exact["placement"] == SAME
    steps = [
        torch.cat(
            [
                next(iter(wb.batches(arxiv.graph, ids, sampler=wb.NeighborSampler([5, 5]), batch_size=size)))[1].seeds
                for ids in shares
            ]
        )
        .sort()
        .values
        for size, shares in ((64, [arxiv.train_idx[0::2], arxiv.train_idx[1::2]]), (128, [arxiv.train_idx]))
    ]
    assert not torch.equal(*steps)


def test_programs_shuffle_and_partition_by_the_seed_of_the_advice(arxiv: wb.Dataset):
    advice = advised(arxiv, host_memory=reduced(arxiv), seed=7)
    drawn = set()
    for one in advice.priced:
        tree = ast.parse(advice.code(one, data="data"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if (name := ast.unparse(call.func)).endswith(("batches", "node_order", "PartitionStore.build")):
                drawn.add(name)
                assert {k.arg: ast.unparse(k.value) for k in call.keywords}.get("seed") == "7", ast.unparse(call)
    of_buffer = {f"wb.outofcore.{name}" for name in ("batches", "node_order", "PartitionStore.build")}
    assert drawn == {"wb.batches"} | of_buffer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "cache"),
    [("alone", ""), ("alone", "static"), ("alone", "lru"), ("placement", ""), ("cooperation", ""), ("owned", "")],
)
def test_programs_of_several_devices_run(tmp_path: Path, arxiv: wb.Dataset, spread: str, cache: str):
    advice = advised(arxiv, machine=GPU, devices=2)
    one = by_reading(advice, spread=spread, labor=False, cache=cache)
    pricer = dataclasses.replace(advice.pricer, machine=CPU)
    load = 'wb.load_dataset("synthetic-arxiv", scale=0.02, undirected=True)'
    code = dataclasses.replace(advice, pricer=pricer).code(one, data=load)
    (tmp_path / "program.py").write_text(code)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("wb.CachedRows(" in code) == bool(cache)
    losses = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert len(losses) == 3
    assert losses[2] < losses[0]


def test_code_rebuilds_the_model(arxiv: wb.Dataset):
    for kind, options in {
        "sage-pool": {},
        "gcn": {"norm": "batch"},
        "gin": {"norm": "layer", "num_layers": 2},
        "gat": {"heads": 4, "self_attention": True, "dropout": 0.3, "seed": 5},
        "sage-mean": {"reuse_buffers": True, "dropout": 0.3},
        "sage-lstm": {"num_layers": 2},
    }.items():
        model = model_of(arxiv, kind, **options)
        code = advised(arxiv, model).code(data="data")
        line = next(line for line in code.splitlines() if line.startswith("model = "))
        rebuilt = eval(line.removeprefix("model = "), {"wb": wb})
        assert repr(rebuilt) == repr(model)


def test_code_rebuilds_a_relational_model(arxiv: wb.Dataset):
    types = torch.arange(arxiv.graph.num_edges) % 3
    typed = dataclasses.replace(arxiv, graph=dataclasses.replace(arxiv.graph, edge_type=types))
    for options in ({}, {"num_bases": 2}, {"num_bases": 4, "regularizer": "bdd"}):
        model = model_of(arxiv, "rgcn", num_relations=3, **options)
        assert losses_of(advised(typed, model).code(data="data"), typed).isfinite().all()


def test_code_does_not_guess_a_model_of_other_layers(arxiv: wb.Dataset):
    uneven = GNN(
        [SAGELayer(arxiv.num_features, 8), SAGELayer(8, 16), SAGELayer(16, arxiv.num_classes)],
        norms=[torch.nn.Identity(), torch.nn.Identity()],
        activation=torch.nn.ReLU(),
        dropouts=[HashDropout(0.0, layer) for layer in range(2)],
    )
    tanh = model_of(arxiv)
    tanh.activation = torch.nn.Tanh()
    for model, fanouts in ((uneven, [5, 5, 5]), (tanh, [5, 5])):
        with pytest.raises(ValueError, match=r"GNN is not a model of wb\.build_model; pass model="):
            advised(arxiv, model, sampler=wb.NeighborSampler(fanouts)).code()


def test_own_model_is_priced_and_its_program_takes_an_expression(arxiv: wb.Dataset):
    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([GCNLayer(arxiv.num_features, 8), GCNLayer(8, 40)])

        def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
            return self.layers[1](blocks[1], torch.tanh(self.layers[0](blocks[0], h)))

    advice = advised(arxiv, Mine())
    assert advice.best.fits
    with pytest.raises(ValueError, match=r"Mine is not a model of wb\.build_model; pass model="):
        advice.code()
    assert "model = Mine()" in advice.code(model="Mine()")
    told: list[str] = []
    with pytest.raises(ValueError, match=r"a step of Mine must be traced, but the model is on cpu; move it"):
        advised(arxiv, Mine(), machine=GPU, seed=3, report=told.append)
    assert not told, "nothing is sampled before"
    with pytest.raises(ValueError, match="machine is A100"):
        advice.with_budgets(machine="A100")


def test_code_loads_the_data_as_they_were_loaded(arxiv: wb.Dataset):
    code = advised(arxiv).code()
    assert "data = wb.load_dataset('synthetic-arxiv', scale=0.02, undirected=True)" in code
    for other in (dataclasses.replace(arxiv, x=arxiv.x[:, :8]), rebuilt(arxiv)):
        advice = advised(other)
        with pytest.raises(ValueError, match=r"was not returned by wb\.load_dataset; pass data="):
            advice.code()
        assert "data = mine()" in advice.code(data="mine()")


def test_code_loads_no_other_data_of_the_same_shape(arxiv: wb.Dataset):
    doubled = dataclasses.replace(arxiv, x=arxiv.x * 2)
    for data in (arxiv, doubled, arxiv):
        advice = advised(data, seed=11)
        if data is arxiv:
            assert "data = wb.load_dataset('synthetic-arxiv', scale=0.02, undirected=True)" in advice.code()
        else:
            with pytest.raises(ValueError, match=r"was not returned by wb\.load_dataset; pass data="):
                advice.code()


def rebuilt(data: wb.Dataset) -> wb.Dataset:
    splits = {name: getattr(data, name)[1:] for name in ("train_idx", "val_idx", "test_idx")}
    return wb.Dataset.build(data.graph, data.x, data.y, **splits, num_classes=data.num_classes)


def test_code_casts_the_model_to_the_features(arxiv: wb.Dataset):
    data = dataclasses.replace(arxiv, x=arxiv.x.double())
    code = advised(data, model_of(data).double()).code(data="data")
    assert ".to(torch.float64)\n" in code
    assert losses_of(code, data).dtype == torch.float64


@pytest.mark.parametrize(
    "sampler",
    [
        wb.LadiesSampler([300, 300], weights="ratio"),
        wb.RandomWalkSampler([5, 5], num_walks=20),
        wb.LaborSampler([5, 5], importance=2),
        wb.NeighborSampler([{0: 5}, {0: 5}]),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_programs_of_other_samplers_run(arxiv: wb.Dataset, sampler: Any):
    data = arxiv
    if isinstance(sampler, wb.NeighborSampler):
        types = torch.zeros(arxiv.graph.num_edges, dtype=torch.int64)
        data = dataclasses.replace(arxiv, graph=dataclasses.replace(arxiv.graph, edge_type=types))
    advice = advised(data, sampler=sampler, host_memory=reduced(data, 0.9))
    fitting = [one for one in advice.priced if one.fits]
    assert any("static" in str(one.configuration) for one in fitting)
    for one in fitting:
        losses = losses_of(advice.code(one, data="data"), data)
        assert losses.isfinite().all(), one.configuration


class FirstNeighbor(wb.Sampler):
    """Draws the first in-edge of each node."""

    num_layers, rows_are_independent = 2, True

    def draw(self, graph: Any, nodes: Any, *, layer: int, step: int = 0, exclude_edges: Any = None) -> Any:
        has_any = graph.in_degrees()[nodes] > 0
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), has_any.cumsum(0)])
        return wb.sampling.Drawn(indptr, graph.indices[graph.indptr[nodes[has_any]]])


def test_the_program_of_an_own_sampler_takes_an_expression(arxiv: wb.Dataset):
    advice = advised(arxiv, sampler=FirstNeighbor())
    with pytest.raises(ValueError, match=r"FirstNeighbor is not a sampler of the workbench; pass sampler="):
        advice.code(data="data")
    assert "sampler = Mine()\n" in advice.code(data="data", sampler="Mine()")
    dependent = next(one for one in advised(arxiv, host_memory=reduced(arxiv)).priced if one.configuration.kappa > 1)
    assert "sampler = wb." in advised(arxiv).code(dependent, data="data", sampler="Mine()")


def test_factors_of_a_sampler_can_not_be_written(arxiv: wb.Dataset):
    sampler = wb.LadiesSampler([300, 300], factors=torch.ones(arxiv.graph.num_nodes))
    with pytest.raises(ValueError, match="factors of LadiesSampler can't be written as text; pass sampler="):
        advised(arxiv, sampler=sampler).code(data="data")


def test_rows_of_a_disk_leave_memory_for_the_largest_batch_of_an_epoch(arxiv: wb.Dataset):
    advice = advised(arxiv, host_memory=reduced(arxiv, 0.9))
    sampled = advice.pricer.counts.sampled()
    assert len(sampled.batches) < sampled.batches_per_epoch
    assert sampled.growth > 1
    loader = wb.batches(arxiv.graph, arxiv.train_idx, sampler=wb.NeighborSampler([5, 5]), batch_size=64)
    largest = max(mb.num_inputs for _, mb in loader.steps(3 * len(loader)))
    assert largest > max(mb.num_inputs for mb in sampled.batches)
    assert largest <= sampled.growth * max(mb.num_inputs for mb in sampled.batches)
    fitting = [one for one in advice.priced if one.fits and one.configuration.reading in ("belady", "packed")]
    assert max(one.configuration.group for one in fitting) == 4, "two groups are in what was sampled"
    for one in fitting:
        losses_of(advice.code(one, data="data").replace("range(0)", "range(3)"), arxiv)


def test_dependent_batches_are_read_ahead_where_independent_ones_do_not_fit():
    ids = torch.arange(20)
    graph = wb.Graph.from_edges(torch.cat([ids, ids]), torch.cat([ids.roll(1), ids.roll(2)]), num_nodes=20)
    x, y = torch.ones(20, 8), ids % 3
    data = wb.Dataset.build(graph, x, y, train_idx=ids[:1], val_idx=ids[1:2], test_idx=ids[2:3])
    advice = advised(data, model_of(data), host_memory=graph.nbytes + 8 * 32, sampler=wb.NeighborSampler([1, 1]))
    ahead = [one.configuration for one in advice.priced if one.configuration.reading == "belady"]
    assert ahead
    assert all(c.window >= 1 for c in ahead)


def test_unpriceable_model_says_why(arxiv: wb.Dataset):
    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no such layer")

    with pytest.raises(ValueError, match="no such layer"):
        advised(arxiv, Broken())


def test_models_that_advise_does_not_call_are_told_what_it_does(arxiv: wb.Dataset):
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(arxiv.num_features, arxiv.num_classes)

    class Three(Other):
        def forward(self, blocks: Any, x: Any, extra: Any) -> Any:
            return self.linear(x)

    class Two(Other):
        def forward(self, blocks: Any, x: Any) -> Any:
            out = self.linear(x[: blocks[-1].num_dst])
            return out, out

    wrapped = r"; wrap the model in a module called as \(blocks, x\) that returns one tensor$"
    for model, reason in ((Three(), r"can't be called with \(blocks, x\)"), (Two(), "an output of tuple")):
        with pytest.raises(ValueError, match=f"{reason}.*{wrapped}") as raised:
            advised(arxiv, model)
        assert "forward=" not in str(raised.value) and "loss_fn=" not in str(raised.value)


def test_models_without_parameters_to_train_are_refused(arxiv: wb.Dataset):
    told: list[str] = []
    frozen = model_of(arxiv).requires_grad_(False)
    for model, message in (
        (torch.nn.Sequential(torch.nn.LazyLinear(3)), "Sequential has uninitialised parameters; run one batch"),
        (torch.nn.Sequential(), "Sequential has no trainable parameters"),
        (frozen, "GNN has no trainable parameters"),
    ):
        with pytest.raises(ValueError, match=message):
            advised(arxiv, model, report=told.append)
    assert told == []


def test_second_call_with_other_budgets_counts_nothing(arxiv: wb.Dataset):
    model, told = model_of(arxiv), []
    advised(arxiv, model, seed=7, report=told.append)  # a seed that no other test has counted
    assert "sampling 8 batches: NeighborSampler" in told
    again: list[str] = []
    advised(arxiv, model, seed=7, memory="1 GiB", host_memory="3 GiB", report=again.append)
    assert again == ["pricing"]


def test_counts_of_other_data_are_not_taken_for_those_of_the_same_fingerprint(arxiv: wb.Dataset):
    def changed(**tensors: torch.Tensor) -> Any:
        data = dataclasses.replace(arxiv, **tensors)
        assert data.fingerprint == arxiv.fingerprint
        return advised(data)

    whole = advised(arxiv)
    half = changed(train_idx=arxiv.train_idx[::2].clone())
    assert half.plain.epoch_seconds < 0.6 * whole.plain.epoch_seconds
    reordered = changed(train_idx=arxiv.train_idx.flip(0))
    assert reordered.pricer.counts.data.train_idx[0] == arxiv.train_idx[-1]
    narrow = changed(x=arxiv.x[:, :32].contiguous())
    assert narrow.plain.moved_bytes == pytest.approx(32 / arxiv.num_features * whole.plain.moved_bytes)
    again, same = (changed(train_idx=arxiv.train_idx.clone()) for _ in range(2))
    assert again.pricer.counts is same.pricer.counts, "equal data need no new counts"


def test_counts_of_a_sampler_with_other_tensors_are_not_taken_for_its_own(arxiv: wb.Dataset):
    ones = torch.ones(arxiv.graph.num_nodes)
    near = torch.where(torch.arange(len(ones)) % 500 == 250, 8.0, 1.0)  # of which the text shows nothing
    samplers = [wb.placement.LocalitySampler([5, 5], factors) for factors in (ones, near)]
    assert repr(samplers[0]) == repr(samplers[1])
    first, other = (advised(arxiv, sampler=sampler).pricer.counts for sampler in samplers)
    assert first is not other and first is advised(arxiv, sampler=samplers[0]).pricer.counts


def test_counts_of_another_model_are_not_taken_for_those_of_the_same_text(arxiv: wb.Dataset):
    def define(width: int) -> type[torch.nn.Module]:
        class Mine(torch.nn.Module):
            def __init__(self, copies: int) -> None:
                super().__init__()
                self.layers = torch.nn.ModuleList([GCNLayer(arxiv.num_features, 8), GCNLayer(8, 40)])
                self.copies = copies

            def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
                h = self.layers[0](blocks[0], h)
                return self.layers[1](blocks[1], torch.cat([torch.tanh(h)] * width * self.copies).split(len(h))[0])

        return Mine

    mine, redefined = define(1), define(40)
    models = [mine(1), mine(40), redefined(1)]
    assert len({repr(model) for model in models}) == 1
    peaks = [advised(arxiv, model).plain.peak_bytes for model in models]
    assert peaks[1] > 1.2 * peaks[0], "another attribute"
    assert peaks[2] == peaks[1], "another class of the same name"


def test_what_changes_samples_is_marked(arxiv: wb.Dataset):
    table = advised(arxiv, host_memory=reduced(arxiv)).table.set_index("configuration").exact
    for name, exact in table.items():
        changes = any(word in str(name) for word in ("LABOR", "κ", "buffer"))
        assert exact == ("changes the samples" if changes else "same result")


def test_faster_disk_makes_reading_faster_and_nothing_else(arxiv: wb.Dataset):
    options: dict[str, Any] = {"host_memory": reduced(arxiv)}
    slow = advised(arxiv, **options)
    fast = advised(arxiv, **options, machine=dataclasses.replace(CPU, disk=1e10, disk_reads=1e6))
    for reading in ("static", "buffer"):
        before, after = (by_reading(advice, reading=reading, labor=False) for advice in (slow, fast))
        assert after.seconds["read"] < before.seconds["read"]
        same = [stage for stage in STAGES if stage != "read"]
        assert [after.seconds[stage] for stage in same] == [before.seconds[stage] for stage in same]


def test_only_the_disk_is_hidden_by_steps_on_a_cpu():
    """A thread reads rows; the step itself takes those that it needs from memory."""
    data = wb.load_dataset("synthetic-papers100M", scale=0.0005, undirected=True)
    machine = dataclasses.replace(CPU, disk=1e15, disk_reads=1e15, disk_block_bytes=512)
    found = {
        speed: advised(data, machine=dataclasses.replace(machine, disk_writes=speed), host_memory=reduced(data))
        for speed in (1e15, 1e6)
    }
    for reading in ("static", "belady", "packed", "buffer"):
        free, slow = (by_reading(advice, reading=reading, labor=False, kappa=1) for advice in found.values())
        assert free.epoch_seconds == pytest.approx(sum(free.seconds.values()), rel=1e-6)
        assert (slow.epoch_seconds > 2 * free.epoch_seconds) == (reading == "packed")


@pytest.mark.slow
def test_more_memory_never_makes_less_fit(arxiv: wb.Dataset):
    sizes = [round(share * 1e6) for share in (0.05, 0.3, 0.6, 2)]
    found = [advised(arxiv, memory=size, batch_size=512).priced[0] for size in sizes]
    assert [one.fits for one in found] == sorted(one.fits for one in found)
    assert {True, False} == {one.fits for one in found}
    fitting = [one.configuration.num_parts for one in found if one.fits]
    assert fitting == sorted(fitting, reverse=True)


def test_gpu_copies_and_overlaps(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU)
    plain = advice.plain
    sampled = advice.pricer.counts.sampled()
    rows = plain.link_bytes["host"]
    batches = sampled.batches_per_epoch * sampled.nbytes.value
    assert plain.seconds["copy"] == pytest.approx((rows + batches) / GPU.beta)
    assert plain.epoch_seconds < sum(plain.seconds.values())
    cached = by_reading(advice, cache="static", labor=False)
    assert cached.link_bytes["host"] + cached.link_bytes["device"] == pytest.approx(rows)
    assert cached.peak_bytes > plain.peak_bytes


def test_cooperation_loads_each_row_once(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU, devices=2)
    alone, together = (by_reading(advice, spread=spread, labor=False, cache="") for spread in ("alone", "cooperation"))
    assert together.link_bytes["host"] < alone.link_bytes["host"]
    assert together.link_bytes["peer"] > 0
    assert together.seconds["exchange"] > alone.seconds["exchange"] > 0


def test_macrobatches_fetch_each_row_once_per_window(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU, devices=2)
    single, grouped = (by_reading(advice, spread="owned", window=window, labor=False, kappa=1) for window in (1, 8))
    owner = wb.partition_graph(arxiv.graph, 2, method="random", seed=0)
    steps = [mb.node_ids for mb in advice.pricer.counts.sampled().batches]
    remote = [ids[owner[ids] != 0] for ids in steps]
    per_batch = sum(map(len, remote)) / len(steps)
    per_window = sum(len(torch.cat(remote[at : at + 8]).unique()) for at in range(0, len(steps), 8)) / len(steps)
    per_device = advice.pricer.counts.sampled().batches_per_epoch / 2 * arxiv.x[:1].nbytes
    assert single.link_bytes["rank"] == pytest.approx(per_batch * per_device)
    assert grouped.link_bytes["rank"] == pytest.approx(per_window * per_device)
    assert grouped.host_bytes > single.host_bytes


def test_memory_below_what_a_seed_needs_is_known_without_a_partition(
    arxiv: wb.Dataset, monkeypatch: pytest.MonkeyPatch
):
    model, options = model_of(arxiv), {"batch_size": 32, "seed": 13}
    with monkeypatch.context() as patched:
        patched.delattr(Partitioner, "prepare")
        none = advised(arxiv, model, memory=2 * sum(p.nbytes for p in model.parameters()), **options)
    assert not any(one.fits for one in none.priced)
    one = next(one for one in none.priced if not one.configuration.labor)
    estimated = none.pricer.counts.estimated("cpu")
    alone = [part for mb in estimated.sampled.batches for part in mb.split(torch.arange(mb.num_seeds))]
    most = max(estimated.estimator(part, accumulating=True).peak_bytes for part in alone)
    assert one.configuration.num_parts == 32
    assert one.why.startswith("even one seed at a time needs ")
    assert most <= one.peak_bytes * 1.001 and one.peak_bytes <= 1.1 * most
    assert advised(arxiv, model, memory=round(1.1 * one.peak_bytes), **options).best.configuration.num_parts > 1


def test_parts_grow_by_what_they_exceed_the_memory(arxiv: wb.Dataset, monkeypatch: pytest.MonkeyPatch):
    estimated = Counts(arxiv, model_of(arxiv), wb.NeighborSampler([5, 5]), 512, num_batches=2).estimated("cpu")
    memory, tried = round(0.1 * estimated.peak_bytes), []
    monkeypatch.setattr(counts_module, "smallest_fitting", lambda utilization, upper: 2)
    parts = Estimated.parts
    monkeypatch.setattr(Estimated, "parts", lambda self, number: tried.append(number) or parts(self, number))
    found = estimated.fewest(memory)
    assert found is not None and found.peak_bytes * 1.02 <= memory
    assert found.num_parts > 10
    assert 3 * len(set(tried)) < found.num_parts


def test_where_more_parts_hardly_need_less_memory_few_numbers_are_tried(
    arxiv: wb.Dataset, monkeypatch: pytest.MonkeyPatch
):
    estimated = Counts(arxiv, model_of(arxiv), wb.NeighborSampler([5, 5]), 512, num_batches=2).estimated("cpu")
    memory, tried = round(0.5 * estimated.peak_bytes), set()
    monkeypatch.setattr(counts_module, "smallest_fitting", lambda utilization, upper: 150)

    def parts(self: Estimated, number: int) -> Parts:
        tried.add(number)
        return Parts(number, round(memory * (0.985 if number < 300 else 0.97)))

    monkeypatch.setattr(Estimated, "parts", parts)
    found = estimated.fewest(memory)
    assert found is not None and 300 <= found.num_parts <= 315
    assert len(tried) <= 16


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 5, 7, 9, 11])
def test_small_graphs_have_no_more_partitions_than_nodes(num_nodes: int):
    ids = torch.arange(num_nodes)
    graph = wb.Graph.from_edges(ids, ids.roll(1), num_nodes=num_nodes)
    splits: dict[str, Any] = {"train_idx": ids[: 1 + num_nodes // 2], "val_idx": ids[:0], "test_idx": ids[:0]}
    data = wb.Dataset.build(graph, torch.ones(num_nodes, 8), ids % 3, **splits, num_classes=3)
    advice = advised(data, host_memory=graph.nbytes + 32 * num_nodes - 1, sampler=wb.NeighborSampler([2, 2]))
    for one in advice.priced:
        assert "num_partitions" not in one.why
        assert one.configuration.partitions <= num_nodes


def test_devices_without_a_training_node_are_refused(arxiv: wb.Dataset):
    data = dataclasses.replace(arxiv, train_idx=arxiv.train_idx[:2])
    advice = advised(data, model_of(data), devices=2)
    assert advice.best.fits
    for ask in (lambda: advised(data, model_of(data), devices=3), lambda: advice.with_budgets(devices=3)):
        with pytest.raises(ValueError, match=r"devices is 3, but .* has 2 training nodes, .*pass at most devices=2"):
            ask()


def test_rows_that_can_not_be_explained_are_refused(arxiv: wb.Dataset):
    machine = wb.Machine(10e9, 5e9, 5e9, 1e11, name="a cluster's node", is_cpu=True)
    advice = advised(arxiv, machine=machine, host_memory=reduced(arxiv))
    with pytest.raises(ValueError, match=r"disk, static cache can't be priced: .* pass one of advice\.priced that has"):
        advice.explain(by_reading(advice, reading="static", labor=False))
    other: Any = "x"
    for ask in (advice.explain, advice.code):
        with pytest.raises(TypeError, match=r"priced is a str; pass one of advice\.priced"):
            ask(other)


def test_text_fits_a_terminal_and_says_why_each_idea_does_not_help(arxiv: wb.Dataset):
    for advice in (advised(arxiv), advised(arxiv, machine=GPU, devices=4), advised(arxiv, host_memory=reduced(arxiv))):
        lines = str(advice).splitlines()
        assert max(map(len, lines)) <= 80
        text = str(advice)
        assert text.count("\n- ") >= 5
        assert "Use " in text
        assert "modelled" in text


def test_nothing_fits_is_an_error_that_says_what_is_needed(arxiv: wb.Dataset):
    model = model_of(arxiv)
    with pytest.raises(wb.CapacityError, match="parameters and gradients take"):
        advised(arxiv, model, memory=1000)
    none = advised(arxiv, model, host_memory=1000)
    assert "Nothing fits" in str(none)
    with pytest.raises(wb.CapacityError, match=r"no configuration fits: needs .* of host memory"):
        _ = none.best


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"devices": 0}, "devices is 0"),
        ({"num_batches": 1}, "num_batches is 1"),
        ({"memory": "much"}, "memory"),
        ({"machine": "B1000"}, "B1000"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sampled(arxiv: wb.Dataset, change: dict[str, Any], message: str):
    told: list[str] = []
    with pytest.raises(ValueError, match=message):
        advised(arxiv, model_of(arxiv), **change, report=told.append)
    assert told == []


def test_bytes_read_from_disk_are_those_of_an_epoch(arxiv: wb.Dataset, tmp_path: Path):
    wb.MappedRows.create(tmp_path / "x", arxiv.x)
    machine = dataclasses.replace(CPU, disk_block_bytes=wb.DiskRows(tmp_path / "x").block_bytes)
    options = {"machine": machine, "batch_size": 256, "num_batches": 32}
    advice = advised(arxiv, host_memory=reduced(arxiv, 0.9), **options)
    assert advice.pricer.counts.steps_per_epoch == 8, "the batches sampled are four epochs"
    found = 0
    for one in advice.priced:
        c = one.configuration
        if not one.fits or c.reading not in ("static", "belady"):
            continue
        names: dict[str, Any] = {"data": arxiv, "__name__": "program"}
        code = advice.code(one, data="data").replace("x = wb.DiskRows", "disk = x = wb.DiskRows")
        exec(compile(code.replace("range(3)", "range(0)"), "program", "exec"), names)
        before = names["disk"].read_bytes
        epochs = 4 if c.reading == "static" else 1  # as many as are priced: a plan is made for one
        for epoch in range(epochs):
            list(names["epoch"](epoch))
        read = (names["disk"].read_bytes - before) / epochs
        # Which of the rows that are used again at the same time are evicted depends on their order in a batch.
        error = 1e-6 if c.reading == "static" else 0.02
        assert read == pytest.approx(one.link_bytes["disk"], rel=error), str(c)
        found += 1
    assert found >= 4


def test_a_machine_without_a_disk_prices_no_reading_from_it(arxiv: wb.Dataset):
    machine = wb.Machine(10e9, 5e9, 5e9, 1e11, name="a cluster's node", is_cpu=True)
    advice = advised(arxiv, machine=machine, host_memory=reduced(arxiv))
    one = by_reading(advice, reading="static", labor=False)
    assert not one.can_be_priced
    assert "disk is not known, pass disk= and disk_reads=" in one.why
    with pytest.raises(wb.CapacityError, match=r"disk is not known"):
        _ = advice.best


def test_several_devices_read_no_disk(arxiv: wb.Dataset):
    advice = advised(arxiv, host_memory=reduced(arxiv), devices=2)
    on_disk = [one for one in advice.priced if one.configuration.reading != "memory"]
    assert on_disk and not any(one.can_be_priced for one in on_disk)
    assert {one.why for one in on_disk} == {"can't be priced: what several devices read from one disk is not planned"}


def test_the_program_places_rows_at_the_cost_that_was_priced(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU, devices=2)
    one = by_reading(advice, spread="placement", labor=False)
    assert one.configuration.peer_cost == GPU.beta / GPU.alpha
    assert f"peer_cost={GPU.beta / GPU.alpha:.4g}\n" in advice.code(one, data="data")


def test_data_without_features_or_training_nodes_is_refused(arxiv: wb.Dataset):
    for change, message in (
        ({"x": arxiv.x[:, :0]}, "has no features to read"),
        ({"train_idx": arxiv.train_idx[:0]}, "has no training nodes"),
    ):
        with pytest.raises(ValueError, match=message):
            advised(dataclasses.replace(arxiv, fingerprint=message, **change), model_of(arxiv))


def test_of_configurations_that_are_as_fast_the_plainest_is_advised():
    def priced(seconds: float, fits: bool = True, is_exact: bool = True, **options: Any) -> Any:
        price: dict[str, Any] = {"peak_bytes": 0, "host_bytes": 0, "link_bytes": {}, "seconds": {}, "error": 0.0}
        price |= {"epoch_seconds": seconds, "fits": fits, "is_exact": is_exact}
        return Priced(configuration=Configuration(**options), **price)

    plain, labor, static = priced(1.02), priced(1.0, labor=True), priced(1.01, reading="static")
    assert ranked([labor, static, plain]) == [plain, labor, static]
    buffer = priced(0.5, reading="buffer")
    assert ranked([buffer, labor, plain]) == [plain, labor, buffer], "it leaves neighbours out"
    assert ranked([buffer, priced(0.1, fits=False)])[0] is buffer
    parts, cached = priced(1.0, is_exact=False, num_parts=2), priced(1.02, reading="static", cache="lru")
    assert ranked([parts, cached])[0] is cached, "it has the losses of the plain program"
    slower = priced(1.2)
    assert ranked([slower, labor, priced(0.1, fits=False)])[0] is labor


def test_other_budgets_are_priced_as_by_another_call(arxiv: wb.Dataset):
    first = advised(arxiv)
    other: dict[str, Any] = {"memory": "2 MiB", "host_memory": reduced(arxiv), "devices": 2}
    assert first.table.configuration.tolist() != advised(arxiv, **other).table.configuration.tolist()
    assert_same_advice(first.with_budgets(**other), advised(arxiv, **other))
    back = first.with_budgets(**other).with_budgets(memory="4 GiB", host_memory="4 GiB", devices=1)
    assert_same_advice(back, first)
    assert_same_advice(first.with_budgets(machine=GPU), advised(arxiv, machine=GPU))
    less = first.with_budgets(host_memory=reduced(arxiv))
    assert_same_advice(
        less.with_budgets(host_memory=reduced(arxiv, 0.2)), advised(arxiv, host_memory=reduced(arxiv, 0.2))
    )


def test_another_memory_of_the_host_samples_and_times_nothing_but_a_buffer_of_another_size(
    arxiv: wb.Dataset, monkeypatch: pytest.MonkeyPatch
):
    model = wb.build_model("gcn", in_dim=arxiv.num_features, hidden_dim=6, out_dim=arxiv.num_classes, num_layers=2)
    monkeypatch.setattr(importlib.import_module("workbench.advisor.advice"), "_is_here", lambda machine: True)
    first = advised(arxiv, model)
    assert first.pricer.measured and all(one.configuration.reading == "memory" for one in first.priced)
    for name in ("_sample", "_timed", "access_probability"):
        monkeypatch.delattr(Counts, name)
    for share in (0.6, 0.5):
        less = first.with_budgets(host_memory=reduced(arxiv, share))
        for reading in ("static", "belady", "packed", "buffer"):
            assert by_reading(less, reading=reading).can_be_priced
        assert by_reading(less, reading="belady", labor=True, kappa=KAPPA).can_be_priced


def assert_same_advice(found: Any, expected: Any) -> None:
    assert [(one.configuration, one.why, one.peak_bytes, one.host_bytes) for one in found.priced] == [
        (one.configuration, one.why, one.peak_bytes, one.host_bytes) for one in expected.priced
    ]
    seconds = [[one.epoch_seconds for one in advice.priced] for advice in (found, expected)]
    assert seconds[0] == pytest.approx(seconds[1], nan_ok=True)


@pytest.mark.parametrize(("change", "message"), [({"devices": 63}, "devices is 63"), ({"memory": "0B"}, "memory is 0")])
def test_other_budgets_out_of_range_are_refused(arxiv: wb.Dataset, change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        advised(arxiv).with_budgets(**change)


def test_a_notebook_shows_all_rows_in_full_and_the_sentences(arxiv: wb.Dataset):
    for advice in (advised(arxiv, machine=GPU, devices=4), advised(arxiv, host_memory=reduced(arxiv))):
        page = advice._repr_html_()
        assert page.count("<tr") == 1 + len(advice.priced)
        for one in advice.priced:
            assert f"<td>{one.configuration}{' *' if one.configuration.changes_samples else ''}</td>" in page
        assert page.count("<li>") == len(advice.sentences()) - 1
    assert "<p>Nothing fits: needs " in advised(arxiv, host_memory=1000)._repr_html_()


def test_long_names_keep_their_mark(arxiv: wb.Dataset):
    text = str(advised(arxiv, host_memory=reduced(arxiv)))
    (line,) = [line for line in text.splitlines() if line.startswith("LABOR, κ = 64, disk, read")]
    assert "… *  " in line


def test_the_program_uses_the_optimizer(arxiv: wb.Dataset):
    code = advised(arxiv, optimizer="adamw").code(data="data")
    assert "optimizer = torch.optim.AdamW(model.parameters())" in code


@pytest.mark.parametrize("rows", [0, 1, 500])
def test_rows_fill_what_steps_leave_of_the_device_and_fit(arxiv: wb.Dataset, rows: int):
    advice = advised(arxiv, machine=GPU, num_batches=100)
    estimated, row = advice.pricer.counts.estimated("cuda"), arxiv.x[:1].nbytes
    asked = max(mb.num_inputs for mb in estimated.sampled.batches) * row
    ahead = 3 * max(mb.nbytes + mb.num_inputs * row for mb in estimated.sampled.batches)
    memory = with_margin(estimated, estimated.parts(1)) + ahead + asked + rows * row + row // 2
    found = [one for one in advice.with_budgets(memory=memory).priced if one.configuration.cache == "static"]
    found = [one for one in found if not one.configuration.labor]
    assert [(one.configuration.cached_rows, one.fits) for one in found] == [(rows, True)] * (rows > 0)


def test_a_gpu_prefetches_as_many_batches_as_it_has_room_for(arxiv: wb.Dataset):
    advice = advised(arxiv, machine=GPU, num_batches=100)
    estimated, sampled = advice.pricer.counts.estimated("cuda"), advice.pricer.counts.sampled()
    step = estimated.parts(1)
    item = max(mb.nbytes + mb.num_inputs * arxiv.x[:1].nbytes for mb in sampled.batches)
    for room, number in ((3.5, 3), (2.5, 2), (1.5, 0), (0.5, 0)):
        one = advice.with_budgets(memory=with_margin(estimated, step) + round(room * item)).plain
        assert (one.fits, one.configuration.num_parts, one.configuration.prefetched) == (True, 1, number)
        assert one.choice == {}
        assert one.peak_bytes == step.peak_bytes + number * item
        overlapped = one.epoch_seconds < 0.999 * sum(one.seconds.values())
        assert overlapped == (number > 0), "what is not read ahead is waited for"
        code = advice.code(one, data="data")
        assert (f"wb.prefetch(fetched, depth={number - 1}, " in code) == (number > 0), (
            "it holds one more than its depth"
        )
    assert not any(one.configuration.prefetched for one in advised(arxiv).priced), "a CPU computes one after the other"


def test_a_cache_leaves_room_for_what_is_prefetched(arxiv: wb.Dataset):
    whole = advised(arxiv, machine=GPU, num_batches=100)
    memory = round(whole.plain.peak_bytes + 0.3 * arxiv.x.nbytes)
    advice = whole.with_budgets(memory=memory)
    cached = by_reading(advice, cache="static", labor=False)
    assert 0 < cached.configuration.cached_rows < len(arxiv.x) and cached.configuration.prefetched == 3
    assert cached.fits and cached.peak_bytes <= memory
    row, hits = arxiv.x[:1].nbytes, cached.link_bytes["device"]
    asked = max(mb.num_inputs for mb in advice.pricer.counts.sampled().batches) * row
    missed = 1 - hits / (hits + cached.link_bytes["host"])
    beside = cached.peak_bytes - advice.plain.peak_bytes - cached.configuration.cached_rows * row
    assert beside == pytest.approx(missed * asked, abs=1), "misses are there beside the rows asked for"


def test_a_first_read_of_a_cache_has_room(arxiv: wb.Dataset):
    """Without prefetching: what a simulated GPU allocates for it is the rows, the misses, and a copy of those kept."""
    whole = advised(arxiv, machine=GPU, num_batches=100)
    estimated = whole.pricer.counts.estimated("cuda")
    asked = max(mb.num_inputs for mb in estimated.sampled.batches) * arxiv.x[:1].nbytes
    step = with_margin(estimated, estimated.parts(1))
    assert 3 * asked > step
    advice = whole.with_budgets(memory=3 * asked + 10 * arxiv.x[:1].nbytes)
    cached = by_reading(advice, cache="lru", labor=False, kappa=1)
    assert (cached.configuration.cached_rows, cached.configuration.prefetched) == (10, 0)
    assert cached.fits and cached.peak_bytes == 3 * asked + cached.configuration.cached_rows * arxiv.x[:1].nbytes


def test_programs_without_prefetching_are_not_priced_as_if_they_had_it(arxiv: wb.Dataset):
    for advice in (advised(arxiv, machine=GPU, host_memory=reduced(arxiv)), advised(arxiv, machine=GPU, devices=2)):
        for one in advice.priced:
            if one.can_be_priced and not one.configuration.prefetched:
                assert "wb.prefetch(" not in advice.code(one, data="data")
                hidden = sum(one.seconds.values()) - one.epoch_seconds
                assert hidden <= one.seconds["read"] + 1e-12, "nothing but a disk"


def test_owners_have_hosts_of_their_own_and_exchange_gradients_over_the_network(arxiv: wb.Dataset):
    machine = dataclasses.replace(GPU, network=1e6)
    advice = advised(arxiv, machine=machine, devices=2)
    alone, owned = (by_reading(advice, **w, labor=False, cache="") for w in ({"spread": "alone"}, {"window": 1}))
    assert owned.seconds["sample"] == pytest.approx(alone.seconds["sample"] / 2)
    nbytes = sum(p.nbytes for p in advice.pricer.counts.model.parameters())
    steps = advice.pricer.counts.sampled().batches_per_epoch / 2
    rows = owned.link_bytes["rank"] / machine.network
    assert owned.seconds["exchange"] == pytest.approx(rows + steps * 2 * nbytes / machine.network)


def test_programs_of_several_devices_name_what_they_import(arxiv: wb.Dataset):
    advice = advised(arxiv, devices=2, host_memory=reduced(arxiv))
    for one in advice.priced:
        tree = ast.parse(advice.code(one, data="data"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
                  for alias in node.names}  # fmt: skip
        bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} | {
            "config",
            "data",
            "__file__",
        }
        assert names <= bound | set(dir(builtins)), one.configuration


def test_why_an_idea_is_not_offered(arxiv: wb.Dataset):
    def reasons(**options: Any) -> dict[str, str]:
        sentences = advised(arxiv, machine=GPU, devices=2, **options).sentences()[1:]
        return dict(line.split(": ", 1) for line in sentences)

    found = reasons(host_memory=reduced(arxiv, 0.99), batch_size=16)
    for idea in ("placement", "cooperation"):
        assert found[idea] == "the features that it would read do not fit into the host's memory"
    found = reasons(sampler=wb.LadiesSampler([300, 300]))
    assert found["cooperation"] == "the sampler given draws a batch's rows together"
    assert found[f"κ = {KAPPA}"] == "the sampler given does not draw dependent batches"
