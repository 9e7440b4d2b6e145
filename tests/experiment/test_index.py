"""The index of a paper: names, order and views come from it alone, and it agrees with the files."""

from pathlib import Path

import pytest

from workbench.core.yaml_file import ConfigError
from workbench.experiment.figure_loader import experiment_names, load_experiment, read_index
from workbench.experiment.figure_spec import UnknownExperimentError
from workbench.paths import experiments_folder


def write_index(toys: Path, text: str) -> None:
    (toys / "index.yaml").write_text(text)


def test_every_file_of_the_repository_is_in_an_index():
    halves = {
        f"{file.parent.name}/{file.stem}": file.with_suffix(".py").is_file()
        for file in experiments_folder().glob("*/*.yaml")
        if file.name != "index.yaml"
    }
    assert set(halves) == set(experiment_names()) and all(halves.values())


def test_figures_are_in_the_order_of_the_index(toys):
    write_index(toys, "{paper: Toys, figures: [fig2, fig1], views: {fig2: fig1}}")
    assert experiment_names() == ["toys/fig2", "toys/fig1"]
    assert load_experiment("toys/fig1").views == ("toys/fig2", "toys/fig1")


def test_a_view_has_the_home_that_the_index_names(toys):
    home, view = load_experiment("toys/fig1"), load_experiment("toys/fig2")
    assert view.home is not None and view.sweep.name == "toys/fig1" and home.home is None
    assert view.sweep.views == home.views == ("toys/fig1", "toys/fig2")


def test_the_paper_is_cited_with_its_venue(toys):
    assert load_experiment("toys/fig1").paper == "Toys"
    write_index(toys, "{paper: Toys, venue: ICML 2030, figures: [fig1]}")
    assert load_experiment("toys/fig1").paper == "Toys (ICML 2030)"


@pytest.mark.parametrize(("name", "expected"), [("fig1", {"fig1"}), ("fig2", {"fig1", "fig2"})])
def test_only_yaml_files_that_a_figure_needs_are_read(toys, monkeypatch, name, expected):
    (toys / "fig3.yaml").write_text("not: [yaml")
    write_index(toys, "{paper: Toys, figures: [fig1, fig2, fig3], views: {fig2: fig1}}")
    read, own = [], Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda file, *args, **more: (read.append(file), own(file, *args, **more))[1])
    load_experiment(f"toys/{name}")
    assert {file.stem for file in read if file.suffix == ".yaml"} == {*expected, "index"}
    assert experiment_names() == ["toys/fig1", "toys/fig2", "toys/fig3"]


def test_unknown_names_are_told_those_that_exist(toys):
    for name in ("toys/fig3", "toys", "toys/index", "nothing/fig1"):
        with pytest.raises(UnknownExperimentError, match=rf"'{name}' is not known; choose from toys/fig1, toys/fig2"):
            load_experiment(name)


def test_a_file_that_is_not_listed_is_named_with_the_index(toys):
    write_index(toys, "{paper: Toys, figures: [fig1]}")
    with pytest.raises(ConfigError, match=r"toys/index.yaml does not list fig2, but \S*toys/fig2.yaml exists"):
        load_experiment("toys/fig2")
    (toys / "index.yaml").unlink()
    with pytest.raises(ConfigError, match=r"toys/index.yaml does not list fig1, but \S*toys/fig1.yaml exists"):
        load_experiment("toys/fig1")


@pytest.mark.parametrize("suffix", ["py", "yaml"])
def test_a_missing_file_is_named_with_the_index(toys, suffix):
    (toys / f"fig1.{suffix}").unlink()
    with pytest.raises(ConfigError, match=rf"toys/index.yaml lists fig1, but \S*toys/fig1.{suffix} does not exist"):
        load_experiment("toys/fig1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{paper: Toys}", "figures: is missing"),
        ("{paper: Toys, figures: [fig1], figure: x}", "figure: unknown key; allowed: paper, venue, figures, views"),
        ("{paper: Toys, figures: [fig1, fig1]}", "figures lists fig1 2 times"),
        ("{paper: Toys, figures: [fig1], views: {fig2: fig1}}", "views.fig2: figures does not list fig2"),
        ("{paper: Toys, figures: [fig1], views: {fig1: fig9}}", "views.fig1: figures does not list fig9"),
        (
            "{paper: Toys, figures: [fig1, fig2, fig3], views: {fig2: fig1, fig3: fig2}}",
            "views.fig3: fig2 is a view itself; name fig1",
        ),
        ("{paper: [}", "invalid YAML"),
    ],
)
def test_an_invalid_index_names_file_and_remedy(toys, text, words):
    write_index(toys, text)
    with pytest.raises(ConfigError) as raised:
        read_index("toys")
    assert words in str(raised.value) and "toys/index.yaml" in str(raised.value)


def test_a_view_with_a_grid_is_refused(toys):
    (toys / "fig2.yaml").write_text((toys / "fig2.yaml").read_text() + "fixed: {offset: 3}\n")
    with pytest.raises(ConfigError, match=r"fig2.yaml: fixed and sweep .* come from fig1; move them there"):
        load_experiment("toys/fig2")
