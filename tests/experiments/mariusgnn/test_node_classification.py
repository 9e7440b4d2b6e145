"""Node classification in memory and from disk: claims that can be lost, and the rows of a small run."""

from typing import Any

import pandas as pd
import pytest
import torch

import workbench as wb
from experiments.mariusgnn import node_classification, time_to_accuracy
from experiments.mariusgnn.training_systems import (
    CONTROLS,
    DGL,
    DISK,
    LAYER_WISE,
    MEMORY,
    PYG,
    REDUCED,
    SYSTEMS,
    among,
    why_not,
)
from tests.experiments.directions import directions
from tests.hop_loader import HopLoader
from workbench.experiment.config import DataConfig
from workbench.experiment.figure_loader import load_experiment

SECONDS = {MEMORY: 10.0, DISK: 11.0, DGL: 30.0, PYG: 80.0, LAYER_WISE: 12.0, REDUCED: 6.0}
BEST = {MEMORY: 0.8, DISK: 0.795, DGL: 0.8, PYG: 0.8, LAYER_WISE: 0.802, REDUCED: 0.79}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = []
    for system, seconds in SECONDS.items():
        for epoch in (1, 2, 3, 4):
            disk = {"read_bytes": 50, "predicted_read_bytes": 50} if system == DISK else {}
            rows.append(
                {
                    "dataset": "a",
                    "num_partitions": 8,
                    "capacity": 2,
                    "memory_share": 0.25,
                    "limited": system == DISK,
                    "system": system,
                    "epoch": epoch,
                    "epoch_seconds": seconds,
                    "accuracy": BEST[system] * (1 - 0.3 / 3 ** (2 * epoch)),
                    "majority": 0.1,
                    "seed": 0,
                    "memory_bytes": 400,
                    "anonymous_peak_bytes": 90 if system == DISK else 600,
                    **disk,
                }
            )
    return pd.DataFrame(rows)


def lost(name: str, rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(f"mariusgnn/{name}", rows) if not finding.held}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    for name in ("node_classification", "time_to_accuracy"):
        assert lost(name, table()) == set()
        assert lost(name, table().query("system not in [@DGL, @PYG]")) == set()
        assert lost(name, table().query("system not in @CONTROLS")) == set()


def test_machines_have_the_papers_prices() -> None:
    paper: Any = load_experiment("mariusgnn/node_classification").reported
    machine = "synthetic-" + paper.dataset.str.replace("Cites", "cites")
    rows = table().query("epoch == 1").iloc[0].to_dict()
    run = pd.DataFrame([rows | {"dataset": d, "system": s} for d, s in zip(machine, paper.system, strict=True)])
    found = node_classification.by_system(run.assign(epoch_seconds=60 * paper.minutes))
    assert found.dollars.to_numpy() == pytest.approx(paper.dollars.to_numpy(), abs=0.006)


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("system == @DISK and epoch == 4", "accuracy", 0.78, {"keeps-accuracy"}),
        ("system == @DGL", "accuracy", 0.81, {"dense-near-dgl"}),
        ("system == @LAYER_WISE and epoch == 4", "accuracy", 0.785, {"layer-wise-as-dgl"}),
        ("system == @REDUCED", "accuracy", 0.81, {"reduced-as-disk"}),
        ("system == @DISK", "read_bytes", 51, {"predicted"}),
        ("system == @DISK", "epoch_seconds", 13.0, {"as-fast"}),
        ("system == @DISK", "epoch_seconds", 25.0, {"as-fast", "cheaper"}),
        ("system == @DISK and epoch == 2", "anonymous_peak_bytes", 101, {"in-a-part"}),
        ("system == @DGL", "epoch_seconds", 10.5, {"dgl-is-slower"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(rows: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table().astype({"anonymous_peak_bytes": float})
    spoiled.loc[spoiled.query(rows).index, column] = value
    assert lost("node_classification", spoiled) == names


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("system == @DISK", "accuracy", 0.77, {"reaches-it", "as-soon", "sooner-than-dgl"}),
        ("system == @DISK", "epoch_seconds", 13.0, {"as-soon"}),
        ("system == @MEMORY", "accuracy", 0.1, {"trained-in-memory-on-disk", "reaches-it"}),
        ("system == @DGL", "epoch_seconds", 5.0, {"sooner-than-dgl"}),
    ],
)
def test_curves_that_come_too_late_lose_their_claims(rows: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table()
    spoiled.loc[spoiled.query(rows).index, column] = value
    assert lost("time_to_accuracy", spoiled) == names


def test_figures_and_comparisons_have_all_systems() -> None:
    for name in ("node_classification", "time_to_accuracy"):
        experiment = load_experiment(f"mariusgnn/{name}")
        assert experiment.draw(table()).data
        assert set(experiment.compare(table()).system) >= set(SECONDS) - set(CONTROLS)
    assert len(node_classification.by_system(table())) == 6
    assert time_to_accuracy.curves(table()).train_seconds.max() == 320


def small(**options: Any) -> node_classification.Config:
    given = {
        "dataset": {"name": "synthetic-products", "scale": 0.001},
        "model": "sage-mean",
        "fanouts": (2, 2),
        "hidden_dim": 4,
        "batch_size": 50,
        "num_partitions": 8,
        "capacity": 2,
        "memory_share": 0.25,
        "learning_rate": 0.01,
        "epochs": 1,
        "test_nodes": 20,
    }
    return node_classification.Config(**(given | options))


def test_rows_of_a_small_run() -> None:
    memory, disk = node_classification.run(small(systems=(MEMORY, DISK)))
    assert (memory["system"], disk["system"]) == (MEMORY, DISK)
    assert memory["num_steps"] == disk["num_steps"]
    assert disk["read_bytes"] == disk["predicted_read_bytes"] > 0


def test_controls_train_the_same_steps_with_other_samples() -> None:
    config = small(systems=(MEMORY, *CONTROLS))
    memory, layer_wise, reduced = node_classification.run(config)
    assert memory["num_steps"] == layer_wise["num_steps"] == reduced["num_steps"] > 0
    assert len({memory["loss"], layer_wise["loss"], reduced["loss"]}) == 3


def test_a_reduced_graph_has_the_edges_between_its_nodes() -> None:
    src, dst = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(0))
    held = set(range(0, 30, 2))
    few = among(wb.Graph.from_edges(src, dst, num_nodes=30), torch.tensor(sorted(held)))
    expected = sorted((s, d) for s, d in zip(src.tolist(), dst.tolist(), strict=True) if {s, d} <= held)
    ends = torch.arange(30).repeat_interleave(few.indptr.diff())
    assert sorted(zip(few.indices.tolist(), ends.tolist(), strict=True)) == expected and few.num_nodes == 30


def test_features_in_half_precision_are_trained_from_memory_and_disk() -> None:
    small_mag = small(dataset={"name": "synthetic-mag240M-cites", "scale": 0.0002}, systems=(MEMORY, DISK))
    assert small_mag.dataset.load().x.dtype == torch.float16
    memory, disk = node_classification.run(small_mag)
    assert memory["num_steps"] == disk["num_steps"] > 0


def test_pyg_trains_the_same_losses_where_its_loader_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all neighbours, the same weights and the same order of seeds, an epoch of PyG's is one of the library's."""
    loader = pytest.importorskip("torch_geometric.loader")
    monkeypatch.setattr(loader, "NeighborLoader", HopLoader)
    data = wb.load_dataset("synthetic-products", scale=0.001)
    everyone = int(data.graph.in_degrees().max())
    config = small(fanouts=(everyone, everyone), batch_size=len(data.train_idx))
    ours, theirs = (SYSTEMS[name](config, data, None) for name in (MEMORY, PYG))  # pyright: ignore[reportArgumentType]
    for layer, peer in zip(ours.model.layers, theirs.model.layers, strict=True):
        with torch.no_grad():
            peer.lin_l.weight.copy_(layer.fc_neigh.weight)
            peer.lin_r.weight.copy_(layer.fc_self.weight)
            peer.lin_l.bias.copy_(layer.fc_self.bias)
    losses = [[float(loss) for epoch in (0, 1) for loss in system.epoch(epoch)] for system in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    nodes = data.test_idx[:20]
    batches = lambda: wb.batches(data.graph, nodes, sampler=wb.FullNeighborSampler(2), batch_size=20, epoch=0)  # noqa: E731
    assert torch.allclose(ours.logits(batches())[1], theirs.logits(batches())[1], rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_a_build_of_dgl_without_the_gpu_is_left_out_before_work(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dgl = pytest.importorskip("dgl")
    if gpu is None and not why_not(DGL, "cuda"):
        pytest.skip("DGL is built for this GPU")
    loaded: list[Any] = []
    monkeypatch.setattr(DataConfig, "load", lambda config: loaded.append(config))
    with pytest.raises(ValueError, match=f"none of systems can train on cuda here: DGL: DGL {dgl.__version__} has no"):
        next(node_classification.run(small(device="cuda", systems=(DGL,))))
    assert not loaded and not why_not(DGL, "cpu") and not why_not(MEMORY, "cuda")
    monkeypatch.undo()
    (memory,) = node_classification.run(small(device="cuda", systems=(MEMORY, DGL)))
    assert memory["system"] == MEMORY and memory["left_out"].startswith(f"DGL: DGL {dgl.__version__} has no GPU cuda")
