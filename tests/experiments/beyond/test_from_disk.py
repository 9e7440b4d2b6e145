"""Features from disk: claims that can be lost, and the rows of a small run."""

from typing import Any

import pandas as pd
import pytest

from experiments.beyond import from_disk
from experiments.beyond.reading_systems import BELADY, BUFFER, LRU, MAPPED, MEMORY, PACKED
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

READ = {BUFFER: 100, LRU: 90, BELADY: 45, PACKED: 120}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = []
    for system in (MEMORY, *READ, MAPPED):
        moved = READ.get(system, float("nan"))
        rows.append(
            {
                "dataset": "a",
                "num_partitions": 8,
                "capacity": 2,
                "system": system,
                "same_losses": 1.0 if system in (MEMORY, LRU, BELADY, PACKED) else 0.0,
                "accuracy": 0.7 if system == BUFFER else 0.8,
                "feature_bytes": 200,
                "rows_read": moved,
                "read_bytes": moved,
                "written_bytes": 0.0 if system in READ else float("nan"),
                "num_reads": 7.0,
                "kernel_read_bytes": READ.get(system, 30),
                "predicted_read_bytes": moved if system in (BUFFER, BELADY) else float("nan"),
                "packed_ratio": 1.05 if system == PACKED else float("nan"),
                "peak_share": 0.25 if system in READ else float("nan"),
                "modelled_1gb_seconds": 1.0,
                "modelled_7gb_seconds": 0.1,
            }
        )
    found = pd.DataFrame(rows)
    return pd.concat([found, found.assign(dataset="b")], ignore_index=True)


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("beyond/from_disk", rows) if not finding.held}


def test_every_claim_holds_on_a_table_made_for_it() -> None:
    assert lost(table()) == set() and len(directions("beyond/from_disk", table())) == 7


@pytest.mark.parametrize(
    ("system", "column", "value", "names"),
    [
        (PACKED, "same_losses", 0.99, {"same-losses"}),
        (BELADY, "accuracy", 0.81, {"same-accuracy"}),
        (MEMORY, "accuracy", float("nan"), {"same-accuracy"}),
        (BELADY, "predicted_read_bytes", 44, {"predicted"}),
        (LRU, "peak_share", 0.26, {"in-memory-given"}),
        (LRU, "rows_read", 44, {"fewer-than-lru"}),
        (BELADY, "rows_read", float("nan"), {"fewer-than-lru"}),
        (BELADY, "written_bytes", 6, {"half-of-the-buffer"}),
        (PACKED, "packed_ratio", 1.2, {"few-pages"}),
    ],
)
def test_a_claim_is_lost(system: str, column: str, value: float, names: set[str]) -> None:
    rows = table()
    rows.loc[(rows.system == system) & (rows.dataset == "a"), column] = value
    assert lost(rows) == names


def test_the_figure_and_the_comparison() -> None:
    experiment = load_experiment("beyond/from_disk")
    figure: Any = experiment.draw(table())
    assert {trace.name for trace in figure.data} == {*READ, f"{MAPPED}, memory not limited"}
    compared = experiment.compare(table())
    assert list(compared.system) == list(table().system) and compared.accuracy.max() == 80


def test_rows_of_a_small_run() -> None:
    config = from_disk.Config(
        dataset={"name": "synthetic-products", "scale": 0.001},  # pyright: ignore[reportArgumentType]
        model="sage-mean",
        fanouts=(2, 2),
        hidden_dim=4,
        batch_size=20,
        num_partitions=8,
        capacity=4,
        memory_share=1,
        learning_rate=0.01,
        epochs=2,
        test_nodes=20,
        gap_bytes=0,
        systems=(MEMORY, BUFFER, LRU, BELADY, PACKED),
    )
    rows = pd.DataFrame(from_disk.run(config)).set_index("system")
    assert list(rows.same_losses) == [1, 0, 1, 1, 1] and rows.accuracy[[MEMORY, LRU, BELADY, PACKED]].nunique() == 1
    assert rows.read_bytes[BELADY] == rows.predicted_read_bytes[BELADY] > 0
    assert rows.rows_read[BELADY] < rows.rows_read[LRU] and rows.packed_ratio[PACKED] >= 1
    assert (rows.peak_share[[LRU, BELADY, PACKED]] <= 0.5).all()


def test_the_title_says_what_the_worst_case_lost() -> None:
    experiment, rows = load_experiment("beyond/from_disk"), table()
    worse = rows.assign(accuracy=rows.accuracy.mask((rows.system == LRU) & (rows.dataset == "b"), 0.77))
    told = [experiment.draw(one).layout.title.text.replace("<br>", " ") for one in (rows, worse)]
    assert "lost: 0.0 with samples first, 10.0 with MariusGNN's buffer" in told[0]
    assert "lost: 0.0 to 3.0 with samples first, 10.0 with MariusGNN's buffer" in told[1]
