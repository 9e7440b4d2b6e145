"""Suggestions for mistyped names."""

import pytest

from workbench.core.errors import check_choice
from workbench.core.suggestions import did_you_mean, unknown

FIGURES = ["betty/fig2", "betty/fig11", "batchgnn/fig3", "cooperative/fig5b", "betty/fig3"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("fig11", "did you mean 'betty/fig11'?"),
        ("bety/fig11", "did you mean 'betty/fig11'?"),
        ("Betty/Fig11", "did you mean 'betty/fig11'?"),
        ("fig3", "did you mean 'batchgnn/fig3' or 'betty/fig3'?"),
        ("something else", ""),
    ],
)
def test_figures(given, meant):
    assert did_you_mean(given, FIGURES) == meant


def test_underscores_are_hyphens_and_case_is_ignored():
    assert did_you_mean("S3_FIFO", ["lru", "s3-fifo"]) == "did you mean 's3-fifo'?"


def test_long_lists_are_not_printed():
    names = [f"dataset-{number}" for number in range(40)]
    assert len(unknown("dataset", "dataste-7", names)) < 80 and "did you mean 'dataset-7'" in unknown(
        "dataset", "dataste-7", names
    )
    assert "there are 40, such as dataset-0" in unknown("dataset", "qqq", names)


def test_every_checked_choice_asks():
    with pytest.raises(ValueError, match=r"method 'METSI' is not known; choose from metis, reg; did you mean 'metis'"):
        check_choice("method", "METSI", ["reg", "metis"])
