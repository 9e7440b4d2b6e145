"""Looks that tell methods apart and stay, units that readers want."""

from typing import Any

import plotly.io as pio
import pytest

from workbench.partition.batch import PARTITION_METHODS
from workbench.plots.style import PALETTE, TEMPLATE, label, looks, unit_of


def test_every_partitioner_has_a_look_of_its_own_in_every_figure() -> None:
    together = looks(PARTITION_METHODS)
    assert set(together) == set(PARTITION_METHODS)
    found = together.values()
    for parts in ("name", "symbol", ("color", "dash")):
        names = (parts,) if isinstance(parts, str) else parts
        assert len({tuple(getattr(look, name) for name in names) for look in found}) == len(PARTITION_METHODS), parts
    assert {look.color for look in found} == set(PALETTE)
    assert all(looks([method])[method] == together[method] for method in PARTITION_METHODS)


def test_order_does_not_depend_on_the_table() -> None:
    assert (
        list(looks(["random", "reg", "range"])) == list(looks(["range", "random", "reg"])) == ["reg", "range", "random"]
    )


def test_unknown_groups_take_colours_that_are_left() -> None:
    found = looks(["reg", "mine", 7])
    assert found["mine"].name == "mine" and found[7].name == "7"
    assert len({look.color for look in found.values()}) == 3
    assert len(looks(range(20))) == 20


@pytest.mark.parametrize(
    ("column", "largest", "unit", "expected"),
    [
        ("peak_bytes", 2**30, None, ("GiB", 2**30)),
        ("peak_bytes", 2**30 - 1, None, ("MiB", 2**20)),
        ("peak_bytes", 5, "GiB", ("GiB", 2**30)),
        ("peak_bytes", 0, None, ("B", 1)),
        ("epoch_seconds", 0.25, None, ("ms", 1e-3)),
        ("epoch_seconds", 1.0, None, ("s", 1)),
        ("epoch_seconds", 90.0, None, ("min", 60)),
        ("total_inputs", 1e9, None, ("", 1)),
    ],
)
def test_units(column: str, largest: float, unit: str | None, expected: tuple[str, float]) -> None:
    assert unit_of(column, largest, unit) == expected


@pytest.mark.parametrize(("column", "says"), [("peak_bytes", "choose from B, KiB"), ("loss", "choose from none")])
def test_units_that_a_column_lacks(column: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"{column} can't be shown in 's'; {says}"):
        unit_of(column, 1.0, "s")


def test_labels() -> None:
    assert label("num_parts") == "micro-batches K"
    assert label("peak_bytes", "GiB") == "peak memory (GiB)"
    assert label("backward_seconds", "ms") == "backward (ms)"
    assert label("val_accuracy") == "val accuracy"


def test_template_is_registered_and_readable() -> None:
    assert pio.templates["workbench"] == TEMPLATE
    layout: Any = TEMPLATE.layout
    sizes = [layout.font.size, layout.xaxis.title.font.size, layout.hoverlabel.font.size]
    assert min(sizes) >= 12
