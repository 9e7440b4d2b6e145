"""The program of all ideas: rows that a spoiled loss or a lost saving turns; a run on one rank, piece by piece."""

import pandas as pd
import pytest

from experiments.beyond import program
from experiments.beyond.program import LINKS, PIECES, PLAIN, Config, check, draw, train
from workbench.experiment.config import DataConfig

SETTING = {
    "fanouts": (3, 3),
    "kappa": 2,
    "batch_size": 8,
    "steps": 4,
    "window": 2,
    "num_parts": 2,
    "cache_share": 0.05,
    "placed_share": 0.1,
    "hidden_dim": 4,
}


@pytest.fixture(scope="module")
def config():
    return Config(dataset=DataConfig(name="synthetic-arxiv", scale=0.004), num_ranks=1, **SETTING)


@pytest.mark.slow
def test_each_piece_leaves_the_losses_and_serves_its_link(config, tmp_path):
    data = config.dataset.load()
    plain, _, moved_plain = train(config, data, set(), tmp_path)
    assert moved_plain[LINKS.index("disk")] == 0 and moved_plain[LINKS.index("host")] > 0
    for number, pieces in enumerate([{"disk"}, {"disk", "placement"}, {*PIECES}]):
        folder = tmp_path / str(number)
        folder.mkdir()
        losses, peak_bytes, moved = train(config, data, pieces, folder)
        assert losses == pytest.approx(plain, rel=program.LOSSES) and len(losses) == config.steps
        assert peak_bytes > 0 and 0 < moved[LINKS.index("disk")] <= moved_plain[LINKS.index("host")]
        assert (moved[LINKS.index("device")] > 0) == ("placement" in pieces)


def table(**changes):
    rows = [
        {"dataset": "a", "num_ranks": 2, "plain": plain, "loss_difference": 1e-16, "step_peak_bytes": 100}
        | {f"{link}_bytes": 50 * (plain in ("cache", "placement", "macrobatch")) + 100 for link in LINKS}
        for plain in PLAIN
    ]
    made = pd.DataFrame(rows).set_index("plain", drop=False)
    made.loc["micro-batches", "step_peak_bytes"], made.loc["all", "host_bytes"] = 200, 300
    for column, (plain, value) in changes.items():
        made.loc[plain, column] = value
    return made.reset_index(drop=True)


def held(rows):
    return {finding.name: finding.held for finding in check(rows, pd.DataFrame())}


def test_what_holds_is_lost_with_the_row_it_speaks_of():
    assert set(held(table()).values()) == {True}
    assert not held(table(loss_difference=("cache", 1e-9)))["losses-are-equal"]
    assert not held(table(disk_bytes=("cache", 100)))["each-spares-the-disk"]
    assert not held(table(step_peak_bytes=("micro-batches", 90)))["parts-need-less"]
    assert not held(table(host_bytes=("all", 100)))["program-reads-least"]


def test_the_title_is_the_ratio_of_the_table():
    figure = draw(table(), pd.DataFrame())
    assert "3.0 times fewer bytes" in figure.layout.title.text.replace("<br>", " ")
