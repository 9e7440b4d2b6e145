"""What points need before they start, from their sizes alone: figures at their paper's size, and the estimate."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

import workbench as wb
from tests import all_figures
from tests.all_figures import FIGURES
from workbench.core.errors import CapacityError
from workbench.core.yaml_file import ConfigError
from workbench.experiment import needs
from workbench.experiment.config import DataConfig, ModelConfig, PointConfig, dataset_of
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.needs import check_needs, expected_batch, expected_seconds, needs_of
from workbench.experiment.recorded import recorded
from workbench.report import expected_time
from workbench.standin.build import required_bytes
from workbench.standin.catalog import STANDINS

SWEEPS = [name for name in all_figures.SWEEPS if "paper" in FIGURES[name].spec.sizes]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A machine with a GPU of 80 GB, 256 GB of memory, no data, and nothing built."""
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("workbench.experiment.experiment.check_device", lambda device: None)
    monkeypatch.setattr(needs, "available_bytes", lambda: 256 << 30)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", SWEEPS)
def test_every_figure_is_checked_before_it_starts(name: str) -> None:
    """Either its needs are known, or the message names the file, and how to get it."""
    figure = load_experiment(name)
    points = figure.points("paper")
    named = {data.name for point in points if (data := dataset_of(point)) and data.otherwise is None}
    missing = {data for data in named if not data.startswith("synthetic-")}
    if missing:
        with pytest.raises(
            ConfigError, match="|".join(rf"neither {data}\.npz .*(data get|put) {data}" for data in missing)
        ):
            figure.configs(size="paper")
        return
    points = figure.configs(size="paper")
    trains = [needs_of(point).device_bytes for point in points]
    lines = expected_time.needs(figure, points)
    assert len(lines) == 1 + any(nbytes is not None for nbytes in trains)
    assert all(nbytes is None or nbytes > 1 << 20 for nbytes in trains)


@pytest.mark.parametrize("name", all_figures.SWEEPS)
def test_needs_are_known_with_any_data(name: str) -> None:
    """Also where the data of the paper are missing, and others take their place."""
    figure = load_experiment(name)
    for size in FIGURES[name].spec.sizes:
        for point in figure.points(size):
            update = {"device": "cuda", "dataset": DataConfig(name="synthetic-products", scale=0.01)}
            assert needs_of(point.model_copy(update=update)).work > 0


class Config(ModelConfig):
    batch_size: int
    num_parts: int = 1


def config(**options: Any) -> Config:
    given = {"dataset": {"name": "synthetic-products", "scale": 0.01}, "model": "sage-mean", "fanouts": (5, 10)}
    return Config(**{**given, "hidden_dim": 64, "batch_size": 400, "device": "cuda", **options})


@pytest.mark.parametrize("model", ["sage-mean", "sage-pool", "gat", "gin"])
def test_the_step_is_about_what_the_estimator_says_of_a_sampled_batch(model: str) -> None:
    """Neighbours of real batches repeat more often, and some nodes have few: never less, at most 1.6 times."""
    point = config(model=model)
    data = point.dataset.load()
    batch = wb.NeighborSampler(point.fanouts).sample(data.graph, data.train_idx[:400])
    built = point.model_copy(update={"device": "cpu"}).build(data)
    sampled = wb.estimate_memory(built, batch, backend="cuda").peak_bytes
    known = needs_of(point).device_bytes
    assert known is not None and sampled <= known <= 1.6 * sampled
    parts = needs_of(config(model=model, num_parts=4)).device_bytes
    assert parts is not None and known / 4 < parts < known / 2


def test_points_that_train_no_model_on_a_gpu() -> None:
    assert needs_of(PointConfig()) == needs.Needs(0, None, 1.0)
    assert needs_of(config(device="cpu")).device_bytes is None
    assert needs_of(config(dataset={"name": "cora"})).host_bytes == 0
    assert needs_of(config(fanouts=(5, 20))).work > 1.5 * needs_of(config(fanouts=(5, 10))).work > 0


def test_published_sets_have_their_stand_ins_size() -> None:
    published = needs._GraphSize.of(DataConfig(name="ogbn-products", features="random:64"))
    generated = needs._GraphSize.of(DataConfig(name="synthetic-products", scale=1.0))
    assert published.num_nodes == generated.num_nodes == 2_449_029 and published.num_features == 64
    assert generated.host_bytes == required_bytes("synthetic-products", 1.0)[0] and published.host_bytes == 0


def test_a_batch_has_at_most_all_nodes_and_edges() -> None:
    rows, edges = expected_batch([-1, 10_000, 10], 50, 1000, 5000)
    assert edges == [5000, 5000, 500] and rows[0] <= 1000 and rows == sorted(rows, reverse=True)


@pytest.mark.usefixtures("bare")
def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = config(dataset={"name": "synthetic-papers100M", "scale": 0.5})
    assert check_needs([config()], "here") and len(check_needs([config(), large], "here")) == 1
    monkeypatch.setattr(needs, "available_bytes", lambda: 8 << 30)
    with pytest.raises(
        CapacityError, match=r"here: building synthetic-papers100M needs .* GiB .* 8.00 GiB are available"
    ):
        check_needs([config(), large], "here")
    properties = SimpleNamespace(total_memory=needs_of(config()).device_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    (line,) = check_needs([config(), config(batch_size=1600, hidden_dim=256)], "here")
    assert "1 of 2 points may need more than the" in line


def test_seconds_follow_from_a_recorded_table() -> None:
    """Seconds per work, times the work of the points."""
    points = [config(batch_size=400), config(batch_size=400, hidden_dim=128)]
    table = pd.DataFrame({"batch_size": 400, "hidden_dim": [64, 128], "point_seconds": [3.0, 6.0]})
    assert expected_seconds(points, table, points) == pytest.approx(9.0)
    larger = [config(batch_size=400, hidden_dim=256)]
    assert expected_seconds(larger, table, points) == pytest.approx(12.0)
    assert expected_seconds(larger, table.drop(columns="point_seconds"), points) is None
    figure = load_experiment("betty/table6")
    (kept,) = (found.table for found in recorded(figure.name) if found.size == "real")
    real, paper = (figure.points(size) for size in ("real", "paper"))
    small, large = (expected_seconds(points, kept, real) for points in (real, paper))
    assert small is not None and large is not None and large > small > 0


@pytest.mark.usefixtures("bare")
def test_the_scale_that_fits_is_below_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    by_default = config(dataset={"name": "synthetic-papers100M"})
    available, default = needs_of(by_default).host_bytes // 2, STANDINS["synthetic-papers100M"].default_scale
    monkeypatch.setattr(needs, "available_bytes", lambda: available)
    with pytest.raises(CapacityError, match=r"dataset\.scale=") as error:
        check_needs([by_default], "here")
    assert float(str(error.value).rpartition("=")[2]) < default
