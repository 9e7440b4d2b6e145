"""Configurations of points that train: the model they build, what they refuse, what tells their runs apart."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import PositiveInt, ValidationError

from tests.all_figures import SWEEPS
from tests.strategies import random_graph
from workbench.core.dataset import Dataset
from workbench.experiment.config import ModelConfig
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.grid import configs, grids, resolved
from workbench.experiment.point_dataset import alternatives
from workbench.nn.gat import GATLayer
from workbench.nn.model import build_model

IDS = torch.arange(12)
DATA = Dataset.build(
    random_graph(), torch.rand(12, 5), IDS % 3, train_idx=IDS[:6], val_idx=IDS[6:9], test_idx=IDS[9:], name="tiny"
)
GIVEN: dict[str, Any] = {"dataset": "tiny", "model": "sage-mean", "fanouts": [2, 3, 4], "hidden_dim": 8}


class Config(ModelConfig):
    num_parts: PositiveInt


def test_the_model_is_that_of_the_configuration() -> None:
    config = ModelConfig(**GIVEN, seed=7, dropout=0.25)
    expected = build_model("sage-mean", in_dim=5, hidden_dim=8, out_dim=3, num_layers=3, dropout=0.25, seed=7)
    model = config.build(DATA)
    assert str(model) == str(expected)
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)
    other = ModelConfig(**GIVEN, seed=8).build(DATA)
    assert not torch.equal(next(model.parameters()), next(other.parameters()))


def test_heads_reach_attention_and_are_refused_elsewhere() -> None:
    attention: dict[str, Any] = {**GIVEN, "model": "gat"}
    layer = ModelConfig(**attention, heads=4).build(DATA).layers[0]
    assert isinstance(layer, GATLayer) and layer.heads == 4
    with pytest.raises(ValidationError, match="heads is 4, but sage-mean has no attention heads"):
        ModelConfig(**GIVEN, heads=4)


def test_relational_models_need_edge_types() -> None:
    relational: dict[str, Any] = {**GIVEN, "model": "rgcn"}
    config = ModelConfig(**relational)
    assert config.build(replace(DATA, graph=random_graph(num_edge_types=2))).layers[0].num_relations == 2
    with pytest.raises(ValueError, match="rgcn needs edge types"):
        config.build(DATA)


@pytest.mark.parametrize(
    "wrong", [{"dropout": 1.0}, {"dropout": -0.1}, {"hidden_dim": 0}, {"fanouts": []}, {"model": "mlp"}]
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelConfig(**GIVEN | wrong)


def test_what_fewer_experiments_have_comes_first() -> None:
    names = list(resolved(Config(**GIVEN, num_parts=4)))
    assert names[0] == "num_parts"
    assert names[1:6] == ["model", "fanouts", "hidden_dim", "heads", "dropout"]
    assert set(names[6:]) == {"dataset", "device", "seed", "repetition"}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_resolved_configuration_is_the_same_point_in_another_process(name: str) -> None:
    experiment = load_experiment(name)
    for size in experiment.spec.sizes:
        for config in configs(grids(experiment.spec, size), experiment.module.Config, name):
            for either in alternatives(config):
                assert experiment.module.Config.model_validate(json.loads(json.dumps(resolved(either)))) == either
