"""Figures chosen by the names of papers and figures."""

import pytest

from workbench.cli.options import load_figures


@pytest.fixture(autouse=True)
def two_papers(toys):
    """Papers "games" and "toys" with the same figures: fig1, and fig2 as its view."""
    games = toys.parent / "games"
    games.mkdir()
    for file in (*toys.glob("*.py"), *toys.glob("*.yaml")):
        (games / file.name).write_text(file.read_text())


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], ["games/fig1", "games/fig2", "toys/fig1", "toys/fig2"]),
        (["toys"], ["toys/fig1", "toys/fig2"]),
        (["toys/fig2", "games/fig1"], ["games/fig1", "toys/fig2"]),
        (["toys/fig2", "toys", "toys/fig2"], ["toys/fig1", "toys/fig2"]),
    ],
)
def test_papers_and_figures_are_chosen_in_the_order_of_the_list(names, chosen):
    assert [figure.name for figure in load_figures(names)] == chosen


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tois", "paper 'tois' is not known; choose from games, toys"),
        (
            "toys/fig3",
            r"figure 'toys/fig3' is not known; choose from .*, toys/fig2; did you mean 'toys/fig2'\? \(`work",
        ),
        ("fig1", r"figure 'fig1' is not known; .*did you mean 'games/fig1' or 'toys/fig1'\?"),
    ],
)
def test_unknown_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        load_figures(["toys", name])
