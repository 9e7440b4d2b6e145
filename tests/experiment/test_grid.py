"""Grids: every combination once, in order, with what the caller sets; bad values are named."""

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from workbench.core.yaml_file import ConfigError
from workbench.experiment.config import DataPointConfig
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.figure_spec import SizeSpec, Spec
from workbench.experiment.grid import Grid, configs, grids, parse_overrides

names = st.sampled_from("abcdef")
axes = st.dictionaries(names, st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3)


@given(axes, st.dictionaries(st.sampled_from("xyz"), st.integers()))
def test_points_are_the_product_of_the_axes(found, fixed):
    points = Grid(fixed, found).points()
    assert [tuple(p[name] for name in found) for p in points] == list(itertools.product(*found.values()))
    assert all({k: p[k] for k in fixed} == fixed for p in points)


def test_setting_axes_parts_and_fixed_values():
    grid = Grid({"lr": 0.1, "data": "cora"}, {"k": [1, 2], "set": ["a", {"name": "b", "scale": 1}]})
    assert grid.set("k", 4).axes["k"] == [4]
    assert grid.set("k", [4, 8]).axes["k"] == [4, 8]
    several = grid.set("lr", [1, 2])
    assert several.axes["lr"] == [1, 2] and "lr" not in several.fixed, "a list for a single value makes an axis"
    assert Grid({"fanouts": [5]}, {}).set("fanouts", [10, 25]).fixed["fanouts"] == [10, 25]
    assert grid.set("data.scale", 0.5).fixed["data"] == {"name": "cora", "scale": 0.5}
    assert grid.set("set.scale", 2).axes["set"] == [{"name": "a", "scale": 2}, {"name": "b", "scale": 2}]
    assert grid.axes["k"] == [1, 2], "the grid itself stays as it is"


def numbers(experiment, size, overrides=None):
    home = load_experiment(experiment)
    found: Any = configs(grids(home.spec, size, overrides=overrides), home.module.Config, "here.yaml")
    return [(c.number, c.word, c.seed, c.repetition) for c in found]


def test_several_grids_are_joined_without_repeats(toys):
    expected = [
        (number, word, seed, repetition)
        for number, word in [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (3, "b")]
        for seed in (5, 6)
        for repetition in (0, 1)
    ]
    assert numbers("toys/fig1", "real") == expected


def test_a_grid_has_seeds_of_its_own_or_those_of_its_size():
    size = SizeSpec(sweep=[{"number": [1]}, {"number": [2], "seed": [7, 8]}], seeds=[0, 1])
    spec = Spec(title="x", source="x", claim="x", sizes={"smoke": size})
    points = [point for grid in grids(spec, "smoke") for point in grid.points()]
    assert [(point["number"], point["seed"]) for point in points] == [(1, 0), (1, 1), (2, 7), (2, 8)]
    chosen = [point for grid in grids(spec, "smoke", overrides={"seed": 8}) for point in grid.points()]
    assert [(point["number"], point["seed"]) for point in chosen] == [(2, 8)]


def test_a_list_chooses_where_the_axis_exists():
    spec = load_experiment("betty/fig13").spec
    found = grids(spec, "smoke", overrides={"num_parts": [2]})
    assert [grid.axes.get("num_parts") for grid in found] == [None, [2], None, [2]]
    assert all("num_parts" not in grid.fixed for grid in found)
    assert all(
        point["num_parts"] == 3 for grid in grids(spec, "smoke", overrides={"num_parts": 3}) for point in grid.points()
    )


def test_overrides_reach_every_grid(toys):
    found = numbers("toys/fig1", "real", {"number": 7, "seed": [1]})
    assert found == [(7, word, 1, repetition) for word in "ab" for repetition in (0, 1)]


def test_values_that_a_grid_offers_are_taken_where_it_offers_them(toys):
    assert {found[:2] for found in numbers("toys/fig1", "real", {"word": "b"})} == {(2, "b"), (3, "b")}
    assert {found[:2] for found in numbers("toys/fig1", "real", {"number": [3, 9]})} == {
        (3, "a"),
        (3, "b"),
        (9, "a"),
        (9, "b"),
    }


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"nummer": 1}, "nummer: unknown key; allowed: device, seed, repetition, dataset, number, offset, word"),
        ({"number": "three"}, "number: is 'three' and should be a valid integer"),
        ({"number": 0}, "number: is 0 and should be greater than 0"),
        ({"word": "c"}, "word: is 'c' and should be 'a' or 'b'"),
        ({"dataset.shape": 1}, "dataset.shape: unknown key; allowed: name, undirected"),
        ({"dataset.scale": 2}, "dataset.scale: is 2 and should be less than or equal to 1"),
        ({"device": "tpu"}, "device 'tpu' is not known; choose cpu, cuda or cuda:N"),
    ],
)
def test_bad_values_name_file_key_and_what_is_allowed(toys, overrides, words):
    with pytest.raises(ConfigError) as raised:
        numbers("toys/fig1", "smoke", overrides)
    assert words in str(raised.value) and "here.yaml" in str(raised.value)


def test_what_has_no_parts(toys):
    with pytest.raises(ConfigError, match=r"the value 1 has no parts; leave out \.x"):
        numbers("toys/fig1", "smoke", {"number.x": 1})


def test_unknown_size_names_those_there_are(toys):
    with pytest.raises(ConfigError, match="size 'huge' is not one of this experiment's: smoke, real, paper"):
        numbers("toys/fig1", "huge")


@pytest.mark.parametrize("text", ["number", "=3", "a={"])
def test_texts_that_are_no_override(text):
    with pytest.raises(ConfigError, match="--set"):
        parse_overrides([text])


def test_named_methods_and_models_are_checked():
    from pydantic import ValidationError, create_model

    from workbench.experiment.config import ModelKind, PartitionMethod

    config = create_model("C", __base__=DataPointConfig, method=(PartitionMethod, ...), model=(ModelKind, ...))
    assert config(dataset="cora", method="auto", model="gat")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValidationError, match=r"'regg' is not known; choose from auto, .*reg"):
        config(dataset="cora", method="regg", model="gat")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValidationError, match="'sage' is not known"):
        config(dataset="cora", method="reg", model="sage")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_grid_may_have_repetitions_of_its_own():
    size = SizeSpec(sweep=[{"number": [1]}, {"number": [2], "repetition": [4, 5, 6]}], repetitions=2)
    spec = Spec(title="x", source="x", claim="x", sizes={"smoke": size})
    points = [point for grid in grids(spec, "smoke") for point in grid.points()]
    assert [(p["number"], p["repetition"]) for p in points] == [(1, 0), (1, 1), (2, 4), (2, 5), (2, 6)]
