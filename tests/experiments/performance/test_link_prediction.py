"""The benchmark of link prediction: both sides compute the same, and differences are noticed."""

from typing import Any

import pytest
import torch

from experiments.performance import link_prediction
from experiments.performance.link_prediction_dgl import DglLinks
from workbench.experiment.config import DataConfig

pytest.importorskip("dgl")

GIVEN: dict[str, Any] = {
    "dataset": DataConfig(name="synthetic-fb15k-237", scale=0.02),
    **{"dim": 8, "batch_size": 60, "chunks": 3, "negatives": 10, "max_batches": 1, "repeats": 1, "threads": 1},
}


@pytest.mark.parametrize("encoder", ["none", "sage"])
@pytest.mark.parametrize("scoring", ["products", "pairs"])
def test_edges_per_second_follow_the_times(encoder: Any, scoring: Any) -> None:
    (row,) = link_prediction.run(link_prediction.Config(**GIVEN, encoder=encoder, scoring=scoring))
    assert row["ours_edges_per_second"] == pytest.approx(60 / row["ours_seconds"])
    assert row["dgl_edges_per_second"] == pytest.approx(60 / row["dgl_seconds"])


def test_rows_of_dgl_and_unequal_chunks() -> None:
    given = GIVEN | {"batch_size": 50, "rows": "dgl"}
    (row,) = link_prediction.run(link_prediction.Config(**given, encoder="none"))
    assert row["num_batches"] == 1


def test_a_difference_is_noticed() -> None:
    config = link_prediction.Config(**GIVEN, encoder="none")
    kg: Any = config.dataset.load()
    start = torch.randn(kg.num_entities, config.dim)
    ours = link_prediction.OurLinks(config, kg, start)
    theirs = DglLinks(kg, start * 1.1, encoder="none", rows="torch", scoring="products", lr=0.1)
    ours.copy_parameters(theirs)
    with torch.no_grad():
        ours.decoder.relations.fill_(1)
        theirs.relations.fill_(1)
    with pytest.raises(AssertionError, match="not close"):
        link_prediction.check_equal(ours, theirs)
